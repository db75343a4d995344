"""The law of the flux that a circuit learns from noisy fields."""

import pytest
import torch
from running import model, smoke

from chonn_lab.experiments import flux_law
from chonn_lab.problems.flux_law import LAWS


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
