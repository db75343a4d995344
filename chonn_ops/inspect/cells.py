"""Kirchhoff Neural Cells with fixed coefficients, and cascades, in continuous and discrete time."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np

from chonn_ops.inspect._checks import Array, check_finite, check_positive, finite_array
from chonn_ops.inspect._optional import import_optional
from chonn_ops.inspect.spice import deck, held, number, resistor, transient
from chonn_ops.inspect.transfer import TransferFunction

if TYPE_CHECKING:
    from scipy.signal import StateSpace

Operator = tuple[Array, Array]


@dataclass(frozen=True)
class BranchCurrents:
    """Currents at the cell's node: `injected` flows in, the other three flow out."""

    capacitor: Any
    leak: Any
    coupling: Any
    injected: Any

    @property
    def excess(self) -> Any:
        """Residual of Kirchhoff's current law at the node."""
        return self.injected - self.capacitor - self.leak - self.coupling


@dataclass(frozen=True)
class RCCell:
    r"""One RC stage: :math:`C \dot v = -(G_{leak} + G_p) v + B_p u`, :math:`y = c_o v + d_o u`.

    Parameters
    ----------
    C : float
        Capacitance > 0, farad.
    G_leak, G_p : float
        Conductances of leak and coupling, siemens; negative ones are active elements.
    B_p : float
        Injection: current for a unit of input, siemens.
    c_o, d_o : float
        Readout of the potential and of the input.

    Raises
    ------
    ValueError
        For numbers that are not finite, or C <= 0.

    References
    ----------
    The CHONN paper, Methods, eqs. 15 to 26 (docs/theory.md).

    Examples
    --------
    >>> cell = RCCell(C=2.0, G_leak=0.5, G_p=0.5, B_p=1.0)
    >>> cell.decay, cell.time_constant
    (0.5, 2.0)
    """

    C: float
    G_leak: float
    G_p: float = 0.0
    B_p: float = 1.0
    c_o: float = 1.0
    d_o: float = 0.0

    def __post_init__(self) -> None:
        check_positive(C=self.C)
        check_finite(G_leak=self.G_leak, G_p=self.G_p, B_p=self.B_p, c_o=self.c_o, d_o=self.d_o)

    @classmethod
    def from_rates(
        cls,
        decay: float,
        injection: float,
        c_o: float = 1.0,
        d_o: float = 0.0,
        *,
        C: float = 1.0,
        G_p: float = 0.0,
    ) -> RCCell:
        """The cell with this decay rate and injection. The rates do not determine C and G_p."""
        return cls(C, decay * C - G_p, G_p, injection * C, c_o, d_o)

    @property
    def conductance(self) -> float:
        """G_leak + G_p, the paper's a."""
        return self.G_leak + self.G_p

    @property
    def decay(self) -> float:
        """(G_leak + G_p) / C, the paper's alpha, 1 / s."""
        return self.conductance / self.C

    @property
    def injection(self) -> float:
        """B_p / C, the paper's beta, 1 / s."""
        return self.B_p / self.C

    @property
    def time_constant(self) -> float:
        """1 / decay; infinite where the potential does not decay."""
        return 1 / self.decay if self.decay > 0 else math.inf

    @property
    def is_stable(self) -> bool:
        """Whether the potential decays without input."""
        return self.decay > 0

    @property
    def is_dissipative(self) -> bool:
        """Whether no conductance is negative and at least one is positive. The stored energy
        C v^2 / 2 then falls at the rate `dissipated_power`, for any injection."""
        return min(self.G_leak, self.G_p) >= 0 and self.conductance > 0

    @property
    def is_passive(self) -> bool:
        """Whether the transfer function from u to y is positive real, see `TransferFunction`."""
        return self.transfer().is_passive

    def currents(self, v: Any, dv_dt: Any, u: Any) -> BranchCurrents:
        """Branch currents at potential v, its slope and input u: eqs. 15 and 16, ampere."""
        return BranchCurrents(self.C * dv_dt, self.G_leak * v, self.G_p * v, self.B_p * u)

    def slope(self, v: Any, u: Any) -> Any:
        """dv/dt at potential v and input u: eqs. 17 and 18."""
        return -self.decay * v + self.injection * u

    def readout(self, v: Any, u: Any) -> Any:
        """Output at potential v and input u: eqs. 22 and 23."""
        return self.c_o * v + self.d_o * u

    def energy(self, v: Any) -> Any:
        """Energy in the capacitor, joule."""
        return 0.5 * self.C * v**2

    def dissipated_power(self, v: Any) -> Any:
        """Power dissipated by the conductances, watt."""
        return self.conductance * v**2

    def zoh(self, step: float) -> DiscreteCell:
        """The exact discrete cell for inputs held over each interval `step`: eqs. 19 to 21.

        Raises
        ------
        ValueError
            For a step not above 0.
        """
        check_positive(step=step)
        z = self.decay * step
        weight = step * (-math.expm1(-z) / z if z else 1.0)
        return DiscreteCell(math.exp(-z), self.injection * weight, self.c_o, self.d_o, step)

    def run(self, u: Any, steps: Any, v: float = 0.0) -> tuple[Array, Array]:
        """Potential and output after each interval, exact for inputs held over it: eq. 20.

        Parameters
        ----------
        u : array_like, shape (L,)
        steps : array_like, shape (L,)
            Lengths of the intervals > 0.
        v : float
            Potential before the first interval.
        """
        u, steps = finite_array("u", u, 1), finite_array("steps", steps, 1)
        if u.shape != steps.shape:
            raise ValueError(f"steps: expected shape {u.shape}, as u, got {steps.shape}")
        states = np.empty_like(u)
        for k, (u_k, step) in enumerate(zip(u, steps, strict=True)):
            cell = self.zoh(float(step))
            v = states[k] = cell.retention * v + cell.injection * u_k
        return states, self.readout(states, u)

    def operator(self) -> tuple[Array, Array]:
        """Both sides of eq. 26, (C d/dt + a) y = (d_o C d/dt + d_o a + c_o b) u, as polynomials in
        d/dt, highest power first."""
        a, d = self.conductance, self.d_o
        return np.array([self.C, a]), np.array([d * self.C, d * a + self.c_o * self.B_p])

    def transfer(self) -> TransferFunction:
        """H(s) = d_o + c_o B_p / (C s + G_leak + G_p)."""
        left, right = self.operator()
        return TransferFunction.from_polynomials(right, left)


