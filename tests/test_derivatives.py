"""Which calls run the compiled kernels: docs/circuits.md, "Derivatives"."""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.autograd import forward_ad

import chonn_ops.network.direct.cpu as eliminating
import chonn_ops.network.solve.cpu as iterating
import chonn_ops.scan.cpu as scanning
import chonn_ops.scan.derivatives as in_pytorch
from chonn_ops import Auto, Circuit, Direct, Iterative, kirchhoff_scan

pytestmark = pytest.mark.skipif(scanning.kernel() is None, reason="no compiled kernel")


def scan(u: Tensor) -> Tensor:
    delta, decay = torch.full((2, 6, 3), 0.5), torch.full((3, 2), 0.7)
    b = c = torch.ones(2, 6, 2)
    return kirchhoff_scan(u, delta, decay, b, c).square().sum()


def network(s: Tensor, solver: Any = Auto()) -> Tensor:
    conductance, leak = torch.full((2, 6, 3), 0.5), torch.full((2, 6, 3), 0.2)
    return Circuit((conductance,), leak).solve(s, solver).square().sum()


def gradient(f, x, **options):
    x = x.clone().requires_grad_()
    return x, torch.autograd.grad(f(x), x, **options)[0]


def twice(f, x):
    x, first = gradient(f, x, create_graph=True)
    first.sum().backward()


def dual(f, x):
    with forward_ad.dual_level():
        f(forward_ad.make_dual(x, torch.ones_like(x)))


def scaled(f, x):
    return lambda factor: f(factor * x)


KERNELS, BOTH = {"kernels"}, {"kernels", "PyTorch"}
func, functional = torch.func, torch.autograd.functional
CALLS = {
    "backward": (gradient, KERNELS),
    "create_graph": (twice, BOTH),
    "functional.hvp": (lambda f, x: functional.hvp(f, x, torch.ones_like(x)), BOTH),
    "functional.jvp": (lambda f, x: functional.jvp(f, x, torch.ones_like(x)), BOTH),
    "functional.hessian": (lambda f, x: functional.hessian(scaled(f, x), torch.ones(1)), BOTH),
    "func.grad": (lambda f, x: func.grad(f)(x), KERNELS),
    "func.vjp": (lambda f, x: func.vjp(f, x)[1](torch.tensor(1.0)), KERNELS),
    "func.jacrev": (lambda f, x: func.jacrev(f)(x), KERNELS),
    "func.jvp": (lambda f, x: func.jvp(f, (x,), (x,)), BOTH),
    "func.jacfwd": (lambda f, x: func.jacfwd(scaled(f, x))(torch.ones(1)), BOTH),
    "func.hessian": (lambda f, x: func.hessian(scaled(f, x))(torch.ones(1)), BOTH),
    "nested": (lambda f, x: func.grad(lambda y: func.grad(f)(y).sum())(x), BOTH),
    "vmap(grad)": (lambda f, x: torch.vmap(func.grad(f))(torch.stack([x] * 4)), KERNELS),
    "dual": (dual, BOTH),
    "vmap": (lambda f, x: torch.vmap(f)(torch.stack([x] * 4)), KERNELS),
}


@pytest.fixture
def ran(monkeypatch):
    """Names of what ran, one a call."""
    names: list[str] = []

    def record(module, function, name):
        original = getattr(module, function)

        def recorded(*args, **options):
            names.append(name)
            return original(*args, **options)

        monkeypatch.setattr(module, function, recorded)

    record(scanning, "forward", "kernels")
    record(scanning, "backward", "kernels")
    record(in_pytorch, "scan", "PyTorch")
    record(iterating, "solve", "kernels")
    record(eliminating.Factors, "__init__", "kernels")
    record(eliminating.Factors, "solve", "kernels")
    return names


@pytest.mark.parametrize("call", CALLS)
def test_a_scan_runs_what_the_table_says(call, ran):
    apply, expected = CALLS[call]
    apply(scan, torch.rand(2, 6, 3))
    assert set(ran) == expected
    assert call != "vmap" or len(ran) == 4


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("solver", [Direct(), Iterative()], ids=str)
def test_a_network_runs_the_kernels(call, solver, ran, monkeypatch):
    def refuse(*_args, **_options):
        pytest.fail("a network in PyTorch operations")

    monkeypatch.setattr("chonn_ops.network.solve.torch.solve", refuse)
    CALLS[call][0](lambda s: network(s, solver), torch.rand(2, 6, 3))
    assert set(ran) == KERNELS
    assert call != "vmap" or len(ran) == 1
