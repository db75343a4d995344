"""The order benchmark: data, the paper's three errors, variants at matched parameters, errors."""

import dataclasses

import numpy as np
import pytest
import torch

pytest.importorskip("h5py")
pytest.importorskip("filelock")
pytest.importorskip("tqdm")

from chonn_lab.experiments.jobs import Job
from chonn_lab.experiments.order1d import EXPERIMENT, OrderConfig, scores
from chonn_lab.problems import order1d

SMOKE, PAPER = EXPERIMENT.scales["smoke"], EXPERIMENT.scales["paper"]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """The folder of all experiments' data."""
    folder = tmp_path_factory.mktemp("data")
    EXPERIMENT.prepare(SMOKE, folder / EXPERIMENT.name, progress=False)
    return folder


def named(config):
    return {variant.name: variant for variant in EXPERIMENT.variants(config)}


def count(variant, config=PAPER):
    with torch.device("meta"):
        model = variant.build(dataclasses.replace(config, **variant.changes))
    return sum(parameter.numel() for parameter in model.parameters())


def test_every_smoke_run_writes_its_scores(data, tmp_path):
    from chonn_lab.experiments.training import execute

    for name in named(SMOKE):
        job = Job(
            experiment_name=EXPERIMENT.name,
            scale="smoke",
            base=SMOKE,
            variant_name=name,
            seed=0,
            output=tmp_path,
            data=data,
            accelerator="cpu",
        )
        run = execute(job)
        assert set(run.metrics["test"]) == {"point", "spectral", "derivative"}
        assert np.isfinite(list(run.metrics["test"].values())).all()
        with np.load(job.fields) as fields:
            assert {fields[key].shape for key in fields} == {(4, 256)}


def test_each_target_reads_its_own_signals(data):
    folder = data / EXPERIMENT.name
    for target in (1, 4):
        splits = EXPERIMENT.load(dataclasses.replace(SMOKE, target=target), folder)
        assert [len(s) for s in (splits.train, splits.validation, splits.tests["test"])] == [
            SMOKE.n_train,
            SMOKE.n_validation,
            SMOKE.n_test,
        ]
        x, y = splits.tests["test"].tensors
        signals = order1d.draw_signals(SMOKE.n_test, seed=44)
        np.testing.assert_allclose(x[:, 0], signals, atol=1e-5)
        np.testing.assert_allclose(y[:, 0], order1d.targets(signals)[:, target - 1], atol=1e-6)


def test_scores_of_a_single_wave():
    """One mode against another: errors of known size, the derivative's by its wavenumber."""
    s = 2 * torch.pi * torch.arange(256, dtype=torch.float64) / 256
    target = torch.cos(3 * s).expand(2, 1, 256)
    prediction = target + torch.stack([0.1 * torch.sin(3 * s), 0.1 * torch.sin(6 * s)])[:, None]
    found = scores(prediction, target)
    steps = 2 * torch.sin(torch.pi * torch.tensor([3.0, 6.0], dtype=torch.float64) / 256)
    expected = torch.full((2,), 0.1, dtype=torch.float64)
    torch.testing.assert_close(found["point"], expected)
    torch.testing.assert_close(found["spectral"], expected)
    torch.testing.assert_close(found["derivative"], 0.1 * steps / steps[0])


def test_spectral_error_is_the_pointwise_one_but_for_the_mean_and_the_highest_mode():
    target, error = torch.randn(2, 8, 1, 256, dtype=torch.float64)
    found = scores(target + error, target)
    whole = torch.fft.fft(error).norm(dim=-1) / torch.fft.fft(target).norm(dim=-1)
    torch.testing.assert_close(found["point"], whole[:, 0])  # Parseval
    assert not torch.allclose(found["spectral"], found["point"], rtol=1e-6)

    def without_ends(y):
        spectrum = torch.fft.rfft(y)
        spectrum[..., 0] = spectrum[..., -1] = 0
        return torch.fft.irfft(spectrum)

    found = scores(without_ends(target + error), without_ends(target))
    torch.testing.assert_close(found["spectral"], found["point"])