@dataclass(frozen=True)
class DiscreteCell:
    """One stage in discrete time: v_k = retention v_{k-1} + injection u_k, y_k = readout v_k +
    skip u_k (eqs. 21, 22 and 44).

    Sample k is at the end of the interval over which u_k is held. In `scipy.signal.cont2discrete`
    it is at the beginning, so the part of y through the potential comes one sample later there.

    Parameters
    ----------
    retention, injection, readout, skip : float
    step : float
        Sampling interval > 0.

    Raises
    ------
    ValueError
        For numbers that are not finite, or a step not above 0.
    """

    retention: float
    injection: float
    readout: float = 1.0
    skip: float = 0.0
    step: float = 1.0

    def __post_init__(self) -> None:
        check_finite(
            retention=self.retention,
            injection=self.injection,
            readout=self.readout,
            skip=self.skip,
        )
        check_positive(step=self.step)

    @property
    def is_stable(self) -> bool:
        """Whether the potential decays without input: ``|retention| < 1``."""
        return abs(self.retention) < 1

    @property
    def is_passive(self) -> bool:
        """Whether the transfer function from u to y is positive real, see `TransferFunction`."""
        return self.transfer().is_passive

    def to_rc(self, *, C: float = 1.0, G_p: float = 0.0) -> RCCell:
        """The RC cell whose zero-order hold is this cell; C and G_p are free.

        Raises
        ------
        ValueError
            For a retention <= 0, which no RC cell has.
        """
        if not self.retention > 0:
            raise ValueError(
                f"retention: expected a number > 0, exp(-decay step), got {self.retention}"
            )
        z = -math.log(self.retention)
        weight = self.step * (-math.expm1(-z) / z if z else 1.0)
        return RCCell.from_rates(
            z / self.step, self.injection / weight, self.readout, self.skip, C=C, G_p=G_p
        )

    def run(self, u: Any, v: float = 0.0) -> tuple[Array, Array]:
        """Potentials and outputs for inputs of shape (L,), from potential v."""
        u = finite_array("u", u, 1)
        states = np.empty_like(u)
        for k, u_k in enumerate(u):
            v = states[k] = self.retention * v + self.injection * u_k
        return states, self.readout * states + self.skip * u

    def transfer(self) -> TransferFunction:
        """H(z) = skip + readout injection / (1 - retention / z): eq. 45."""
        through = self.readout * self.injection
        top = (self.skip + through, -self.skip * self.retention)
        return TransferFunction.from_polynomials(top, (1.0, -self.retention), self.step)


