"""Batches, optimisers, and the trainer against a plain PyTorch loop."""

import csv

import pytest
import torch
from running import job
from tiny import EXPERIMENT
from torch.utils.data import TensorDataset

pytest.importorskip("filelock")
from chonn_ops.experiments import runs, training
from chonn_ops.experiments.provenance import Provenance

CONFIG = EXPERIMENT.scales["smoke"]


def numbered(n):
    return TensorDataset(torch.arange(n))


def epoch(config, n, world, number=0):
    """Sets of samples of each global batch."""
    shares = [
        [
            set(batch.tolist())
            for (batch,) in training.training_batches(config, numbered(n), 3, number, rank, world)
        ]
        for rank in range(world)
    ]
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
        batches = training.validation_batches(CONFIG, numbered(7), rank, world)
        seen += [i for (batch,) in batches for i in batch.tolist()]
    assert sorted(seen) == list(range(7))


def test_refuses_batches_that_do_not_split():
    with pytest.raises(ValueError, match="expected a multiple of 3 processes, got 8"):
        training.check_batches(CONFIG, numbered(32), 3)
    with pytest.raises(ValueError, match="at most the 7 training samples, got 8"):
        training.check_batches(CONFIG, numbered(7), 1)


@pytest.mark.parametrize(
    ("changes", "kind", "rates"),
    [
        (("optimizer=adam", "schedule=step", "step_size=2"), "Adam", [1, 1, 0.5, 0.5]),
        (("optimizer=adamw", "schedule=cosine", "epochs=4"), "AdamW", [1, 0.8536, 0.5]),
    ],
)
def test_optimisers_and_schedules(tmp_path, changes, kind, rates):
    work = job(tmp_path, "learning_rate=1.0", "weight_decay=0.25", *changes)
    found = training.Training(work, torch.nn.Linear(1, 1), Provenance())
    assert type(found.optimizer).__name__ == kind
    assert found.optimizer.param_groups[0]["weight_decay"] == 0.25
    for rate in rates:
        assert found.schedule.get_last_lr()[0] == pytest.approx(rate, abs=1e-4)
        found.optimizer.step()
        found.schedule.step()


def test_equals_a_plain_loop(tmp_path):
    work = job(tmp_path, "dropout=0", "epochs=3")
    run = runs.execute(work)

    config = work.config
    assert config.learning_rate == 2e-3  # The variant's own.
    data = EXPERIMENT.load(config, work.data_folder)
    torch.manual_seed(work.seed)
    model = work.variant.build(config)
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
    assert run.curve["epoch"] == [1, 2, 3]
    assert run.curve["train_loss"] == pytest.approx(losses, rel=1e-6)
    assert run.curve["validation_error"] == pytest.approx(errors, rel=1e-6)
    scores = EXPERIMENT.evaluate(config, model, data)
    assert run.metrics["test"]["relative_l2"] == pytest.approx(
        scores.metrics["test"]["relative_l2"], rel=1e-6
    )


def test_logs_hold_every_epoch(tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    work = job(tmp_path)
    run = runs.execute(work)
    folder = work.folder
    with open(folder / "csv" / "version_0" / "metrics.csv") as file:
        rows = list(csv.DictReader(file))
    for name in ("train_loss", "validation_error"):
        logged = [float(row[name]) for row in rows if row[name]]
        assert logged == pytest.approx(run.curve[name])
    events = EventAccumulator(str(folder / "tensorboard"))
    events.Reload()
    logged = [event.value for event in events.Scalars("train_loss")]
    assert logged == pytest.approx(run.curve["train_loss"])
