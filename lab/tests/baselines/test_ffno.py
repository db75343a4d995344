"""F-FNO, from its paper: its authors' code at equal weights, the paper's formula."""

import importlib
import math
import os
import sys
import types
from pathlib import Path

import pytest
import torch

from chonn_lab.baselines.ffno import FFNO, FactorizedSpectralConv

SIZES = {"width": 6, "depth": 2, "modes": 4, "padding": 0.2}


def seeded(kind, *channels, **sizes):
    torch.manual_seed(3)
    model = kind(*channels, **sizes)
    for parameter in model.parameters():
        parameter.data = parameter.to(torch.cdouble if parameter.is_complex() else torch.double)
    return model


def field(*shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


@pytest.fixture
def authors(monkeypatch):
    """The module of their F-FNO, without the rest of their package, which has many requirements."""
    folder = os.environ.get("CHONN_FOURIERFLOW")
    if folder is None:
        pytest.skip("CHONN_FOURIERFLOW is not set: no checkout of alasdairtran/fourierflow")
    pytest.importorskip("einops")
    for name in ("fourierflow", "fourierflow.modules", "fourierflow.modules.factorized_fno"):
        package = types.ModuleType(name)
        package.__path__ = [str(Path(folder, *name.split(".")))]
        monkeypatch.setitem(sys.modules, name, package)
    return importlib.import_module("fourierflow.modules.factorized_fno.mesh_2d")


def test_equals_its_authors_code_at_equal_weights(authors):
    # Theirs pads 8 points and knows two sizes of kernels.
    theirs = authors.FNOFactorizedMesh2D(5, 5, 6, 4, 3, False, 2, True, 2, False)
    ours = FFNO(2, 1, 6, 3, 5, padding=0.5)
    linear = [(ours.lift, theirs.in_proj)]
    for (first, _, second), layer in zip(ours.pointwise, theirs.spectral_layers, strict=True):
        linear += [
            (first, layer.backcast_ff.layers[0][0]),
            (second, layer.backcast_ff.layers[1][0]),
        ]
    linear += zip(ours.head, theirs.out, strict=True)
    with torch.no_grad():
        for mine, other in linear:
            weight = other.weight_g / other.weight_v.norm(dim=1, keepdim=True) * other.weight_v
            mine.weight = weight[..., None, None]
            mine.bias.copy_(other.bias)
        for layer, kernel in zip(theirs.spectral_layers, ours.kernels, strict=False):
            for mine, other in zip(kernel.weights, layer.fourier_weight, strict=True):
                mine.copy_(torch.view_as_complex(other))
    x = torch.randn(2, 2, 16, 16)
    torch.testing.assert_close(ours(x), theirs(x.movedim(1, -1)).movedim(-1, 1))


@pytest.mark.parametrize("grid", [(16, 16), (15, 22), (9, 32)])
def test_any_grid_and_a_gradient_for_every_parameter(grid):
    model = seeded(FFNO, 2, 3, **SIZES)
    found = model(field(2, 2, *grid))
    assert found.shape == (2, 3, *grid)
    found.square().mean().backward()
    assert all(parameter.grad.abs().max() > 0 for parameter in model.parameters())


def test_factorised_convolution_is_the_sum_of_full_transforms():
    """By the definition of the discrete transform along each axis, mode by mode."""
    conv, z = seeded(FactorizedSpectralConv, 3, 4), field(2, 3, 9, 12)
    expected = torch.zeros_like(z)
    for axis, weight in zip((2, 3), conv.weights, strict=True):
        n = z.shape[axis]
        place = torch.arange(n, dtype=torch.float64)
        lines = z.movedim(axis, -1)
        for mode in range(conv.modes):
            wave = torch.exp(-2j * math.pi * mode * place / n)
            amplitude = (lines * wave).sum(-1)
            mapped = torch.einsum("bip,io->bop", amplitude, weight[..., mode].detach())
            # Of a real field, each mode but the mean has a conjugate twin.
            twins = 1 if mode == 0 else 2
            part = twins / n * (mapped[..., None] * wave.conj()).real
            expected += part.movedim(-1, axis)
    torch.testing.assert_close(conv(z), expected)
