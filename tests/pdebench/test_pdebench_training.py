"""A training seen from outside: its epochs, and that it ends in an error where it diverges."""

import dataclasses
from types import ModuleType

import numpy as np
import pytest
import torch

from chonn_plugins.pdebench import HostModel, JobError, patches
from chonn_plugins.pdebench.data import Layout
from chonn_plugins.pdebench.job import Job
from chonn_plugins.pdebench.training import Watch, WatchedLoader, calibrate, finite

ARGS = {"learning_rate": 0.1, "filename": "x.hdf5", "single_file": True, "data_path": "."}
ARGS |= dict.fromkeys(("reduced_batch", "reduced_resolution_t", "reduced_resolution"), 1)
LAYOUT = Layout(4, 2, (3,), 2, 1, (1 / 3,), [(0, 1)], [(0.5, 0.5)])


class Linear(torch.nn.Module):
    """Multiplies."""

    def __init__(self) -> None:
        super().__init__()
        self.factor = torch.nn.Parameter(torch.ones(()))
        self.calls = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return self.factor * x


class Trainer:
    """PDEBench's loop as far as it is watched.

    ``predictions`` are what predictions are multiplied with at some (epoch, batch); ``validation``
    are all predictions there.
    """

    def __init__(self, *, epochs=3, sizes=(2, 2), predictions=(), validation=1.0):
        self.module = ModuleType("train")
        self.module.np, self.module.torch, self.module.nn = np, torch, torch.nn
        self.module.device = torch.device("cpu")
        for ndim in (1, 2, 3):
            setattr(self.module, f"FNO{ndim}d", torch.nn.Identity)
        self.epochs, self.sizes, self.validation = epochs, sizes, validation
        self.predictions = dict(predictions)
        self.save = patches.WholeSave()

    def run(self, start: str | None = None):
        train = self.module
        fields = torch.utils.data.TensorDataset(torch.ones(sum(self.sizes), 3))
        loader = train.torch.utils.data.DataLoader(fields, batch_size=self.sizes[0], shuffle=True)
        validation = train.torch.utils.data.DataLoader(fields, batch_size=2, shuffle=False)
        next(iter(validation))
        model, loss_fn = train.FNO1d(1), train.nn.MSELoss(reduction="mean")
        first, best = 0, float("inf")
        if start is not None:
            first = train.torch.load(start)["epoch"]
        for epoch in range(first, self.epochs):
            for batch, (x,) in enumerate(loader):
                pred = self.predictions.get((epoch, batch), 1.0) * model(x)
                # The loss of the one step in time, and that of all frames.
                (loss_fn(pred, x) + loss_fn(pred, x)).item()
            total = 0.0
            with torch.no_grad():
                for (x,) in validation:
                    total += loss_fn(self.validation * x, x).item()
            if total < best:
                best = total
                train.torch.save({"epoch": epoch}, "best.pt")


def a_job(**args: object) -> Job:
    model = HostModel(family="fno", build=lambda *_: Linear())
    return Job("theirs", "fno", model, {**ARGS, **args})


def run(trainer: Trainer, *, start: str | None = None) -> Watch:
    undo, watch = patches.Patches(), Watch()
    patches.torch_functions(undo, trainer.module, trainer.save, watch)
    patches.loss_function(undo, trainer.module, watch)
    patches.model_builders(undo, trainer.module, a_job(), LAYOUT, watch, trainer.save)
    try:
        with finite(a_job(), watch, lambda: f"saved {trainer.save.count} times"):
            trainer.run(start)
    finally:
        undo.close()
    return watch


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_epochs_go_on_where_the_checkpoint_was():
    torch.save({"epoch": 4}, "old.pt")
    assert run(Trainer(epochs=6), start="old.pt").epoch == 5


@pytest.mark.parametrize("value", ["nan", "inf"])
def test_a_loss_that_is_not_finite_ends_the_training(value):
    with pytest.raises(JobError) as caught:
        run(Trainer(predictions={(1, 1): float(value)}))
    assert str(caught.value) == (
        f"the training of theirs diverged in epoch 1 (the first is 0): the loss of batch 2 is "
        f"{value}; saved 1 times. args.learning_rate is 0.1."
    )


def test_no_finite_validation_is_an_error():
    with pytest.raises(JobError, match=r"by epoch 2 .*no validation loss was finite; saved 0 "):
        run(Trainer(validation=float("nan")))


@pytest.mark.parametrize(
    ("args", "gradient", "calls"),
    [({}, 30, 5), ({"checkpointing": True}, 30, 10), ({"training_type": "pushforward"}, 6, 5)],
)
def test_gradients_of_a_rollout(args, gradient, calls):
    """Losses are squares of frames: powers of a factor that is 1, or from the third frame on."""
    given = {"initial_step": 1, "t_train": 9, "unroll_step": 2, "training_type": "autoregressive"}
    train, undo, watch, job = Trainer().module, patches.Patches(), Watch(), a_job(**given | args)
    layout = dataclasses.replace(LAYOUT, frames=6)
    patches.model_builders(undo, train, job, layout, watch, patches.WholeSave())
    patches.rollouts(undo, train, job, layout, watch)
    model, loss_fn = train.FNO1d(num_channels=1), watch.loss()
    x, total = torch.ones(2, 3), torch.zeros(())
    for _ in range(5):
        x = model(x)
        total = total + loss_fn(x, torch.zeros_like(x))
    total.backward()
    assert (model.factor.grad, model.calls) == (gradient, calls)


