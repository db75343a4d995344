"""Batches, optimisers, and the trainer against a plain PyTorch loop."""

import pytest
import torch
from running import job
from tiny import EXPERIMENT
from torch.utils.data import TensorDataset

pytest.importorskip("filelock")
from chonn_lab.experiments import training
from chonn_lab.experiments.provenance import Provenance

CONFIG = EXPERIMENT.scales["smoke"]


def numbered(n):
    return TensorDataset(torch.arange(n))


def epoch(n, number=0):
    """Sets of samples of the batches of an epoch."""
    batches = training.training_batches(CONFIG, numbered(n), 3, number)
    return [set(batch.tolist()) for (batch,) in batches]


@pytest.mark.parametrize("n", [32, 37, 47])
def test_batches_are_whole_and_disjoint(n):
    found = epoch(n)
    assert len(found) == n // 8
    assert all(len(batch) == 8 for batch in found)
    assert len(set().union(*found)) == 8 * (n // 8)


def test_every_epoch_has_its_own_order():
    assert epoch(32, 0) != epoch(32, 1)


def test_refuses_batches_beyond_the_training_split(tmp_path):
    work = job(tmp_path, "n_train=7")
    found = training.Training(work, torch.nn.Linear(1, 1), Provenance())
    with pytest.raises(ValueError, match="at most the 7 training samples, got 8"):
        found.fit(numbered(7), numbered(7))


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
    run = training.execute(work)

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
