"""Random inputs, the float64 truth, and the distance between the two."""

from __future__ import annotations

import functools
import inspect
import math

import pytest
import torch
from torch import Tensor

from chonn_ops.scan import (
    BOUNDARIES,
    DIRECTIONS,
    available_backends,
    kirchhoff_scan,
    reference,
    scan_field,
)

# "cuda" runs on a GPU or in an emulation, and is held to the same truth by tests of its own.
BACKENDS = tuple(name for name in available_backends() if name != "cuda")
NAMES = ("u", "delta", "decay", "b", "c", "d", "initial_state")
MODES = [
    (directions, boundary)
    for directions in DIRECTIONS
    for boundary in BOUNDARIES
    if directions != "raster" or boundary in ("matched", "periodic")
]

# `make check` takes the backend that users get, and each direction and each boundary once.
FASTEST = next(name for name in ("cpu", "torch", "reference") if name in BACKENDS)
QUICK_MODES = (
    ("raster", "periodic"),
    ("cross", "matched"),
    ("axial", "dirichlet"),
    ("bidirectional", "neumann"),
)
EACH_BACKEND_THOROUGHLY = pytest.mark.parametrize(
    "backend",
    [
        pytest.param(name, marks=() if name == FASTEST else pytest.mark.thorough)
        for name in BACKENDS
    ],
)
EACH_MODE_THOROUGHLY = pytest.mark.parametrize(
    ("directions", "boundary"),
    [
        pytest.param(*mode, marks=() if mode in QUICK_MODES else pytest.mark.thorough)
        for mode in MODES
    ],
)

# RMS of the error over RMS of the truth computed from the same (rounded) inputs. float32 bounds
# hold for sums over a thousand steps; bfloat16 and float16 are the rounding of the results.
TOLERANCE = {
    torch.float64: 1e-12,
    torch.float32: 2e-6,
    torch.float16: 1e-3,
    torch.bfloat16: 6e-3,
}


def within(tolerance: float) -> dict[str, float]:
    """Of `torch.library.opcheck`, where it takes any; old ones have their own."""
    known = inspect.signature(torch.library.opcheck).parameters
    return {name: tolerance for name in ("atol", "rtol") if name in known}


def make_case(
    B: int, L: int, D: int, N: int, dtype: torch.dtype = torch.float32, seed: int = 0
) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, dtype=torch.float64, generator=generator)

    case = {
        "u": normal(B, L, D),
        "delta": torch.nn.functional.softplus(normal(B, L, D)),
        "decay": torch.exp(normal(D, N)),
        "b": normal(B, L, N),
        "c": normal(B, L, N),
        "d": normal(D),
        "initial_state": normal(B, D, N),
    }
    return {name: tensor.to(dtype) for name, tensor in case.items()}


def run(case: dict[str, Tensor], **options: object) -> dict[str, Tensor]:
    """Output, final state and every gradient of a fixed random functional of both."""
    leaves = {name: tensor.detach().requires_grad_() for name, tensor in case.items()}
    y, state = kirchhoff_scan(**leaves, return_state=True, **options)
    return {"y": y, "state": state} | _gradients(leaves, y, state)


def truth(case: dict[str, Tensor], reverse: bool = False) -> dict[str, Tensor]:
    """The same from autograd through the float64 loop."""
    leaves = {name: tensor.double().requires_grad_() for name, tensor in case.items()}
    y, state = reference.forward(**leaves, reverse=reverse)
    return {"y": y, "state": state} | _gradients(leaves, y, state)


def make_field(
    B: int,
    grid: tuple[int, ...],
    D: int,
    N: int,
    dtype: torch.dtype = torch.float32,
    seed: int = 0,
) -> dict[str, Tensor]:
    """`make_case` for `scan_field`: positions on a grid, no initial state."""
    case = make_case(B, math.prod(grid), D, N, dtype, seed)
    del case["initial_state"]
    streams = {name: case[name].unflatten(1, grid) for name in ("u", "delta", "b", "c")}
    return case | streams


