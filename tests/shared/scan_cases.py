"""Implementations, directions, random inputs, the float64 truth, and the distance between both."""

import functools
import inspect

import emulated
import pytest
import torch
from torch import Tensor

from chonn_ops.scan import (
    BOUNDARIES,
    DIRECTIONS,
    available_backends,
    cpu,
    kirchhoff_scan,
    reference,
    scan_field,
)

thorough = pytest.mark.thorough
# "cuda" runs on a GPU or in an emulation.
BACKENDS = tuple(name for name in available_backends() if name != "cuda")
ISAS = compiled.isas if (compiled := cpu.kernel()) else ()
# All that compute a scan. A new one is a line here and in `conftest.backend`, and has every test.
IMPLEMENTATIONS = [
    *(pytest.param(f"cpu {isa}", marks=() if isa == ISAS[-1] else thorough) for isa in ISAS),
    *(pytest.param(name, marks=thorough if ISAS else ()) for name in ("torch", "reference")),
    pytest.param(
        "cuda emulated",
        marks=[thorough, pytest.mark.skipif(emulated.COMPILER is None, reason="needs g++")],
    ),
]
EACH_IMPLEMENTATION = pytest.mark.parametrize("backend", IMPLEMENTATIONS, indirect=True)
EACH_BUT_EMULATED = pytest.mark.parametrize("backend", IMPLEMENTATIONS[:-1], indirect=True)
EACH_BACKEND = pytest.mark.parametrize(
    "backend", [pytest.param(x, marks=() if x == BACKENDS[-1] else thorough) for x in BACKENDS]
)
STREAMS = ("u", "delta", "b", "c")
MODES = [
    (directions, boundary)
    for directions in DIRECTIONS
    for boundary in BOUNDARIES
    if directions != "raster" or boundary in ("matched", "periodic")
]
EACH_MODE = pytest.mark.parametrize(("directions", "boundary"), MODES)
# `make check` takes each direction and each boundary once.
QUICK_MODES = ("raster", "periodic"), ("cross", "matched")
QUICK_MODES += ("axial", "dirichlet"), ("bidirectional", "neumann")

# RMS of the error over RMS of the truth computed from the same (rounded) inputs. float32 bounds
# hold for sums over a thousand steps; bfloat16 and float16 are the rounding of the results.
TOLERANCE = {torch.float64: 1e-12, torch.float32: 2e-6, torch.float16: 1e-3, torch.bfloat16: 6e-3}


def within(tolerance: float) -> dict[str, float]:
    """Tolerances for `torch.library.opcheck`, where it takes any; old ones have their own."""
    known = inspect.signature(torch.library.opcheck).parameters
    return {name: tolerance for name in ("atol", "rtol") if name in known}


def make_case(
    B: int,
    L: int | tuple[int, ...],
    D: int,
    N: int,
    dtype: torch.dtype = torch.float32,
    seed: int = 0,
) -> dict[str, Tensor]:
    """Arguments of a line of L steps, or of a field of grid L, which has no initial state."""
    generator = torch.Generator().manual_seed(seed)
    grid = (L,) if isinstance(L, int) else L

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, dtype=torch.float64, generator=generator)

    case = {
        "u": normal(B, *grid, D),
        "delta": torch.nn.functional.softplus(normal(B, *grid, D)),
        "decay": torch.exp(normal(D, N)),
        "b": normal(B, *grid, N),
        "c": normal(B, *grid, N),
        "d": normal(D),
    }
    if isinstance(L, int):
        case["initial_state"] = normal(B, D, N)
    return {name: tensor.to(dtype) for name, tensor in case.items()}


def scan(case: dict[str, Tensor], **options: object) -> dict[str, Tensor]:
    """Output of a field, which has `directions`, or output and final state of a line."""
    if "directions" in options:
        return {"y": scan_field(**case, **options)}
    y, state = kirchhoff_scan(**case, return_state=True, **options)
    return {"y": y, "state": state}


def run(case: dict[str, Tensor], **options: object) -> dict[str, Tensor]:
    """What `scan` returns, and every gradient of a fixed random functional of it."""
    leaves = {name: tensor.detach().requires_grad_() for name, tensor in case.items()}
    return with_gradients(leaves, scan(leaves, **options))


def truth(case: dict[str, Tensor], **options: object) -> dict[str, Tensor]:
    """The same by float64 loops and autograd, of fields over transposed and flipped copies."""
    leaves = {name: tensor.double().requires_grad_() for name, tensor in case.items()}
    if "directions" in options:
        return with_gradients(leaves, {"y": _field_by_copies(**leaves, **options)})
    y, state = reference.forward(**leaves, **options)
    return with_gradients(leaves, {"y": y, "state": state})


@functools.lru_cache(maxsize=1)
def case_and_truth(
    *sizes: object, **options: object
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """A case and its truth, once for all implementations that are tested in a row."""
    case = make_case(*sizes)
    return case, truth(case, **options)


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


def functional_weights(*outputs: Tensor) -> list[Tensor]:
    """Signs, exact in every dtype, so that both sides differentiate the same functional."""
    generator = torch.Generator().manual_seed(7)
    draw = (torch.randint(0, 2, x.shape, generator=generator) * 2.0 - 1.0 for x in outputs)
    return [signs.to(x.dtype) for signs, x in zip(draw, outputs, strict=True)]


def with_gradients(leaves: dict[str, Tensor], outputs: dict[str, Tensor]) -> dict[str, Tensor]:
    values = list(outputs.values())
    grads = torch.autograd.grad(values, list(leaves.values()), functional_weights(*values))
    return outputs | {f"grad_{name}": grad for name, grad in zip(leaves, grads, strict=True)}


def rms_ratio(actual: Tensor, expected: Tensor) -> float:
    error = (actual.double() - expected.double()).norm().item()
    return error / max(expected.double().norm().item(), 1e-30)


def assert_close(actual: dict[str, Tensor], expected: dict[str, Tensor], tolerance: float) -> None:
    assert actual.keys() == expected.keys()
    for name, tensor in actual.items():
        assert tensor.shape == expected[name].shape, name
        ratio = rms_ratio(tensor, expected[name])
        assert ratio <= tolerance, f"{name}: RMS ratio {ratio:.2e} above {tolerance:.0e}"