def test_derivative_error_ignores_a_constant_and_the_place_of_the_ends():
    target, error = torch.randn(2, 4, 1, 256, dtype=torch.float64)
    found = scores(target + error, target)["derivative"]
    torch.testing.assert_close(scores(target + error + 3, target)["derivative"], found)
    rolled = scores((target + error).roll(17, -1), target.roll(17, -1))["derivative"]
    torch.testing.assert_close(rolled, found)


def test_loss_is_the_mean_of_the_samples_errors():
    x, y = torch.randn(2, 3, 1, 256)
    errors = EXPERIMENT.errors(SMOKE, torch.nn.Identity(), (x, y))
    assert errors.shape == (3,)
    expected = [float((a - b).norm() / b.norm()) for a, b in zip(x, y, strict=True)]
    np.testing.assert_allclose(errors, expected, rtol=1e-5)
    loss = EXPERIMENT.loss(SMOKE, torch.nn.Identity(), (x, y))
    assert float(loss) == pytest.approx(np.mean(expected), rel=1e-5)


def test_paper_settings():
    assert (PAPER.n_train, PAPER.n_validation, PAPER.n_test) == (12_000, 2_000, 2_000)
    assert (PAPER.optimizer, PAPER.learning_rate, PAPER.schedule) == ("adamw", 1e-4, "cosine")
    assert (PAPER.epochs, PAPER.batch_size, PAPER.seed) == (80, 32, 42)
    assert (PAPER.expand, PAPER.d_state) == (16, 8)
    assert set(EXPERIMENT.sources) == {field.name for field in dataclasses.fields(PAPER)}
    assert all(EXPERIMENT.sources.values())


def test_paper_scale_has_every_comparison():
    variants = named(PAPER)
    for target in range(1, 5):
        kinds = [f"order{n}" for n in range(1, 5)]
        kinds += [f"depth{n}" for n in range(2, 5)]
        kinds += ["stack2x2", "stack2x3", "stack3x2"]
        for kind in kinds:
            variant = variants.pop(f"t{target}-{kind}")
            assert variant.changes == {"target": target}
            assert variant.tags["target"] == target
    assert not variants


def test_without_sweep_each_target_is_learnt_at_its_own_order():
    variants = named(dataclasses.replace(PAPER, sweep_from=5, stacks_from=5))
    del variants["t1-order1"]
    for target in range(2, 5):
        for kind in ("order", "depth"):
            del variants[f"t{target}-{kind}{target}"]
    assert not variants


@pytest.mark.parametrize("name", ["t1-order1", "t4-order4", "t4-depth4"])
def test_a_training_step_at_paper_scale(name):
    variant = named(PAPER)[name]
    config = dataclasses.replace(PAPER, **variant.changes)
    torch.manual_seed(0)
    model = variant.build(config)
    batch = tuple(torch.randn(2, config.batch_size, 1, 256))
    optimizer = torch.optim.AdamW(model.parameters(), config.learning_rate)
    loss = EXPERIMENT.loss(config, model, batch)
    loss.backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())
    optimizer.step()
    with torch.no_grad():
        assert EXPERIMENT.loss(config, model, batch) < loss
    assert EXPERIMENT.example(config)[0].shape == (1, 1, 256)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"n_train": 12_001}, "n_train: expected at most 12000, got 12001"),
        ({"n_test": 0}, "n_test: expected at least 1, got 0"),
        ({"target": 5}, r"target: expected one of \(1, 2, 3, 4\), got 5"),
        ({"sweep_from": 0}, "sweep_from: expected at least 1, got 0"),
        ({"stacks_from": 0}, "stacks_from: expected at least 1, got 0"),
    ],
)
def test_bad_settings(changes, message):
    with pytest.raises(ValueError, match=message):
        OrderConfig(**changes)


def test_missing_and_damaged_file(tmp_path):
    with pytest.raises(FileNotFoundError, match="no such file"):
        EXPERIMENT.load(SMOKE, tmp_path)
    (tmp_path / order1d.DEFAULT_NAME).write_bytes(b"half of it")
    with pytest.raises(ValueError, match="damaged") as error:
        EXPERIMENT.load(SMOKE, tmp_path)
    assert "\n" not in str(error.value)
