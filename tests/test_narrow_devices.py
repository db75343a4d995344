"""Devices without float64, such as Apple's "mps", emulated by a CPU on which it is an error."""

from functools import partial
from typing import Any

import pytest
import torch
from test_operators import CASES as OPERATORS
from test_operators import total
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_leaves

import chonn_ops
from chonn_ops import Graph, _dtypes, diffusion, uncertainty
from chonn_ops.models import calibration
from chonn_ops.uncertainty import Ensemble, conformal, fit_spread

WIDE = (torch.float64, torch.complex128)
OWN = torch._C.DispatchKey.CompositeExplicitAutograd


class NoFloat64(TorchDispatchMode):
    """Raises TypeError where a tensor of float64 or complex128 is made, in our operators, too."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func.namespace == "chonn_ops":
            with self:
                return func._op_dk(OWN, *args, **(kwargs or {}))
        out = func(*args, **(kwargs or {}))
        if any(isinstance(x, torch.Tensor) and x.dtype in WIDE for x in tree_leaves(out)):
            raise TypeError(f"{func} made a tensor that this device does not have")
        return out


@pytest.fixture(autouse=True)
def narrow(monkeypatch):
    # Made on the CPU, wherever fields are.
    apart = (uncertainty, "conformal_scale"), (calibration, "least_squares"), (Graph, "__init__")
    for owner, name in apart:
        monkeypatch.setattr(owner, name, _disable_current_modes()(getattr(owner, name)))
    monkeypatch.setattr(_dtypes, "NARROW_DEVICES", {"cpu"})
    for name in ("CHONN_NETWORK_BACKEND", "CHONN_SCAN_BACKEND"):
        monkeypatch.setenv(name, "torch")


def field(*shape, seed=0):
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed)) + 0.1


def case(name):
    """Values of a case of `test_operators`, their gradients, and those of these gradients."""
    function, inputs = OPERATORS[name].make()
    kinds = (torch.complex64 if x.is_complex() else torch.float32 for x in inputs)
    leaves = [x.to(kind).requires_grad_() for x, kind in zip(inputs, kinds, strict=True)]

    def found():
        out = function(*leaves)
        values = [*out] if isinstance(out, tuple) else [out]
        twice = "twice" not in OPERATORS[name].without
        options = {"create_graph": twice, "materialize_grads": True}
        grads = torch.autograd.grad(total(function)(*leaves), leaves, **options)
        curved = [x.abs().square().sum() for x in grads if x.requires_grad]
        second = torch.autograd.grad(sum(curved), leaves, materialize_grads=True) if curved else ()
        return [*values, *grads, *second]

    return found


def said():
    circuit = diffusion(field(2, 6, 6, 3), 1 / 6, boundary="dirichlet", absorption=1.0)
    v, info = circuit.solve_with_info(field(2, 6, 6, 3, seed=1))
    # Below the tolerance errors are those of each implementation's own iterations.
    return [info.backward_error.clamp_min(1e-5), circuit.currents(v).edges[0]]


def model():
    net = chonn_ops.CHONNNetwork2d(1, 1)
    y = net(field(2, 1, 8, 8))
    return [y, *torch.autograd.grad(y.sum(), [x for x in net.parameters() if x.requires_grad])]


def calibrated():
    net = chonn_ops.CHONNNetwork2d(1, 1)
    x, y = field(3, 1, 8, 8), field(3, 1, 8, 8, seed=1)
    residual = net.calibrate(x, y)
    return [residual, net(x).detach()]


def bands():
    torch.manual_seed(3)
    x = torch.rand(40, 1, 4, 4)
    y = x + 0.1 * torch.randn(40, 1, 4, 4)
    samples = list(zip(x.split(10), y.split(10), strict=True))
    net = torch.nn.Conv2d(1, 1, 1)
    spread = fit_spread(net, samples, epochs=1)
    found = []
    for band in (
        conformal(net, samples, 0.9),
        conformal(net, samples, 0.9, spread=spread, share=0.5),
        conformal(Ensemble([net, torch.nn.Conv2d(1, 1, 1)]), samples, 0.9),
    ):
        found += [*band(x), band.evaluate(samples).widths]
    return [x.detach() for x in found]


# Made in float64, or of a geometry that is, on the CPU; and with a residual that complex64 lacks.
APART = ("cell", "block", "solve of a factor", "mesh, tensors", "volumes", "waves")
UNFIT = [x for x in OPERATORS if x.startswith(APART) or x.endswith(("cpu", "reference"))]
CASES: dict[str, Any] = {x: partial(case, x) for x in OPERATORS if x not in UNFIT}
CASES |= {f.__name__: (lambda f=f: f) for f in (said, model, calibrated, bands)}


@pytest.mark.parametrize("case", CASES)
def test_nothing_is_made_in_float64(case, monkeypatch):
    found = CASES[case]()
    torch.manual_seed(0)
    with NoFloat64():
        narrow = found()
    monkeypatch.undo()
    torch.manual_seed(0)
    wide = found()
    for found, expected in zip(narrow, wide, strict=True):
        assert found.dtype not in WIDE
        scale = float(expected.abs().amax())
        torch.testing.assert_close(
            found, expected.to(found.dtype), rtol=0, atol=1e-3 * scale + 5e-7
        )
