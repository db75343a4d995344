"""Systems one after the other: transfer functions, state spaces, and pairs of zeros and poles."""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import Any, Generic, TypeVar

import numpy as np

from chonn_ops.circuit._cell import DiscreteCell, RCCell
from chonn_ops.circuit._checks import Array
from chonn_ops.circuit._rational import TransferFunction

CellT = TypeVar("CellT", RCCell, DiscreteCell)


class Series(Generic[CellT]):
    """Cells in series, each driven by the output of the one before."""

    cells: tuple[CellT, ...]

    def transfers(self) -> list[TransferFunction]:
        """From u to the output of each stage."""
        found = [self.cells[0].transfer()]
        for cell in self.cells[1:]:
            found.append(found[-1] * cell.transfer())
        return found

    def transfer(self) -> TransferFunction:
        """From u to the last output (in discrete time eq. 46, and eq. 47 where no cell has a
        skip)."""
        return self.transfers()[-1]

    def aggregate(self) -> TransferFunction:
        """From u to the sum of all stage outputs (eq. 36).

        H_1 + H_1 H_2 + ... as H_1 (1 + H_2 (1 + ...)), so that every pole is there once.
        """
        transfers = [cell.transfer() for cell in self.cells]
        one = TransferFunction((), (), 1.0, transfers[0].step)
        return functools.reduce(lambda rest, h: h * (one + rest), transfers[-2::-1], transfers[-1])

    @property
    def is_stable(self) -> bool:
        """Whether every potential decays without input."""
        return all(cell.is_stable for cell in self.cells)

    @property
    def is_passive(self) -> bool:
        """Whether the way from u to the last output is positive real, which a cascade of such cells
        need not be: every stage turns the phase further."""
        return self.transfer().is_passive


def in_series(
    stages: list[tuple[float, float, float, float]], updated: bool
) -> tuple[Array, Array, Array, Array]:
    """State space of x_l' = a x_l + b y_{l-1}, y_l = c x_l + d y_{l-1}; the output reads the state
    after the update if `updated`."""
    n = len(stages)
    A, B = np.zeros((n, n)), np.zeros((n, 1))
    row, direct = np.zeros(n), 1.0
    for l, (a, b, c, d) in enumerate(stages):  # noqa: E741
        A[l], B[l] = b * row, b * direct
        A[l, l] += a
        state, at_once = (A[l], B[l, 0]) if updated else (np.eye(n)[l], 0.0)
        row, direct = c * state + d * row, c * at_once + d * direct
    return A, B, row[None], np.array([[direct]])


def paired(transfer: TransferFunction) -> list[tuple[float, float | None]]:
    """Real poles with the zero of each, None where there is none left; ValueError if complex."""
    poles, zeros = list(transfer.poles), list(transfer.zeros)
    for name, values in (("poles", poles), ("zeros", zeros)):
        if any(abs(value.imag) > 1e-9 * abs(value) for value in values):
            raise ValueError(
                f"{name}: expected real ones, as RC cells in series have, got {values}"
            )
    if not poles:
        raise ValueError("system: expected one pole at least, got none")
    # Sorted, so that neighbours pair and stage gains stay near 1.
    low = sorted((pole.real for pole in poles), key=abs)
    rest = sorted((zero.real for zero in zeros), key=abs)
    return [(pole, rest[i] if i < len(rest) else None) for i, pole in enumerate(low)]


def with_gain(cells: list[Any], gain: float) -> list[Any]:
    """The gain goes into what the last cell reads out."""
    last = cells[-1]
    names = ("c_o", "d_o") if isinstance(last, RCCell) else ("readout", "skip")
    changed = {name: gain * getattr(last, name) for name in names}
    return [*cells[:-1], replace(last, **changed)]