def run_field(case: dict[str, Tensor], **options: object) -> dict[str, Tensor]:
    """Output and every gradient of a fixed random functional of it."""
    leaves = {name: tensor.detach().requires_grad_() for name, tensor in case.items()}
    y = scan_field(**leaves, **options)
    return {"y": y} | _field_gradients(leaves, y)


def field_truth(
    case: dict[str, Tensor], directions: str = "raster", boundary: str = "matched"
) -> dict[str, Tensor]:
    """The same from autograd through float64 loops over transposed and flipped copies."""
    leaves = {name: tensor.double().requires_grad_() for name, tensor in case.items()}
    y = _field_by_copies(**leaves, directions=directions, boundary=boundary)
    return {"y": y} | _field_gradients(leaves, y)


@functools.lru_cache(maxsize=1)
def field_and_truth(
    *sizes: object, directions: str, boundary: str = "matched"
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """A field of `make_field` and its truth, once for all backends that are tested in a row."""
    case = make_field(*sizes)
    return case, field_truth(case, directions, boundary)


def _field_by_copies(u, delta, decay, b, c, d=None, *, directions, boundary):
    axes = list(range(1, u.dim() - 1))
    rotations = len(axes) if directions in ("cross", "axial") else 1
    total, count = torch.zeros_like(u), 0
    for k in range(rotations):
        order = [0, *axes[k:], *axes[:k], u.dim() - 1]
        back = sorted(range(u.dim()), key=order.__getitem__)
        ordered = [field.permute(order) for field in (u, delta, b, c)]
        line_axes = ordered[0].shape[-2:-1] if directions == "axial" else ordered[0].shape[1:-1]
        shape = ordered[0].shape
        lines = [field.reshape(-1, line_axes.numel(), field.shape[-1]) for field in ordered]
        end = None
        for flips in ([], [1]) if directions != "raster" else ([],):
            u_l, delta_l, b_l, c_l = (line.flip(flips) for line in lines)
            start = None
            if boundary == "periodic":
                _, once = reference.forward(u_l, delta_l, decay, b_l, c_l)
                start = once / -torch.expm1(-delta_l.sum(1)[..., None] * decay)
            elif flips and boundary != "matched":
                start = end if boundary == "neumann" else -end
            y, end = reference.forward(u_l, delta_l, decay, b_l, c_l, None, start)
            total = total + y.flip(flips).reshape(shape).permute(back)
            count += 1
    return total / count + (0 if d is None else d * u)


def functional_weights(y: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
    """Exact in every dtype, so that both sides differentiate the same functional."""
    generator = torch.Generator().manual_seed(7)
    shapes = (y.shape, state.shape)
    signs = [torch.randint(0, 2, shape, generator=generator) * 2.0 - 1.0 for shape in shapes]
    return signs[0].to(y.dtype), signs[1].to(state.dtype)


def _gradients(leaves: dict[str, Tensor], y: Tensor, state: Tensor) -> dict[str, Tensor]:
    grads = torch.autograd.grad((y, state), list(leaves.values()), functional_weights(y, state))
    return {f"grad_{name}": grad for name, grad in zip(leaves, grads, strict=True)}


def _field_gradients(leaves: dict[str, Tensor], y: Tensor) -> dict[str, Tensor]:
    signs = functional_weights(y, y)[0]
    grads = torch.autograd.grad(y, list(leaves.values()), signs)
    return {f"grad_{name}": grad for name, grad in zip(leaves, grads, strict=True)}


def rms_ratio(actual: Tensor, expected: Tensor) -> float:
    error = (actual.double() - expected.double()).norm().item()
    return error / max(expected.double().norm().item(), 1e-30)


def assert_close(actual: dict[str, Tensor], expected: dict[str, Tensor], tolerance: float) -> None:
    assert actual.keys() == expected.keys()
    for name, tensor in actual.items():
        assert tensor.shape == expected[name].shape, name
        ratio = rms_ratio(tensor, expected[name])
        assert ratio <= tolerance, f"{name}: RMS ratio {ratio:.2e} above {tolerance:.0e}"