class Calibrated(torch.nn.Module):
    """Keeps what it is calibrated by."""

    def calibrate(self, *fields):
        self.seen = fields
        return torch.tensor([0.25, 0.5])


@pytest.mark.parametrize(
    ("family", "args", "frame"),
    [
        ("unet", {"initial_step": 2, "t_train": 5}, 2),
        ("fno", {"initial_step": 2, "t_train": 5, "training_type": "autoregressive"}, 2),
        ("fno", {"initial_step": 1, "t_train": 4, "training_type": "single"}, 3),
        ("fno", {"initial_step": 1, "t_train": 9, "training_type": "single"}, 4),
    ],
)
def test_a_model_is_calibrated_by_the_first_samples(capsys, family, args, frame):
    """Inputs and targets as the trainer has them."""
    start = args["initial_step"]
    fields, grid = torch.rand(60, 64, 48, 5, 2), torch.rand(64, 48, 2)
    samples = [(y[..., :start, :], y, *([grid] if family == "fno" else [])) for y in fields]
    state = torch.get_rng_state()
    model, job = Calibrated(), Job("theirs", family, None, args)
    calibrate(model, job, samples, torch.device("cpu"))
    x, y, *given = model.seen
    # As many points as 48 samples of 64 x 64.
    inputs, targets = fields[..., :start, :].flatten(-2), fields[..., frame, :]
    if family == "fno":
        assert torch.equal(given[0], grid.expand(60, *grid.shape))
        assert torch.equal(y, targets.unsqueeze(-2))
    else:
        assert given == []
        assert torch.equal(y, targets.movedim(-1, 1))
        x = x.movedim(1, -1)
    assert torch.equal(x, inputs)
    assert capsys.readouterr().out == (
        "chonn-ops: calibrated by 60 samples, 0.25, 0.5 of the deviation left\n"
    )
    assert torch.equal(torch.get_rng_state(), state)
    calibrate(torch.nn.Identity(), job, samples, torch.device("cpu"))


@pytest.mark.parametrize(("start", "first"), [(1, 0), (2, 0), (4, 2)])
def test_a_model_of_series_is_calibrated_by_what_is_predicted_and_two_frames_before(start, first):
    model = Calibrated()
    model.series = True
    fields, grid = torch.rand(3, 16, 9, 2), torch.rand(16, 1)
    args = {"initial_step": start, "t_train": 8, "training_type": "autoregressive"}
    samples = [(y[..., :start, :], y, grid) for y in fields]
    calibrate(model, Job("theirs", "fno", None, args), samples, torch.device("cpu"))
    assert torch.equal(model.seen[0], fields[..., first:7, :].flatten(-2))
    assert torch.equal(model.seen[1], fields[..., 7:8, :])


def test_a_model_is_calibrated_by_every_second_point_of_large_samples():
    args = {"initial_step": 1, "t_train": 2, "training_type": "single"}
    for shape, every, count in (((512, 512), 2, 3), ((32, 32, 32), 2, 5), ((16, 16, 16), 1, 5)):
        fields, grid = torch.rand(5, *shape, 2, 1), torch.rand(*shape, len(shape))
        model, kept = Calibrated(), (slice(None, None, every),) * len(shape)
        samples = [(y[..., :1, :], y, grid) for y in fields]
        calibrate(model, Job("theirs", "fno", None, args), samples, torch.device("cpu"))
        x, y, places = model.seen
        assert torch.equal(x, fields[(slice(count), *kept, ..., 0, slice(None))])
        assert torch.equal(y, fields[(slice(count), *kept, ..., slice(1, 2), slice(None))])
        assert torch.equal(places[0], grid[kept])


def test_only_a_new_training_begins_with_it():
    for resumed in (False, True):
        calls, watch = [], Watch()
        watch.start = lambda *args, calls=calls: calls.append(args)
        if resumed:
            watch.resumed({"epoch": 1})
        fields = torch.utils.data.TensorDataset(torch.ones(2, 3))
        loader = torch.utils.data.DataLoader(fields)
        for training in (False, True, True):
            list(WatchedLoader(loader, torch.device("cpu"), watch, training=training))
        assert calls == ([] if resumed else [(fields, torch.device("cpu"))])


@pytest.mark.parametrize("decays", [True, False])
def test_a_model_may_turn_off_the_decay_of_its_weights(decays):
    train, undo, watch = Trainer().module, patches.Patches(), Watch()
    built = Linear()
    built.decays = decays
    job = Job("theirs", "fno", HostModel(family="fno", build=lambda *_: built), ARGS)
    patches.torch_functions(undo, train, print, watch)
    patches.model_builders(undo, train, job, LAYOUT, watch, patches.WholeSave())
    model = train.FNO1d(1)
    optimizer = train.torch.optim.Adam(model.parameters(), lr=1e-3, weight_decay=1e-4)
    assert type(optimizer) is torch.optim.Adam
    (group,) = optimizer.param_groups
    assert (group["lr"], group["weight_decay"]) == (1e-3, 1e-4 if decays else 0)
    schedule = train.torch.optim.lr_scheduler.StepLR(optimizer, 2)
    assert type(schedule) is torch.optim.lr_scheduler.StepLR
