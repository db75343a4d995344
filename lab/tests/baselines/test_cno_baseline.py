"""CNO, written from its paper: its authors' code at equal weights."""

import importlib.util
import os
from pathlib import Path

import pytest
import torch

from chonn_lab.baselines.cno import CNO


@pytest.fixture
def authors():
    folder = os.environ.get("CHONN_CNO")
    if folder is None:
        pytest.skip("CHONN_CNO is not set: no checkout of camlab-ethz/ConvolutionalNeuralOperator")
    path = Path(folder, "CNO2d_simplified", "CNO2d.py")
    spec = importlib.util.spec_from_file_location("authors_cno2d", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def layers(*parts):
    """Layers with weights, a convolution before its norm, as in every block but one of theirs."""
    kinds = (torch.nn.Conv2d, torch.nn.BatchNorm2d)
    found = []
    for module in (module for part in parts for module in part.modules()):
        if hasattr(module, "convolution2"):
            found += [module.convolution1, module.batch_norm1]
            found += [module.convolution2, module.batch_norm2]
        elif isinstance(module, kinds) and module not in found:
            found.append(module)
    return found


@pytest.mark.parametrize("training", [True, False])
def test_equals_its_authors_code_at_equal_weights(authors, training):
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


@pytest.mark.parametrize("grid", [(16, 16), (8, 24)])
def test_any_grid_of_multiples_and_a_gradient_for_every_parameter(grid):
    torch.manual_seed(0)
    model = CNO(2, 3, 2, n_res=1, n_res_neck=1, channel_multiplier=4, latent=3)
    found = model(torch.randn(2, 2, *grid))
    assert found.shape == (2, 3, *grid)
    found.square().mean().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())
