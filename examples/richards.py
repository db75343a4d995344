"""Water that seeps into dry sand: Richards' equation in the column of Celia, Bouloutas and Zarba.

The water content is a law of leaks; conductivities are those of the sweep before.

    python examples/richards.py --cells 40
"""

import argparse

from chonn_plugins.openmp import sleep_while_waiting

sleep_while_waiting()  # before torch is imported

import torch
from torch import Tensor

from chonn_ops import Circuit, NonlinearCircuit

DEPTH, TIME, DRY, WET = 40.0, 360.0, -61.5, -20.7  # cm, s, pressure heads in cm


def conductivity(head: Tensor) -> Tensor:
    return 0.00944 * 1.175e6 / (1.175e6 + head.clamp(max=0).abs() ** 4.74)


def content(head: Tensor, k: Tensor | float = 1.0) -> Tensor:
    return k * (0.075 + 1.611e6 * 0.212 / (1.611e6 + head.clamp(max=0).abs() ** 3.96))


def infiltrate(cells: int, steps: int) -> tuple[Tensor, float]:
    """Pressure heads (cells + 1,) from the bottom, and the relative error of the mass balance."""
    h, dt = DEPTH / cells, TIME / steps
    store = torch.full((1, cells + 1, 1), h / dt, dtype=torch.float64)
    ends = torch.tensor([True, *[False] * (cells - 1), True])[:, None]
    head, fixed = DRY + 0 * store, torch.where(torch.arange(cells + 1)[:, None] < cells, DRY, WET)
    start, inflow = content(head)[0, 1:-1].sum() * h, 0.0
    for _ in range(steps):
        before, last, now, face = content(head), head + 1, head, head
        while (now - last).abs().max() > 1e-3:
            face = (conductivity(now) + conductivity(now.roll(-1, 1))) / 2  # to the next node up
            column = NonlinearCircuit(Circuit((face / h,), store).hold(ends, fixed), leaks=content)
            source = torch.where(ends, 0, before * store + face - face.roll(1, 1))
            last, now = now, column.solve(source, start=now, tol=1e-13)
        flux = face * ((now.roll(-1, 1) - now) / h + 1)  # downwards
        inflow, head = inflow + dt * float(flux[0, -2] - flux[0, 0]), now
    return head[0, :, 0], float(content(head)[0, 1:-1].sum() * h - start) / inflow - 1


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--cells", type=int, default=40)
    head, error = infiltrate(parser.parse_args(arguments).cells, steps=36)
    print("water from the bottom:", *(f"{x:.4f}" for x in content(head[:: len(head) // 8])))
    print(f"mass balance: {error:.1e}")


if __name__ == "__main__":
    main()
