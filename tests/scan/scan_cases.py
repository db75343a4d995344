"""Random inputs, the float64 truth, and the distance between the two."""

from __future__ import annotations

import torch
from torch import Tensor

from chonn_ops.scan import available_backends, kirchhoff_scan, reference

BACKENDS = available_backends()
NAMES = ("u", "delta", "decay", "b", "c", "d", "initial_state")

# RMS of the error over RMS of the truth computed from the same (rounded) inputs. float32 bounds
# hold for sums over a thousand steps; bfloat16 and float16 are the rounding of the results.
TOLERANCE = {
    torch.float64: 1e-12,
    torch.float32: 2e-6,
    torch.float16: 1e-3,
    torch.bfloat16: 6e-3,
}


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


def functional_weights(y: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
    """Exact in every dtype, so that both sides differentiate the same functional."""
    generator = torch.Generator().manual_seed(7)
    shapes = (y.shape, state.shape)
    signs = [torch.randint(0, 2, shape, generator=generator) * 2.0 - 1.0 for shape in shapes]
    return signs[0].to(y.dtype), signs[1].to(state.dtype)


def _gradients(leaves: dict[str, Tensor], y: Tensor, state: Tensor) -> dict[str, Tensor]:
    grads = torch.autograd.grad((y, state), list(leaves.values()), functional_weights(y, state))
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
