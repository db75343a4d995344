"""Connectivity of a habitat: resistances between all pairs of patches, and where animals pass.

A landscape is a raster of resistances to movement: forest 1, open land 30, a lake without data and
a road of 300 with one crossing. As in Circuitscape, cells have eight neighbours, the distance of
two patches is the effective resistance between them, and the current map is the sum over all pairs
of a unit current from one to the other. All pairs need one elimination.

    python examples/habitat.py --figure habitat.png
"""

import argparse

from chonn_plugins.openmp import sleep_while_waiting

sleep_while_waiting()  # before torch is imported

import torch
from torch import Tensor

from chonn_ops import raster

PATCHES = ((0.15, 0.15), (0.2, 0.8), (0.55, 0.3), (0.85, 0.2), (0.85, 0.85))  # of the sides


def landscape(n: int, seed: int) -> Tensor:
    """Resistance of each cell (n, n); NaN in the lake."""
    generator = torch.Generator().manual_seed(seed)
    noise = torch.randn(1, 1, n // 8 + 2, n // 8 + 2, generator=generator).double()
    cover = torch.nn.functional.interpolate(noise, (n, n), mode="bicubic")[0, 0]
    resistance = torch.where(cover > 0, 1.0, 30.0).double()
    resistance[int(0.68 * n)] = 300.0
    resistance[int(0.68 * n), int(0.6 * n) : int(0.6 * n) + 2] = 1.0  # a crossing
    x = (torch.arange(n) + 0.5) / n
    resistance[(x[:, None] - 0.4).square() + (x - 0.6).square() < 0.13**2] = torch.nan
    return resistance


def connectivity(resistance: Tensor, patches: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Pairs of patches (P, 2), their resistances (P,), and the current map (n, n), zero in cells
    without data."""
    habitat = raster(resistance[None, ..., None], neighbours=8, mean="resistance")
    pairs = torch.combinations(patches)
    found = habitat.resistance(pairs)[0, :, 0]
    current = torch.zeros(resistance.numel(), dtype=torch.float64)
    for start, end in pairs.tolist():
        source = torch.zeros(1, resistance.numel(), 1, dtype=torch.float64)
        source[:, start] = 1.0
        ground = torch.zeros(resistance.numel(), 1, dtype=torch.bool)
        ground[end] = True
        held = habitat.hold(ground)
        current += held.node_currents(held.solve(source))[0, :, 0]
    return pairs, found, current.reshape(resistance.shape)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--cells", type=int, default=160, help="a side")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--figure", help="PNG file to draw to; needs matplotlib")
    args = parser.parse_args(arguments)
    resistance = landscape(args.cells, args.seed)
    places = (torch.tensor(PATCHES) * args.cells).long()
    patches = places[:, 0] * args.cells + places[:, 1]
    pairs, found, current = connectivity(resistance, patches)
    number = {node: i + 1 for i, node in enumerate(patches.tolist())}
    for (start, end), value in zip(pairs.tolist(), found.tolist(), strict=True):
        print(f"patches {number[start]} and {number[end]}: resistance {value:.2f}")
    if args.figure:
        draw(args.figure, resistance, current, places)


def draw(path: str, resistance: Tensor, current: Tensor, places: Tensor) -> None:
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(8.4, 4), layout="constrained")
    shown = current.where(resistance.isfinite(), torch.nan)
    for axis, field, name in zip(axes, (resistance, shown), ("resistance", "current"), strict=True):
        image = axis.imshow(field.log10(), cmap="viridis")
        figure.colorbar(image, label=f"log10 of {name}", shrink=0.85)
        axis.plot(places[:, 1], places[:, 0], "wo", markeredgecolor="k")
        axis.set(xticks=[], yticks=[])
    figure.savefig(path, dpi=110)


if __name__ == "__main__":
    main()