CellT = TypeVar("CellT", RCCell, DiscreteCell)


class _Series(Generic[CellT]):
    """Cells in series, each driven by the output of the one before."""

    cells: tuple[CellT, ...]

    def transfers(self) -> list[TransferFunction]:
        """Transfer functions from u to the output of each stage."""
        found = [self.cells[0].transfer()]
        for cell in self.cells[1:]:
            found.append(found[-1] * cell.transfer())
        return found

    def transfer(self) -> TransferFunction:
        """Transfer function from u to the last output: eq. 46 in discrete time, eq. 47 without
        skips."""
        return self.transfers()[-1]

    def aggregate(self) -> TransferFunction:
        """Transfer function from u to the sum of all stage outputs (eq. 36).

        H_1 + H_1 H_2 + ... is computed as H_1 (1 + H_2 (1 + ...)), so that every pole appears once.
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
        """Whether the transfer function from u to the last output is positive real. A cascade of
        passive cells need not be: every stage adds to the phase."""
        return self.transfer().is_passive


@dataclass(frozen=True)
class Cascade(_Series[RCCell]):
    """RC cells in series, each driven by the output of the one before (eqs. 24 and 25).

    Parameters
    ----------
    cells : iterable of RCCell
        At least one.

    Raises
    ------
    ValueError
        For no cells, or objects of another kind.

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
        _check_cells(self.cells, RCCell)

    @classmethod
    def from_scipy(cls, system: Any) -> Cascade:
        """From a continuous system of `scipy.signal` with real zeros and poles, one cell per pole.

        Raises
        ------
        ValueError
            For a discrete system, or one with complex zeros or poles: no cascade of RC cells has
            these.
        """
        transfer = TransferFunction.from_scipy(system)
        if transfer.step is not None:
            raise ValueError(f"system: expected continuous time, got a step of {transfer.step}")
        cells = []
        for pole, zero in _paired(transfer):
            skip, through = (0.0, 1.0) if zero is None else (1.0, pole - zero)
            cells.append(RCCell.from_rates(-pole, 1.0, through, skip))
        return cls(_with_gain(cells, transfer.gain))

    def to_scipy(self) -> StateSpace:
        """`scipy.signal.StateSpace`, whose states are the potentials of the cells."""
        return import_optional("scipy.signal", "circuit").StateSpace(*self.state_space())

    def state_space(self) -> tuple[Array, Array, Array, Array]:
        """A, B, C, D with the potentials of the n cells as states: (n, n), (n, 1), (1, n),
        (1, 1)."""
        return _in_series(
            [(-cell.decay, cell.injection, cell.c_o, cell.d_o) for cell in self.cells], False
        )

    def operators(self) -> list[Operator]:
        """Both sides of the recursion between stages (eq. 27), one `RCCell.operator` per stage."""
        return [cell.operator() for cell in self.cells]

    def end_to_end(self) -> Operator:
        """Both sides of the end-to-end operator (eq. 28), left(d/dt) y_n = right(d/dt) u:
        polynomials, highest power first."""
        left, right = (
            functools.reduce(np.polymul, side) for side in zip(*self.operators(), strict=True)
        )
        return left, np.trim_zeros(right, "f")

    @property
    def time_constants(self) -> Array:
        """One per cell, s."""
        return np.array([cell.time_constant for cell in self.cells])

    @property
    def is_dissipative(self) -> bool:
        """Whether every cell is."""
        return all(cell.is_dissipative for cell in self.cells)

    def zoh(self, step: float) -> DiscreteCascade:
        """Every cell under a zero-order hold of its own input, as scans compute it.

        The hold is exact for the first cell. Later cells receive the output at the end of an
        interval for the whole interval, an error of first order in the step.
        ``cascade.to_scipy().to_discrete(step)`` is exact for the whole cascade.
        """
        return DiscreteCascade(cell.zoh(step) for cell in self.cells)

    def to_netlist(
        self, u: Any = None, step: float | None = None, title: str = "RC cascade"
    ) -> str:
        """SPICE text: one capacitor, resistors and controlled sources per stage.

        Parameters
        ----------
        u : array_like, shape (L,), optional
            Input, each sample held for `step`. The netlist then runs a transient from rest and
            measures the output y<stage> at the end of interval k = 1..L as y<stage>_k. Default: a
            frequency sweep over all time constants that prints modulus and phase of the last
            output.
        step : float, optional
            > 0, s.
        title : str

        Raises
        ------
        ValueError
            For only one of `u` and `step`, no samples, or a step <= 0.
        """
        if (u is None) != (step is None):
            raise ValueError("u, step: expected both or neither, got one of them")
        lines: list[str] = []
        count = len(self.cells)
        outputs = [f"y{i}" for i in range(1, count + 1)]
        if u is None or step is None:
            rates = [abs(cell.decay) for cell in self.cells if cell.decay] or [1.0]
            low, high = 0.01 * min(rates) / (2 * np.pi), 100 * max(rates) / (2 * np.pi)
            drive = "DC 1 AC 1"
            analysis = [
                f".ac dec 20 {number(low)} {number(high)}",
                f".print ac vm({outputs[-1]}) vp({outputs[-1]})",
            ]
        else:
            samples = finite_array("u", u, 1)
            check_positive(step=step)
            if not samples.size:
                raise ValueError("u: expected at least one sample, got none")
            times = step * np.arange(len(samples) + 1)
            drive, analysis = held(times, samples), transient(times, outputs)
        lines.append(f"Vu u 0 {drive}")
        for i, cell in enumerate(self.cells, 1):
            before, v, y = f"y{i - 1}" if i > 1 else "u", f"v{i}", f"y{i}"
            lines += [
                f"* stage {i}",
                f"C{i} {v} 0 {number(cell.C)} IC=0",
                *resistor(f"leak{i}", v, "0", cell.G_leak),
                *resistor(f"couple{i}", v, "0", cell.G_p),
                f"G{i} 0 {v} {before} 0 {number(cell.B_p)}",
                f"Ev{i} {y} skip{i} {v} 0 {number(cell.c_o)}",
                f"Eu{i} skip{i} 0 {before} 0 {number(cell.d_o)}",
            ]
        return deck(title, lines + analysis)


