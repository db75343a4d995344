"""A cascaded Kirchhoff block beside other blocks that keep the shape of a field.

Contenders, all with a residual connection and as many channels
    order n, MODE   `CKB` of that order; MODE is how the field is scanned
    convolutions    two 3 x 3 convolutions with a group norm: the local block that U-Nets are made
                    of, and the cheapest thing to put in a CKB's place
    Fourier         spectral convolution (12 modes) plus pointwise: the FNO's layer, a global block
    attention       multi-head self-attention over all positions, only for fields small enough
                    (its work grows with the square of their number): the other global block

Columns
    forward_ms      without autograd
    step_ms         of a training step: forward, MSE, backward, Adam
    step_ratio      over that of the convolutions
    peak_MiB        highest resident memory in a step, model and optimizer included, fresh process
    scan_share      of the step, inside the scan operators
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from chonn_lab.benchmarks.harness import (
    Turns,
    add_ratios,
    arguments,
    environment,
    show,
    start,
    write_result,
)
from chonn_lab.benchmarks.training import measure
from chonn_ops import CKB, Scan
from chonn_ops.models.fno import SpectralConv
from chonn_ops.scan import DIRECTIONS

SHAPES = ((8, 20, 128, 128), (8, 256, 16, 16))
SMOKE_SHAPES = ((2, 8, 16, 16),)
ORDERS = (1, 2, 3, 4)
SMOKE_ORDERS = (1, 2)
ATTENTION_POSITIONS = 4096
BASE = "convolutions"
COLUMNS = ("forward_ms", "step_ms", "step_ratio", "peak_bytes", "scan_share")


class Convolutions(nn.Module):
    """x + conv(SiLU(conv(norm(x))))"""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.norm = nn.GroupNorm(1, dim)
        self.first = nn.Conv2d(dim, dim, 3, padding=1)
        self.second = nn.Conv2d(dim, dim, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.second(F.silu(self.first(self.norm(x))))


class Fourier(nn.Module):
    """x + GELU(spectral(x) + pointwise(x))"""

    def __init__(self, dim: int, modes: int) -> None:
        super().__init__()
        self.spectral = SpectralConv(dim, dim, (modes, modes))
        self.pointwise = nn.Conv2d(dim, dim, 1)

    def forward(self, x: Tensor) -> Tensor:
        return x + F.gelu(self.spectral(x) + self.pointwise(x))


class Attention(nn.Module):
    """x + attention(norm(x)) over all positions, 32 channels a head where they divide."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.attention = nn.MultiheadAttention(dim, max(1, dim // 32), batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        tokens = self.norm(x.flatten(2).transpose(1, 2))
        y = self.attention(tokens, tokens, tokens, need_weights=False)[0]
        return x + y.transpose(1, 2).reshape(x.shape)


@dataclasses.dataclass(frozen=True)
class Contender:
    """What to build; a value, so that another process can build it too."""

    name: str
    order: int = 0
    directions: str = ""

    def build(self, dim: int, points: int) -> nn.Module:
        torch.manual_seed(0)
        if self.order:
            block = CKB(dim, 2, cell=Scan(directions=self.directions), order=self.order)
            # Each stage multiplies powers of its input. White noise in 20 channels at the initial
            # weights leaves the range of float32 at order 4; at half of them it does not.
            with torch.no_grad():
                for name, parameter in block.named_parameters():
                    if name.endswith("selective_proj.weight"):
                        parameter *= 0.5
            return block
        if self.name == "Fourier":
            return Fourier(dim, min(12, points // 2))
        return {"convolutions": Convolutions, "attention": Attention}[self.name](dim)


def contenders(shape: tuple[int, ...], orders: tuple[int, ...]) -> list[Contender]:
    found = [
        Contender(f"order {order} {mode}", order, mode) for order in orders for mode in DIRECTIONS
    ]
    found += [Contender(BASE), Contender("Fourier")]
    if shape[2] * shape[3] <= ATTENTION_POSITIONS:
        found.append(Contender("attention"))
    return found


def make(
    contender: Contender, shape: tuple[int, ...]
) -> tuple[nn.Module, tuple[Tensor, ...], Tensor]:
    block = contender.build(shape[1], min(shape[2:]))
    return block, (torch.randn(shape),), torch.randn(shape)


def measure_shape(
    shape: tuple[int, ...], orders: tuple[int, ...], turns: Turns
) -> list[dict[str, Any]]:
    """A row for each contender."""
    found = {contender.name: contender for contender in contenders(shape, orders)}
    makes = {name: functools.partial(make, contender, shape) for name, contender in found.items()}
    rows = measure(makes, turns)
    add_ratios(rows, BASE, ("forward", "step"))
    return [
        {"shape": list(shape), **dataclasses.asdict(found[name]), **row}
        for name, row in rows.items()
    ]


def main(given: list[str] | None = None) -> None:
    options = start(arguments(__doc__, "block"), given)
    shapes, orders = (SMOKE_SHAPES, SMOKE_ORDERS) if options.smoke else (SHAPES, ORDERS)
    # A step is long enough to be timed singly.
    turns = Turns(options.rounds, options.visit_ms, least=1)
    result: dict[str, Any] = {"environment": environment(options), "rows": []}
    for shape in shapes:
        result["rows"] += (rows := measure_shape(shape, orders, turns))
        show(rows, "shape", "name", "parameters", *COLUMNS)
    write_result(options.output, result)


if __name__ == "__main__":
    main()
