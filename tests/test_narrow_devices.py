"""Devices without float64, such as Apple's "mps", emulated by a CPU on which it is an error."""

from __future__ import annotations

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_leaves

import chonn_ops
from chonn_ops import (
    Auto,
    Circuit,
    Direct,
    Graph,
    Grid,
    Iterative,
    LCState,
    _dtypes,
    diffusion,
    kirchhoff_scan,
    lc_step,
    rc_step,
    uncertainty,
)
from chonn_ops.models import calibration
from chonn_ops.uncertainty import Ensemble, conformal, fit_spread

# Made on the CPU, wherever fields are.
GRAPH = Graph([(0, 1), (1, 2), (2, 3), (3, 0), (0, 2)], 4)
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
    for module, name in ((uncertainty, "conformal_scale"), (calibration, "least_squares")):
        monkeypatch.setattr(module, name, _disable_current_modes()(getattr(module, name)))
    monkeypatch.setattr(_dtypes, "NARROW_DEVICES", {"cpu"})
    for name in ("CHONN_NETWORK_BACKEND", "CHONN_SCAN_BACKEND"):
        monkeypatch.setenv(name, "torch")


def field(*shape, seed=0):
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed)) + 0.1


def plane(n=6):
    return field(2, n, n, 3, seed=1), [field(2, n, n, 3, seed=2 + i) for i in range(2)]


TORUS = Grid((6, 6), periodic=True)


def solve(solver=Auto(), order=1):
    leak, g = plane()
    g = [x.requires_grad_() for x in g]
    s = field(2, 6, 6, 3, seed=5).requires_grad_()
    v, info = Circuit(g, leak, TORUS).solve_with_info(s, solver)
    # Below the tolerance errors are those of each implementation's own iterations.
    found = [v, info.backward_error.clamp_min(1e-5)]
    for _ in range(order):
        total = found[-1 if len(found) > 2 else 0].square().sum()
        found += torch.autograd.grad(total, (s, *g), create_graph=True)
    return found


def forward_mode():
    leak, g = plane()
    s = field(2, 6, 6, 3, seed=5)
    solve = lambda s, *g: Circuit(g, leak, TORUS).solve(s)  # noqa: E731
    return torch.func.jvp(solve, (s, *g), (s, *g))


def factorized():
    leak, g = plane()
    leak.requires_grad_()
    f = Circuit(g, leak, TORUS).factorize()
    s = field(2, 4, 6, 6, 3, seed=6)
    found = [f.logdet(), f.solve(s), f.sample(s), f.diagonal_of_inverse()]
    for x in found[:]:
        found += torch.autograd.grad(x.square().sum(), leak, create_graph=True)
    return [*found, *torch.autograd.grad(found[4].sum(), leak)]


def several_sources():
    leak, g = plane()
    return [Circuit(g, leak, TORUS).solve(field(2, 3, 6, 6, 3))]


def resistances():
    leak, g = plane()
    pairs = torch.combinations(torch.arange(5))
    found = Circuit([x.requires_grad_() for x in g], leak, TORUS).resistance(pairs)
    return [found, *torch.autograd.grad(found.sum(), g)]


def graphs():
    k = field(2, 5, 1).requires_grad_()
    v = Circuit(k, torch.ones(2, 4, 1), GRAPH).solve(field(2, 4, 1))
    return [v, *torch.autograd.grad(v.sum(), k)]


def steps():
    v = field(2, 6, 6, 3, seed=9)
    circuit = diffusion(field(2, 6, 6, 3), 1 / 6, boundary="dirichlet", absorption=1.0)
    found = [rc_step(v, circuit, 1.0, 0.1, method=x) for x in ("euler", "midpoint")]
    state = lc_step(LCState.at_rest(v), circuit, 1.0, 0.1)
    return [*found, state.voltage, circuit.solve(v), circuit.currents(v).edges[0]]


def scans():
    u, delta, decay = field(2, 9, 4), field(2, 9, 4, seed=1), field(4, 3, seed=2)
    b, c = field(2, 9, 3, seed=3), field(2, 9, 3, seed=4)
    leaves = [x.requires_grad_() for x in (u, delta, decay, b, c)]
    y = kirchhoff_scan(*leaves, boundary="periodic")
    grads = torch.autograd.grad(y.square().sum(), leaves, create_graph=True)
    return [y, *grads, *torch.autograd.grad(sum(x.sum() for x in grads), leaves)]


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


CASES = {
    "solve": solve,
    "multigrid": lambda: solve(Iterative()),
    "direct": lambda: solve(Direct()),
    "second": lambda: solve(order=2),
    **{f.__name__: f for f in (forward_mode, factorized, several_sources, resistances, graphs)},
    **{f.__name__: f for f in (steps, scans, model, calibrated, bands)},
}


@pytest.mark.parametrize("case", CASES)
def test_nothing_is_made_in_float64(case, monkeypatch):
    torch.manual_seed(0)
    with NoFloat64():
        narrow = CASES[case]()
    monkeypatch.undo()
    torch.manual_seed(0)
    wide = CASES[case]()
    for found, expected in zip(narrow, wide, strict=True):
        assert found.dtype not in WIDE
        scale = float(expected.abs().amax())
        torch.testing.assert_close(
            found, expected.to(found.dtype), rtol=0, atol=1e-3 * scale + 5e-7
        )
