"""Random networks, the float64 truth, and how far a result is from it."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
import torch
from torch import Tensor

from chonn_ops import kirchhoff_network
from chonn_ops.network import available_backends, reference

# Triton runs on CUDA or in its interpreter, and is held to the same truth by tests of its own.
BACKENDS = tuple(name for name in available_backends() if name != "triton")
FASTEST = next(name for name in ("cpu", "torch", "reference") if name in BACKENDS)
# `make check` takes the one that users get.
EACH_BACKEND_THOROUGHLY = pytest.mark.parametrize(
    "backend",
    [
        pytest.param(name, marks=() if name == FASTEST else pytest.mark.thorough)
        for name in BACKENDS
    ],
)

Network = tuple[Tensor, tuple[Tensor, ...], Tensor]


def within(tolerance: float) -> dict[str, float]:
    """Of `torch.library.opcheck`, where it takes any; old ones have their own."""
    known = inspect.signature(torch.library.opcheck).parameters
    return {name: tolerance for name in ("atol", "rtol") if name in known}


def make_network(
    grid: tuple[int, ...],
    *,
    B: int = 2,
    C: int = 3,
    contrast: float = 100.0,
    dtype: torch.dtype = torch.float64,
    seed: int = 0,
) -> Network:
    """Source, conductances spread over `contrast` and leaks of 0.1 to 1."""
    generator = torch.Generator().manual_seed(seed)

    def uniform() -> Tensor:
        return torch.rand(B, *grid, C, dtype=torch.float64, generator=generator)

    source = torch.randn(B, *grid, C, dtype=torch.float64, generator=generator)
    conductance = tuple((contrast ** (uniform() - 0.5)).to(dtype) for _ in grid)
    return source.to(dtype), conductance, (0.1 + 0.9 * uniform()).to(dtype)


def net_current(
    v: Tensor, conductance: tuple[Tensor, ...], leak: Tensor, periodic: tuple[bool, ...]
) -> Tensor:
    """What leaves each node through edges and leak, written as Kirchhoff and Ohm did, in float64.

    Node by node over each axis, without the helpers of the library.
    """
    v, leak = v.double(), leak.double()
    out = leak * v
    for axis, (g, wraps) in enumerate(zip(conductance, periodic, strict=True)):
        dim, n = axis + 1, v.shape[axis + 1]
        for p in range(n if wraps and n > 1 else n - 1):
            q = (p + 1) % n
            current = g.double().select(dim, p) * (v.select(dim, p) - v.select(dim, q))
            out.select(dim, p).add_(current)
            out.select(dim, q).sub_(current)
    return out


def relative_residual(
    v: Tensor,
    source: Tensor,
    conductance: tuple[Tensor, ...],
    leak: Tensor,
    periodic: tuple[bool, ...],
) -> Tensor:
    """(B, C)."""
    left = source.double() - net_current(v, conductance, leak, periodic)
    return left.flatten(1, -2).norm(dim=1) / source.double().flatten(1, -2).norm(dim=1)


def rounding_floor(
    source: Tensor, conductance: tuple[Tensor, ...], leak: Tensor, periodic: tuple[bool, ...]
) -> Tensor:
    """(B, C): the residual of the exact potentials rounded to float32."""
    exact = reference.solve(source, conductance, leak, periodic)[0]
    return relative_residual(exact.float(), source, conductance, leak, periodic)


def run(source: Tensor, conductance: Any, leak: Tensor, **options: Any) -> dict[str, Tensor]:
    """Potentials and every gradient of a fixed functional of them."""
    leaves = [x.detach().requires_grad_() for x in (source, *conductance, leak)]
    v = kirchhoff_network(leaves[0], tuple(leaves[1:-1]), leaves[-1], **options)
    generator = torch.Generator().manual_seed(7)
    weight = torch.randint(0, 2, v.shape, generator=generator).to(v.dtype) * 2 - 1
    grads = torch.autograd.grad(v, leaves, weight)
    names = ("source", *(f"g{axis}" for axis in range(len(conductance))), "leak")
    named = {f"grad_{name}": grad for name, grad in zip(names, grads, strict=True)}
    return {"v": v.detach(), "weight": weight} | named


def truth(source: Tensor, conductance: Any, leak: Tensor, **options: Any) -> dict[str, Tensor]:
    """The same by the reference in float64."""
    wide = [x.double() for x in conductance]
    return run(source.double(), wide, leak.double(), **options, backend="reference")


def assert_equal(actual: dict[str, Tensor], expected: dict[str, Tensor], tolerance: float) -> None:
    assert actual.keys() == expected.keys()
    for name, tensor in actual.items():
        error = (tensor.double() - expected[name]).norm() / expected[name].norm().clamp_min(1e-30)
        assert tensor.shape == expected[name].shape, name
        assert error <= tolerance, f"{name}: {error:.2e} above {tolerance:.0e}"
