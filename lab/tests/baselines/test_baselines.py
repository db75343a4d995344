"""CNO and F-FNO, written from their papers: their authors' code at equal weights, the formula."""

import importlib
import importlib.util
import math
import os
import sys
import types
from pathlib import Path

import pytest
import torch

from chonn_lab.baselines.cno import CNO
from chonn_lab.baselines.ffno import FFNO, FactorizedSpectralConv


def seeded(model):
    for parameter in model.parameters():
        parameter.data = parameter.to(torch.cdouble if parameter.is_complex() else torch.double)
    return model


def field(*shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def checkout(variable, authors):
    """The folder of a checkout of their code."""
    folder = os.environ.get(variable)
    if folder is None:
        pytest.skip(f"{variable} is not set: no checkout of {authors}")
    return Path(folder)


@pytest.mark.parametrize(
    ("build", "grids"),
    [
        (lambda: CNO(2, 3, 2, 1, 1, 4, 3).double(), [(16, 16), (8, 24)]),
        (lambda: seeded(FFNO(2, 3, 6, 2, 4, 0.2)), [(16, 16), (15, 22), (9, 32)]),
    ],
    ids=["CNO", "F-FNO"],
)
def test_any_grid_and_a_gradient_for_every_parameter(build, grids):
    for grid in grids:
        torch.manual_seed(3)
        model = build()
        output = model(field(2, 2, *grid))
        assert output.shape == (2, 3, *grid)
        output.square().mean().backward()
        assert all(parameter.grad.abs().max() > 0 for parameter in model.parameters())


def layers(*parts):
    """Layers with weights, a convolution before its norm, as in every block but one of theirs."""
    kinds = (torch.nn.Conv2d, torch.nn.BatchNorm2d)
    stacked = []
    for module in (module for part in parts for module in part.modules()):
        if hasattr(module, "convolution2"):
            stacked += [module.convolution1, module.batch_norm1]
            stacked += [module.convolution2, module.batch_norm2]
        elif isinstance(module, kinds) and module not in stacked:
            stacked.append(module)
    return stacked


@pytest.mark.parametrize("training", [True, False])
def test_cno_equals_its_authors_code_at_equal_weights(training):
    folder = checkout("CHONN_CNO", "camlab-ethz/ConvolutionalNeuralOperator")
    path = folder / "CNO2d_simplified" / "CNO2d.py"
    spec = importlib.util.spec_from_file_location("authors_cno2d", path)
    authors = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(authors)
    torch.manual_seed(0)
    theirs = authors.CNO2d(2, 3, 16, 2, N_res=1, N_res_neck=2, channel_multiplier=4)
    ours = CNO(2, 3, 2, n_res=1, n_res_neck=2, channel_multiplier=4)
    parts = ("lift", "encoder", "ED_expansion", "decoder", "res_nets", "res_net_neck", "project")
    first = layers(*(getattr(theirs, part) for part in parts))
    parts = (ours.lift, ours.encoders, ours.links, *reversed(ours.decoders))
    second = layers(*parts, ours.residuals, ours.neck, ours.project)
    for other, mine in zip(first, second, strict=True):
        mine.load_state_dict(other.state_dict())
    x = torch.randn(2, 2, 16, 16)
    torch.testing.assert_close(ours.train(training)(x), theirs.train(training)(x))


def test_ffno_equals_its_authors_code_at_equal_weights(monkeypatch):
    # Without the rest of their package, which has many requirements.
    folder = checkout("CHONN_FOURIERFLOW", "alasdairtran/fourierflow")
    pytest.importorskip("einops")
    for name in ("fourierflow", "fourierflow.modules", "fourierflow.modules.factorized_fno"):
        package = types.ModuleType(name)
        package.__path__ = [str(Path(folder, *name.split(".")))]
        monkeypatch.setitem(sys.modules, name, package)
    authors = importlib.import_module("fourierflow.modules.factorized_fno.mesh_2d")
    # Theirs pads 8 points and knows two sizes of kernels.
    theirs = authors.FNOFactorizedMesh2D(5, 5, 6, 4, 3, False, 2, True, 2, False)
    ours = FFNO(2, 1, 6, 3, 5, padding=0.5)
    linear = [(ours.lift, theirs.in_proj)]
    for (first, _, second), layer in zip(ours.pointwise, theirs.spectral_layers, strict=True):
        linear += zip((first, second), (x[0] for x in layer.backcast_ff.layers), strict=False)
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


def test_factorised_convolution_is_the_sum_of_full_transforms():
    """By the definition of the discrete transform along each axis, mode by mode."""
    torch.manual_seed(3)
    conv, z = seeded(FactorizedSpectralConv(3, 4)), field(2, 3, 9, 12)
    expected = torch.zeros_like(z)
    for axis, weight in zip((2, 3), conv.weights, strict=True):
        n = z.shape[axis]
        place = torch.arange(n, dtype=torch.float64)
        lines = z.movedim(axis, -1)
        for mode in range(conv.modes):
            wave = torch.exp(-2j * math.pi * mode * place / n)
            amplitude = (lines * wave).sum(-1)
            mapped = torch.einsum("bip,io->bop", amplitude, weight[..., mode].detach())
            # In a real field each mode but the mean has a conjugate twin.
            twins = 1 if mode == 0 else 2
            part = twins / n * (mapped[..., None] * wave.conj()).real
            expected += part.movedim(-1, axis)
    torch.testing.assert_close(conv(z), expected)
