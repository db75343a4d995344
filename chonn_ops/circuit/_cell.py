"""The Kirchhoff Neural Cell with fixed coefficients, in continuous and in discrete time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from chonn_ops.circuit._checks import Array, check_finite, check_positive, finite_array
from chonn_ops.circuit._rational import TransferFunction


@dataclass(frozen=True)
class BranchCurrents:
    """Currents at the cell's node: what comes in (`injected`) and what leaves by the branches."""

    capacitor: Any
    leak: Any
    coupling: Any
    injected: Any

    @property
    def excess(self) -> Any:
        """What Kirchhoff's current law leaves: 0 while the node obeys it."""
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
        """The cell of a decay rate and an injection; the rates leave C and G_p open."""
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
        """Whether no conductance is negative and one is not 0: then the stored energy C v^2 / 2
        falls by `dissipated_power`, for any injection."""
        return min(self.G_leak, self.G_p) >= 0 and self.conductance > 0

    @property
    def is_passive(self) -> bool:
        """Whether the way from u to y is positive real: see `TransferFunction.is_passive`."""
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
        """Power that the conductances turn into heat, watt."""
        return self.conductance * v**2

    def zoh(self, step: float) -> DiscreteCell:
        """The exact cell for inputs that are held for `step`: eqs. 19 to 21.

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
        """Potential and output after each interval, exact for inputs held in between: eq. 20.

        Parameters
        ----------
        u : array_like, shape (L,)
        steps : array_like, shape (L,)
            Lengths of the intervals > 0.
        v : float
            Potential before the first one.
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

    The input of a sample counts at once: relative to `scipy.signal.cont2discrete`, whose sample
    begins the interval that ours ends, the part through the potential is one sample earlier.

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
        """Whether the way from u to y is positive real: see `TransferFunction.is_passive`."""
        return self.transfer().is_passive

    def to_rc(self, *, C: float = 1.0, G_p: float = 0.0) -> RCCell:
        """The RC cell that is this one under zero-order hold; C and G_p are free.

        Raises
        ------
        ValueError
            For a retention not above 0, which no RC cell has.
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


def same_step(cells: Sequence[DiscreteCell]) -> float:
    """The sampling interval that all cells have; ValueError otherwise."""
    steps = {cell.step for cell in cells}
    if len(steps) != 1:
        raise ValueError(f"step: expected the same of all cells, got {sorted(steps)}")
    return steps.pop()


def check_cells(cells: Sequence[Any], kind: type) -> None:
    """ValueError unless there is one of this kind at least, and nothing else."""
    if not cells or not all(isinstance(cell, kind) for cell in cells):
        raise ValueError(f"cells: expected one {kind.__name__} or more, got {cells!r}")