@dataclass(frozen=True)
class DiscreteCascade(_Series[DiscreteCell]):
    """Discrete cells in series (eqs. 35 and 46).

    Parameters
    ----------
    cells : iterable of DiscreteCell
        At least one, all with the same step.

    Raises
    ------
    ValueError
        For no cells, objects of another kind, or different steps.
    """

    cells: tuple[DiscreteCell, ...]

    def __init__(self, cells: Iterable[DiscreteCell]) -> None:
        object.__setattr__(self, "cells", tuple(cells))
        _check_cells(self.cells, DiscreteCell)
        _same_step(self.cells)

    @property
    def step(self) -> float:
        """Sampling interval."""
        return self.cells[0].step

    @classmethod
    def from_scipy(cls, system: Any) -> DiscreteCascade:
        """From a discrete system of `scipy.signal` with real zeros and poles, one cell per pole.

        Raises
        ------
        ValueError
            For a continuous system, complex zeros or poles, or more poles than zeros at 0: that is
            a delay, and no cell is one.
        """
        transfer = TransferFunction.from_scipy(system)
        if transfer.step is None:
            raise ValueError("system: expected discrete time, got continuous time")
        cells = []
        for pole, zero in _paired(transfer):
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
        return cls(_with_gain(cells, transfer.gain))

    def to_scipy(self) -> StateSpace:
        """Discrete `scipy.signal.StateSpace`; its state x_k holds the potentials v_{k-1}."""
        from scipy.signal import StateSpace

        stages = [(cell.retention, cell.injection, cell.readout, cell.skip) for cell in self.cells]
        return StateSpace(*_in_series(stages, True), dt=self.step)

    def run(self, u: Any) -> Array:
        """Outputs of all n stages, (n, L), for inputs of shape (L,) and a start at rest."""
        outputs, y = [], finite_array("u", u, 1)
        for cell in self.cells:
            _, y = cell.run(y)
            outputs.append(y)
        return np.stack(outputs)

    def to_rc(self) -> Cascade:
        """The RC cells, of capacitance 1, whose zero-order holds these cells are."""
        return Cascade(cell.to_rc() for cell in self.cells)


