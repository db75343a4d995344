"""What `kirchhoff_scan` accepts; every message says what was expected and what came."""

from __future__ import annotations

import torch
from torch import Tensor

DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64)
TERMINATIONS = ("matched", "ring")


def _expect(condition: bool, name: str, expected: object, actual: object) -> None:
    if not condition:
        raise ValueError(f"{name}: expected {expected}, got {actual}")


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
    _expect(termination in TERMINATIONS, "termination", f"one of {TERMINATIONS}", repr(termination))
    _expect(
        termination == "matched" or initial_state is None,
        "initial_state",
        f"None with termination={termination!r}, which sets the state itself",
        "a tensor",
    )
    _expect(u.dim() == 3, "u", "shape (B, L, D)", tuple(u.shape))
    _expect(decay.dim() == 2, "decay", "shape (D, N)", tuple(decay.shape))
    B, L, D = u.shape
    N = decay.shape[1]
    _expect(min(L, D, N) > 0, "sizes", "L, D, N at least 1", f"L={L}, D={D}, N={N}")
    for name, tensor, symbols, shape in (
        ("delta", delta, "(B, L, D)", (B, L, D)),
        ("decay", decay, "(D, N)", (D, N)),
        ("b", b, "(B, L, N)", (B, L, N)),
        ("c", c, "(B, L, N)", (B, L, N)),
        ("d", d, "(D,)", (D,)),
        ("initial_state", initial_state, "(B, D, N)", (B, D, N)),
    ):
        if tensor is not None:
            _expect(
                tuple(tensor.shape) == shape,
                name,
                f"shape {symbols} = {shape}",
                tuple(tensor.shape),
            )
            _expect(tensor.device == u.device, name, f"device {u.device} like u", tensor.device)
            _expect(tensor.dtype in DTYPES, name, f"a dtype of {DTYPES}", tensor.dtype)
    _expect(u.dtype in DTYPES, "u", f"a dtype of {DTYPES}", u.dtype)


def check_decay(decay: Tensor) -> None:
    """Positive decays; CPU only, because reading the answer on a GPU would stall its queue."""
    if decay.device.type == "cpu":
        smallest = decay.min()
        _expect(bool(smallest > 0), "decay", "> 0 everywhere", f"minimum {smallest.item():g}")
