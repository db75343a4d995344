"""Draw sound waves of a loudspeaker round an obstacle, as potentials of a circuit.

Air is a network of coils and capacitors: a coil between two cells is the air's inertia, a capacitor
from a cell to ground its elasticity. At the loudspeaker's frequency, Kirchhoff's current law is the
Helmholtz equation. The edges of the picture absorb, the obstacle is hard.

    python examples/waves.py --output waves.png
"""

import argparse
import time
from pathlib import Path

from chonn_plugins.openmp import sleep_while_waiting

sleep_while_waiting()  # before torch is imported

import torch
from matplotlib.figure import Figure
from torch import Tensor

from chonn_ops import absorbing_layer, helmholtz


def medium(points: int) -> tuple[Tensor, Tensor, Tensor]:
    """Positions (R, R, 2) of the nodes in the unit square; which are air; where the source is."""
    line = (torch.arange(points) + 0.5) / points
    place = torch.stack(torch.meshgrid(line, line, indexing="ij"), -1)
    obstacle = (place - torch.tensor([0.6, 0.5])).norm(dim=-1) < 0.12
    wall = ((place[..., 0] - 0.4).abs() < 0.01) & ((place[..., 1] - 0.5).abs() > 0.06)
    source = torch.exp(-((place - torch.tensor([0.25, 0.5])) / 0.01).square().sum(-1))
    return place, ~obstacle & ~wall, source


def waves(points: int, wavelengths: float) -> tuple[Tensor, Tensor]:
    """Complex pressure (R, R) of so many wavelengths across the square, and which nodes are air."""
    _, air, source = medium(points)
    f = source[None, ..., None]
    k, omega, step = torch.ones_like(f), 2 * torch.pi * wavelengths, 1 / points
    absorbed = absorbing_layer(k, 1.0, 0.15, step)
    circuit = helmholtz(k, 1.0, absorbed, omega, step, mask=air, boundary="matched")
    return circuit.solve(f)[0, ..., 0], air


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--points", type=int, default=256, help="points a side")
    parser.add_argument("--wavelengths", type=float, default=14, help="across the square")
    parser.add_argument("--output", type=Path, default=Path("waves.png"))
    args = parser.parse_args(arguments)

    started = time.perf_counter()
    pressure, air = waves(args.points, args.wavelengths)
    print(f"{args.points} x {args.points} nodes solved in {time.perf_counter() - started:.1f} s")
    shadow = pressure[3 * args.points // 4, args.points // 2].abs() / pressure.abs().max()
    print(f"behind the obstacle: {100 * shadow:.1f} % of the largest pressure")

    figure = Figure(figsize=(9, 4.4), layout="constrained")
    fields = {"pressure at one moment": pressure.real, "amplitude": pressure.abs()}
    for panel, (title, field) in zip(figure.subplots(1, 2), fields.items(), strict=True):
        most = pressure.abs().flatten().quantile(0.995).item()
        least, colours = (-most, "RdBu_r") if title.startswith("pressure") else (0.0, "magma")
        shown = torch.where(air, field, torch.nan).T
        panel.imshow(shown, origin="lower", cmap=colours, vmin=least, vmax=most)
        panel.set(title=title, xticks=[], yticks=[], facecolor="#444444")
    figure.savefig(args.output, dpi=110)
    print(f"wrote {args.output}")


if __name__ == "__main__":
    main()
