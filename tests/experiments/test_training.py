"""Batches, optimisers, and the trainer against a plain PyTorch loop."""

import csv

import pytest
import torch
from running import job
from tiny import EXPERIMENT
from torch.utils.data import TensorDataset

pytest.importorskip("lightning")
from chonn_ops.experiments import runs, training

CONFIG = EXPERIMENT.scales["smoke"]


def configured(**changes):
    return type(CONFIG)(**{**vars(CONFIG), **changes})


def numbered(n):
    return TensorDataset(torch.arange(n))


def epoch(config, n, world, number=0):
    """Sets of samples of each global batch."""
    shares = []
    for rank in range(world):
        loader, _ = training.loaders(config, numbered(n), numbered(5), 3, rank, world)
        loader.sampler.sampler.set_epoch(number)
        shares.append([set(batch.tolist()) for (batch,) in loader])
    return [set().union(*batches) for batches in zip(*shares, strict=True)]


@pytest.mark.parametrize("n", [32, 37, 47])
def test_global_batches_do_not_depend_on_the_number_of_processes(n):
    expected = epoch(CONFIG, n, 1)
    assert len(expected) == n // 8
    assert all(len(batch) == 8 for batch in expected)
    assert len(set().union(*expected)) == 8 * (n // 8)
    for world in (2, 4):
        assert epoch(CONFIG, n, world) == expected


def test_every_epoch_has_its_own_order():
    assert epoch(CONFIG, 32, 1, 0) != epoch(CONFIG, 32, 1, 1)


@pytest.mark.parametrize("world", [1, 2, 4])
def test_validation_takes_every_sample_once(world):
    seen = []
    for rank in range(world):
        _, loader = training.loaders(CONFIG, numbered(8), numbered(7), 0, rank, world)
        seen += [i for (batch,) in loader for i in batch.tolist()]
    assert sorted(seen) == list(range(7))


def test_refuses_batches_that_do_not_split():
    with pytest.raises(ValueError, match="expected a multiple of 3 processes, got 8"):
        training.loaders(CONFIG, numbered(32), numbered(7), 0, 0, 3)
    with pytest.raises(ValueError, match="at most the 7 training samples, got 8"):
        training.loaders(CONFIG, numbered(7), numbered(7), 0, 0, 1)


@pytest.mark.parametrize(
    ("changes", "kind", "rates"),
    [
        ({"optimizer": "adam", "schedule": "step", "step_size": 2}, "Adam", [1, 1, 0.5, 0.5]),
        ({"optimizer": "adamw", "schedule": "cosine", "epochs": 4}, "AdamW", [1, 0.8536, 0.5]),
    ],
)
def test_optimisers_and_schedules(changes, kind, rates):
    config = configured(learning_rate=1.0, weight_decay=0.25, **changes)
    (optimizer,), (schedule,) = training.Training(
        EXPERIMENT, config, torch.nn.Linear(1, 1), 0, {}, {}
    ).configure_optimizers()
    assert type(optimizer).__name__ == kind
    assert optimizer.param_groups[0]["weight_decay"] == 0.25
    for rate in rates:
        assert schedule.get_last_lr()[0] == pytest.approx(rate, abs=1e-4)
        optimizer.step()
        schedule.step()


def test_equals_a_plain_loop(tmp_path):
    work = job(tmp_path, "dropout=0", "epochs=3")
    record = runs.execute(work)

    run = work.resolve()
    config = run.config
    assert config.learning_rate == 2e-3  # The variant's own.
    data = EXPERIMENT.load(config, run.data)
    torch.manual_seed(work.seed)
    model = run.variant.build(config)
    optimizer = torch.optim.AdamW(model.parameters(), 2e-3, weight_decay=0)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 3)
    losses, errors = [], []
    for number in range(3):
        generator = torch.Generator().manual_seed(work.seed + number)
        model.train()
        total = 0.0
        for chosen in torch.randperm(32, generator=generator).split(8):
            loss = EXPERIMENT.loss(config, model, data.train[chosen])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item() / 4
        schedule.step()
        model.eval()
        losses.append(total)
        with torch.no_grad():
            errors.append(EXPERIMENT.errors(config, model, data.validation[:]).mean().item())
    assert record["curve"]["epoch"] == [1, 2, 3]
    assert record["curve"]["train_loss"] == pytest.approx(losses, rel=1e-6)
    assert record["curve"]["validation_error"] == pytest.approx(errors, rel=1e-6)
    scores = EXPERIMENT.evaluate(config, model, data)
    assert record["metrics"]["test"]["relative_l2"] == pytest.approx(
        scores.metrics["test"]["relative_l2"], rel=1e-6
    )


def test_logs_hold_every_epoch(tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    work = job(tmp_path)
    record = runs.execute(work)
    folder = work.resolve().folder
    with open(folder / "csv" / "version_0" / "metrics.csv") as file:
        rows = list(csv.DictReader(file))
    for name in ("train_loss", "validation_error"):
        logged = [float(row[name]) for row in rows if row[name]]
        assert logged == pytest.approx(record["curve"][name])
    events = EventAccumulator(str(folder / "tensorboard"))
    events.Reload()
    logged = [event.value for event in events.Scalars("train_loss")]
    assert logged == pytest.approx(record["curve"]["train_loss"])
