"""Systems one after the other: products, state spaces, and pairs of zeros and poles."""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import Any

import numpy as np

from chonn_ops.circuit._cell import RCCell
from chonn_ops.circuit._checks import Array
from chonn_ops.circuit._rational import TransferFunction


def products(transfers: list[TransferFunction]) -> list[TransferFunction]:
    found = transfers[:1]
    for transfer in transfers[1:]:
        found.append(found[-1] * transfer)
    return found


def aggregate(transfers: list[TransferFunction]) -> TransferFunction:
    """H_1 + H_1 H_2 + ... as H_1 (1 + H_2 (1 + ...)), so that every pole is there once."""
    one = TransferFunction((), (), 1.0, transfers[0].step)
    return functools.reduce(lambda rest, h: h * (one + rest), transfers[-2::-1], transfers[-1])


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
