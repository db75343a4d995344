"""Experiments on meshes, of the order benchmark and of laws of the flux: scores and laws."""

import numpy as np
import pytest
import torch
from running import model, problem, smoke

from chonn_lab.experiments import flux_law
from chonn_lab.experiments.order1d import scores
from chonn_lab.problems import meshes, order1d
from chonn_lab.problems.flux_law import LAWS

CONTROLS = ("own_scheme", "node_scheme")


@pytest.mark.parametrize("mesh", meshes.PROBLEMS)
def test_samples_are_scored_on_their_own_mesh(tmp_path, mesh, assert_learns):
    found = problem("problem=meshes", f"problem.mesh={mesh}")
    found.prepare(tmp_path)
    data = found.load(tmp_path)
    assert list(data.tests) == ["test", "test_fine"]
    told, nodes = (found.evaluate(model(found, kind), data)["metrics"] for kind in CONTROLS)
    assert told["test"]["relative_l1"] < 1e-6
    assert 1e-3 < nodes["test_fine"]["relative_l1"] < nodes["test"]["relative_l1"] < 0.2
    network = model(found, "chonn_network", f"problem.mesh={mesh}")
    torch.nn.init.normal_(network.model.head.faces.output.weight)  # starts at 0
    which = torch.arange(4)
    errors = found.errors(network, data.train[which])
    meshes_of = {on.volumes for on in found.chosen(data.train[which])}
    assert len(meshes_of) == (4 if mesh == "domains" else 1)
    alone = [found.errors(network, data.train[one]) for one in which.split(1)]
    torch.testing.assert_close(errors, torch.cat(alone), rtol=1e-4, atol=1e-6)
    errors.mean().backward()
    assert_learns(network)


def test_each_target_reads_its_own_signals(tmp_path):
    order1d.generate(tmp_path / order1d.DEFAULT_NAME, 40, 4, 4)
    for target in (1, 4):
        splits = smoke("order1d", f"target={target}").load(tmp_path)
        x, y = splits.tests["test"].tensors
        assert [len(split) for split in (splits.train, splits.validation, x)] == [16, 4, 4]
        signals = order1d.draw_signals(4, seed=44)
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


@pytest.mark.parametrize("flux", LAWS)
def test_a_law_is_learned_from_noisy_fields(smoke_data, flux):
    found = smoke("flux_law", f"flux={flux}")
    found.prepare(smoke_data / "flux_law")
    data = found.load(smoke_data / "flux_law")
    scores = {}
    for kind in ("learned", "linear", "known"):
        circuit = model(found, "flux_law", f"model.kind={kind}")
        circuit.fit(data.train)
        with torch.no_grad():
            scores[kind] = found.evaluate(circuit, data)["metrics"]
    errors = {k: [s[at]["relative_l1"] for at in s if at != "law"] for k, s in scores.items()}
    assert max(errors["known"]) < 0.01  # of two schemes on a coarse grid
    assert errors["learned"][0] < 0.012 < errors["linear"][0] / 5
    assert max(errors["learned"]) < max(errors["linear"]) / 5
    assert scores["learned"]["law"]["relative_l1"] < 0.03 < scores["linear"]["law"]["relative_l1"]


def test_noise_is_that_of_the_card_and_only_on_what_is_trained_on(smoke_data):
    found = smoke("flux_law", "n_train=56")
    found.prepare(smoke_data / "flux_law")
    data = found.load(smoke_data / "flux_law")
    (path, *_) = found.makers(smoke_data / "flux_law")
    clean = found.read(path, 64)[1].split([56, 4, 4])
    for noisy, u, size in zip((data.train, data.validation), clean, (0.02, 0.1), strict=False):
        noise = (noisy.tensors[1] - u) / u.square().mean((1, 2, 3), keepdim=True).sqrt()
        assert (noise[..., 0] == 0).all()
        assert float(noise[..., 1:-1, 1:-1].std()) == pytest.approx(0.01, rel=size)
    assert torch.equal(data.tests["test"].tensors[1], clean[2])


def test_exponents_are_linear_between_knots_and_constant_beyond():
    law = flux_law.Exponents(5, -2.0, 2.0)
    with torch.no_grad():
        law.weights[1:] = torch.tensor([0.5, 3.0, 1.0, 2.0, 0.2]).expm1().log()
    e = torch.tensor([-6.0, -2.5, -1.5, -1.0, 0.25, 1.75, 2.5, 9.0]).double().exp().requires_grad_()
    phi = law(e)
    (slope,) = torch.autograd.grad(phi.sum(), e)
    expected = torch.tensor([1.0, 1.0, 1.75, 3.0, 1.25, 0.65, 0.2, 0.2]).double()
    torch.testing.assert_close(e * slope / phi, expected)
    torch.testing.assert_close(law(torch.ones(1).double()), torch.ones(1).double())