def _same_step(cells: Sequence[DiscreteCell]) -> float:
    """The sampling interval that all cells share; ValueError if they differ."""
    steps = {cell.step for cell in cells}
    if len(steps) != 1:
        raise ValueError(f"step: expected the same of all cells, got {sorted(steps)}")
    return steps.pop()


def _check_cells(cells: Sequence[Any], kind: type) -> None:
    """ValueError unless there is at least one cell and all cells are of this kind."""
    if not cells or not all(isinstance(cell, kind) for cell in cells):
        raise ValueError(f"cells: expected at least one {kind.__name__}, got {cells!r}")


def _in_series(
    stages: list[tuple[float, float, float, float]], updated: bool
) -> tuple[Array, Array, Array, Array]:
    """State space of x_l' = a x_l + b y_{l-1}, y_l = c x_l + d y_{l-1}. With `updated` the output
    reads the state after its update."""
    n = len(stages)
    A, B = np.zeros((n, n)), np.zeros((n, 1))
    row, direct = np.zeros(n), 1.0
    for l, (a, b, c, d) in enumerate(stages):  # noqa: E741
        A[l], B[l] = b * row, b * direct
        A[l, l] += a
        state, at_once = (A[l], B[l, 0]) if updated else (np.eye(n)[l], 0.0)
        row, direct = c * state + d * row, c * at_once + d * direct
    return A, B, row[None], np.array([[direct]])


def _paired(transfer: TransferFunction) -> list[tuple[float, float | None]]:
    """Each real pole with a zero, or None where no zero is left; ValueError for complex ones."""
    poles, zeros = list(transfer.poles), list(transfer.zeros)
    for name, values in (("poles", poles), ("zeros", zeros)):
        if any(abs(value.imag) > 1e-9 * abs(value) for value in values):
            raise ValueError(
                f"{name}: expected real {name}, as RC cells in series have, got {values}"
            )
    if not poles:
        raise ValueError("system: expected at least one pole, got none")
    # Sorting pairs neighbours, which keeps the gains of the stages near 1.
    low = sorted((pole.real for pole in poles), key=abs)
    rest = sorted((zero.real for zero in zeros), key=abs)
    return [(pole, rest[i] if i < len(rest) else None) for i, pole in enumerate(low)]


def _with_gain(cells: list[Any], gain: float) -> list[Any]:
    """The cells with the gain multiplied into the readout of the last one."""
    last = cells[-1]
    names = ("c_o", "d_o") if isinstance(last, RCCell) else ("readout", "skip")
    changed = {name: gain * getattr(last, name) for name in names}
    return [*cells[:-1], replace(last, **changed)]
