"""What `kirchhoff_scan` accepts; every message says what was expected and what came."""

from __future__ import annotations

import torch
from torch import Tensor

DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64)
TERMINATIONS = ("matched", "ring")


def _error(name: str, expected: object, actual: object) -> ValueError:
    return ValueError(f"{name}: expected {expected}, got {actual}")


def check_arguments(
    u: Tensor,
    delta: Tensor,
    decay: Tensor,
    b: Tensor,
    c: Tensor,
    d: Tensor | None,
    initial_state: Tensor | None,
    termination: str,
) -> None:
    """Shapes, dtypes, devices and names: nothing here reads a tensor's values."""
    if termination not in TERMINATIONS:
        raise _error("termination", f"one of {TERMINATIONS}", repr(termination))
    if termination == "ring" and initial_state is not None:
        raise _error("initial_state", "None with termination='ring', which sets it", "a tensor")
    if u.dim() != 3:
        raise _error("u", "shape (B, L, D)", tuple(u.shape))
    if decay.dim() != 2:
        raise _error("decay", "shape (D, N)", tuple(decay.shape))
    B, L, D = u.shape
    N = decay.shape[1]
    if L == 0 or D == 0 or N == 0:
        raise _error("u and decay", "L, D and N of at least 1", f"L={L}, D={D}, N={N}")
    for name, tensor, symbols, shape in (
        ("u", u, "(B, L, D)", (B, L, D)),
        ("delta", delta, "(B, L, D)", (B, L, D)),
        ("decay", decay, "(D, N)", (D, N)),
        ("b", b, "(B, L, N)", (B, L, N)),
        ("c", c, "(B, L, N)", (B, L, N)),
        ("d", d, "(D,)", (D,)),
        ("initial_state", initial_state, "(B, D, N)", (B, D, N)),
    ):
        if tensor is None:
            continue
        if tensor.shape != shape:
            raise _error(name, f"shape {symbols} = {shape}", tuple(tensor.shape))
        if tensor.device != u.device:
            raise _error(name, f"device {u.device}, where u is", tensor.device)
        if tensor.dtype not in DTYPES:
            raise _error(name, f"a dtype of {DTYPES}", tensor.dtype)


def check_decay(decay: Tensor) -> None:
    """Positive decays; CPU only, because reading the answer on a GPU would stall its queue."""
    if decay.device.type == "cpu":
        smallest = decay.min().item()
        if not smallest > 0:
            raise _error("decay", "> 0 everywhere", f"minimum {smallest:g}")
