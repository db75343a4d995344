"""Cells in series: the Cascaded Kirchhoff Block's linear reference, and its discrete form."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from chonn_ops.circuit._cell import DiscreteCell, RCCell, check_cells, same_step
from chonn_ops.circuit._checks import Array, finite_array
from chonn_ops.circuit._rational import TransferFunction
from chonn_ops.circuit._series import Series, in_series, paired, with_gain
from chonn_ops.circuit._spice import cascade_netlist

if TYPE_CHECKING:
    from scipy.signal import StateSpace

Operator = tuple[Array, Array]


@dataclass(frozen=True)
class Cascade(Series[RCCell]):
    """RC cells in series, each driven by the output of the one before (eqs. 24 and 25).

    Parameters
    ----------
    cells : iterable of RCCell
        One at least.

    Raises
    ------
    ValueError
        For anything else.

    Examples
    --------
    >>> cascade = Cascade([RCCell(1.0, 1.0), RCCell(1.0, 3.0)])
    >>> left, right = cascade.end_to_end()  # y'' + 4 y' + 3 y = u
    >>> left.tolist(), right.tolist()
    ([1.0, 4.0, 3.0], [1.0])
    """

    cells: tuple[RCCell, ...]

    def __init__(self, cells: Iterable[RCCell]) -> None:
        object.__setattr__(self, "cells", tuple(cells))
        check_cells(self.cells, RCCell)

    @classmethod
    def from_scipy(cls, system: Any) -> Cascade:
        """Of a continuous system of `scipy.signal` with real zeros and poles, a cell a pole.

        Raises
        ------
        ValueError
            For a discrete system, or complex zeros or poles, which no cascade of RC cells has.
        """
        transfer = TransferFunction.from_scipy(system)
        if transfer.step is not None:
            raise ValueError(f"system: expected a continuous one, got a step of {transfer.step}")
        cells = []
        for pole, zero in paired(transfer):
            skip, through = (0.0, 1.0) if zero is None else (1.0, pole - zero)
            cells.append(RCCell.from_rates(-pole, 1.0, through, skip))
        return cls(with_gain(cells, transfer.gain))

    def to_scipy(self) -> StateSpace:
        """`scipy.signal.StateSpace`, whose states are the potentials of the cells."""
        from scipy.signal import StateSpace

        return StateSpace(*self.state_space())

    def state_space(self) -> tuple[Array, Array, Array, Array]:
        """A, B, C, D with the potentials of the n cells as states: (n, n), (n, 1), (1, n),
        (1, 1)."""
        return in_series(
            [(-cell.decay, cell.injection, cell.c_o, cell.d_o) for cell in self.cells], False
        )

    def operators(self) -> list[Operator]:
        """Both sides of the recursion between stages (eq. 27), first stage first: see
        `RCCell.operator`."""
        return [cell.operator() for cell in self.cells]

    def end_to_end(self) -> Operator:
        """Both sides of the end-to-end operator (eq. 28), polynomials in d/dt, highest power
        first: left of y_n, right of u."""
        left, right = (
            functools.reduce(np.polymul, side) for side in zip(*self.operators(), strict=True)
        )
        return left, np.trim_zeros(right, "f")

    @property
    def time_constants(self) -> Array:
        """One a cell, s."""
        return np.array([cell.time_constant for cell in self.cells])

    @property
    def is_dissipative(self) -> bool:
        """Whether every cell is."""
        return all(cell.is_dissipative for cell in self.cells)

    def zoh(self, step: float) -> DiscreteCascade:
        """Every cell under zero-order hold of its own input, as scans compute it.

        The hold is exact for the first cell. Later ones get the output at the end of the interval
        for the whole of it: an error of first order in the step. Exact for the whole cascade is
        ``cascade.to_scipy().to_discrete(step)``.
        """
        return DiscreteCascade(cell.zoh(step) for cell in self.cells)

    def to_netlist(
        self, u: Any = None, step: float | None = None, title: str = "RC cascade"
    ) -> str:
        """SPICE text: a capacitor and resistors a stage, controlled sources in and out of it.

        Parameters
        ----------
        u : array_like, shape (L,), optional
            Input, held for `step` each: a transient from rest, which measures the output y<stage>
            at the end of interval k = 1..L as y<stage>_k. Default: a sweep of the frequency,
            from slow to fast for all stages, which prints modulus and phase of the last output.
        step : float, optional
            > 0, s.
        title : str

        Raises
        ------
        ValueError
            For only one of both, no samples, or a step not above 0.
        """
        return cascade_netlist(self, u, step, title)


@dataclass(frozen=True)
class DiscreteCascade(Series[DiscreteCell]):
    """Discrete cells in series (eqs. 35 and 46).

    Parameters
    ----------
    cells : iterable of DiscreteCell
        One at least, of the same step.

    Raises
    ------
    ValueError
        For anything else.
    """

    cells: tuple[DiscreteCell, ...]

    def __init__(self, cells: Iterable[DiscreteCell]) -> None:
        object.__setattr__(self, "cells", tuple(cells))
        check_cells(self.cells, DiscreteCell)
        same_step(self.cells)

    @property
    def step(self) -> float:
        """Sampling interval."""
        return self.cells[0].step

    @classmethod
    def from_scipy(cls, system: Any) -> DiscreteCascade:
        """Of a discrete system of `scipy.signal` with real zeros and poles, a cell a pole.

        Raises
        ------
        ValueError
            For a continuous system, complex zeros or poles, or more poles at 0 than zeros: a delay,
            which no cell is.
        """
        transfer = TransferFunction.from_scipy(system)
        if transfer.step is None:
            raise ValueError("system: expected a discrete one, got a continuous one")
        cells = []
        for pole, zero in paired(transfer):
            # (z - zero) / (z - pole), or 1 / (z - pole), as skip + through z / (z - pole).
            if pole == 0:
                if zero != 0:
                    raise ValueError("system: expected no pole at 0 without a zero, got a delay")
                skip, through = 1.0, 0.0
            elif zero is None:
                skip, through = -1 / pole, 1 / pole
            else:
                skip, through = zero / pole, 1 - zero / pole
            cells.append(DiscreteCell(pole, 1.0, through, skip, transfer.step))
        return cls(with_gain(cells, transfer.gain))

    def to_scipy(self) -> StateSpace:
        """Discrete `scipy.signal.StateSpace`; its state x_k is the potentials v_{k-1}."""
        from scipy.signal import StateSpace

        stages = [(cell.retention, cell.injection, cell.readout, cell.skip) for cell in self.cells]
        return StateSpace(*in_series(stages, True), dt=self.step)

    def run(self, u: Any) -> Array:
        """Outputs of all n stages for inputs of shape (L,), from rest: (n, L)."""
        outputs, y = [], finite_array("u", u, 1)
        for cell in self.cells:
            _, y = cell.run(y)
            outputs.append(y)
        return np.stack(outputs)

    def to_rc(self) -> Cascade:
        """The RC cells that these are under zero-order hold, of capacitance 1."""
        return Cascade(cell.to_rc() for cell in self.cells)
