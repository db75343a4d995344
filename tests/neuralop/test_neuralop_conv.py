"""`CKBSpectralConv` in models of an untouched neuraloperator."""

import copy
import os
import pickle
import subprocess
import sys
import textwrap

import pytest
import torch
from gradients import without_gradient
from neuralop.layers.fno_block import FNOBlocks
from neuralop.layers.spectral_convolution import SpectralConv
from neuralop.models import FNO

from chonn_ops import CKB
from chonn_plugins.neuralop import CKBSpectralConv


@pytest.mark.parametrize("n_dim", [1, 2, 3])
@pytest.mark.parametrize(
    "keywords",
    [{}, {"complex_data": True}, {"preactivation": True, "norm": "group_norm"}, {"rank": 0.5}],
    ids=["plain", "complex", "preactivation", "rank"],
)
def test_output_and_gradients(fno, n_dim, keywords):
    model = fno(n_dim, spectral_mixer=None, conv_module=CKBSpectralConv, **keywords)
    complex_data = keywords.get("complex_data", False)
    x = torch.randn(2, 2, *(8, 9, 7)[:n_dim], dtype=torch.cfloat if complex_data else None)
    out = model(x)
    assert out.shape == (2, 1, *x.shape[2:])
    (out.abs() ** 2).sum().backward()
    assert without_gradient(model) == []
    assert sum(isinstance(m, CKB) for m in model.modules()) == 3 * (1 + complex_data)


def test_is_the_convolution_plus_the_block():
    torch.manual_seed(0)
    ours = CKBSpectralConv(4, 6, (4, 4), resolution_scaling_factor=2)
    torch.manual_seed(0)
    theirs = SpectralConv(4, 6, (4, 4), resolution_scaling_factor=2)
    x = torch.randn(2, 4, 8, 8)
    assert ours(x).shape == (2, 6, 16, 16)
    torch.testing.assert_close(ours(x), theirs(x) + theirs.transform(ours.mixer(x)))
    shape = (9, 11)
    expected = theirs(x, output_shape=shape) + theirs.transform(ours.mixer(x), output_shape=shape)
    torch.testing.assert_close(ours(x, output_shape=shape), expected)


def test_resolutions_and_modes(fno):
    keywords = {"spectral_mixer": None, "conv_module": CKBSpectralConv, "max_n_modes": (8, 8)}
    model = fno(resolution_scaling_factor=[2, 0.5, 1.5], **keywords)
    assert model(torch.randn(1, 2, 8, 8)).shape == (1, 1, 12, 12)
    model = fno(**keywords)
    assert model(torch.randn(1, 2, 17, 23)).shape == (1, 1, 17, 23)
    model.n_modes = (6, 6)
    assert model(torch.randn(1, 2, 16, 16)).shape == (1, 1, 16, 16)


def test_blocks_that_change_channels_and_resolution():
    blocks = FNOBlocks(
        4,
        6,
        (4, 4),
        resolution_scaling_factor=0.5,
        conv_module=CKBSpectralConv,
        channel_mlp_skip="linear",
    )
    assert blocks(torch.randn(2, 4, 8, 8)).shape == (2, 6, 4, 4)


def test_options():
    conv = CKBSpectralConv.with_options(order=3, grid="input")(4, 4, (4, 4))
    assert conv.mixer.options.order == 3
    assert CKBSpectralConv.with_options(order=3) is CKBSpectralConv.with_options(order=3)
    again = CKBSpectralConv.with_options(order=3, grid="input").with_options(termination="ring")
    options = again(4, 4, (4, 4)).mixer.options
    assert (options.order, options.termination) == (3, "ring")
    grid = CKBSpectralConv.with_options(grid=[6, 6])(4, 4, (4, 4)).mixer.grid
    assert grid == (6, 6)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"odrer": 3}, "expected options out of .*, got 'odrer'"),
        ({"order": 0}, "order: expected at least 1"),
        ({"cell": "scan", "directions": "diagonal"}, "directions: expected one of"),
        ({"grid": "finest"}, "grid: expected 'training', 'input' or sizes, got 'finest'"),
        ({"grid": 16}, "grid: expected 'training', 'input' or sizes, got 16"),
    ],
)
def test_bad_options(options, message):
    with pytest.raises(ValueError, match=message):
        CKBSpectralConv.with_options(**options)


def test_four_axes():
    with pytest.raises(ValueError, match=r"expected 1, 2, 3 axes, got n_modes=\(4, 4, 4, 4\)"):
        CKBSpectralConv(2, 2, (4, 4, 4, 4))


class Named(CKBSpectralConv.with_options(order=1)):
    """A subclass made by a statement is found by its name."""


@pytest.mark.parametrize(
    "conv",
    [CKBSpectralConv, CKBSpectralConv.with_options(cell="scan", order=3, grid=[8, 8]), Named],
)
def test_pickles_copies_and_checkpoints(fno, tmp_path, conv):
    model = fno(spectral_mixer=None, conv_module=conv)
    model.save_checkpoint(tmp_path, "model")
    twins = [pickle.loads(pickle.dumps(model)), copy.deepcopy(model)]
    twins.append(FNO.from_checkpoint(tmp_path, "model"))
    x = torch.randn(1, 2, 8, 8)
    for twin in twins:
        assert type(twin.fno_blocks.convs[0]) is conv
        torch.testing.assert_close(twin(x), model(x), rtol=0, atol=0)


@pytest.mark.slow
def test_needs_no_hook(fno, tmp_path):
    conv = CKBSpectralConv.with_options(order=1)
    model = fno(spectral_mixer=None, conv_module=conv)
    model.save_checkpoint(tmp_path, "model")
    x = torch.randn(1, 2, 8, 8)
    torch.save({"x": x, "y": model(x)}, tmp_path / "fields.pt")
    code = """
        import inspect, sys, torch
        from neuralop.models import FNO
        # `import chonn_ops` asks for the hook, off switch or not.
        from chonn_plugins import autoload
        autoload.arm = lambda: None
        model = FNO.from_checkpoint(sys.argv[1], "model")
        fields = torch.load(sys.argv[1] + "/fields.pt")
        torch.testing.assert_close(model(fields["x"]), fields["y"])
        assert "spectral_mixer" not in inspect.signature(FNO).parameters
    """
    run = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), str(tmp_path)],
        env={**os.environ, "CHONN_AUTOLOAD": "0"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
