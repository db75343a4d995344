"""Solve a ladder of diodes and resistors, and fit the diodes' emission coefficient to voltages.

Each section is a resistor of 1 kilohm in series and a diode to ground, fed by several currents.

    python examples/diode_ladder.py --sections 20
"""

import argparse

from chonn_plugins.openmp import sleep_while_waiting

sleep_while_waiting()  # before torch is imported

import torch
from torch import Tensor

from chonn_ops import Circuit, NonlinearCircuit, laws

THERMAL, SATURATION = 0.02585, 1e-12  # kT/q at 300 K in volts, amperes


def voltages(currents: Tensor, sections: int, emission: Tensor) -> Tensor:
    """Voltages (B, sections) for currents (B,) into the first node."""
    one = torch.ones(len(currents), sections, 1, dtype=torch.float64)
    source = torch.zeros_like(one)
    source[:, 0, 0] = currents
    ladder = Circuit((1e-3 * one,), SATURATION * one)
    return NonlinearCircuit(ladder, leaks=laws.Diode(emission * THERMAL)).solve(source)[..., 0]


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--sections", type=int, default=20)
    args = parser.parse_args(arguments)
    currents = torch.logspace(-6, -2, 9, dtype=torch.float64)
    measured = voltages(currents, args.sections, torch.tensor(1.8, dtype=torch.float64))
    for current, v in zip(currents[::4], measured[::4], strict=True):
        print(f"{current:.0e} A: {v[0]:.4f} V at the first node, {v[-1]:.4f} V at the last")

    emission = torch.tensor(1.0, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.LBFGS([emission], max_iter=30, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        optimizer.zero_grad()
        error = (voltages(currents, args.sections, emission) - measured).square().mean()
        error.backward()
        return error

    optimizer.step(loss)
    print(f"emission coefficient: {emission.item():.4f}, 1.8 in the data")


if __name__ == "__main__":
    main()
