"""Electrical impedance tomography: the conductivity of a disc from electrodes on its rim.

Currents flow between neighbouring electrodes; differences of potentials are measured between all
other neighbours, with noise of 0.1 %. The data come from a grid twice as fine. They are scaled by
what was measured on a homogeneous disc, so that neither the electrodes' size nor the steps of the
grid's rim count. Two priors recover the conductivity; the error bar is that of the smooth one.

    python examples/tomography.py --electrodes 32 --resolution 64 --figure tomography.png
"""

import argparse
import math

from chonn_plugins.openmp import sleep_while_waiting

sleep_while_waiting()  # before torch is imported

import torch
from torch import Tensor

from chonn_ops import Circuit, diffusion
from chonn_ops.inverse import Smoothness, TotalVariation, reconstruct

NOISE = 1e-3
# Of measured differences: what two grids differ by beyond their ratio on the homogeneous disc.
MODEL_ERROR = 3e-3


class Disc:
    """A disc of radius 1 on a grid of n x n nodes, with electrodes at the nodes of its rim."""

    def __init__(self, n: int, electrodes: int) -> None:
        self.n, self.spacing = n, 2 / n
        x = (torch.arange(n, dtype=torch.float64) + 0.5) * self.spacing - 1
        self.x, self.y = torch.meshgrid(x, x, indexing="ij")
        self.mask = self.x**2 + self.y**2 < 1
        one = torch.zeros(electrodes, n, n, dtype=torch.float64)
        for e in range(electrodes):
            angle = 2 * math.pi * e / electrodes
            distance = (self.x - math.cos(angle)) ** 2 + (self.y - math.sin(angle)) ** 2
            one[e].view(-1)[distance.where(self.mask, torch.inf).argmin()] = 1
        self.pairs = one.roll(-1, 0) - one  # (electrodes, n, n): the next electrode less this one

    def conductivity(self) -> Tensor:
        """1, with a circle of 5 and a circle of 0.2."""
        k = torch.ones_like(self.x)
        k[(self.x - 0.4) ** 2 + (self.y - 0.35) ** 2 < 0.22**2] = 5.0
        k[(self.x + 0.4) ** 2 + (self.y + 0.3) ** 2 < 0.25**2] = 0.2
        return k

    def measure(self, k: Tensor) -> Tensor:
        """Differences (currents, pairs); NaN at pairs with an electrode that carries current."""
        plate = diffusion(k[None, ..., None], self.spacing, mask=self.mask)
        ground = torch.zeros_like(plate.leak)
        ground[:, self.n // 2, self.n // 2] = 1  # any node: the currents sum to zero
        circuit = Circuit(plate.conductance, ground)
        v = circuit.solve(self.pairs[None, ..., None])[0, ..., 0]
        values = v.flatten(1) @ self.pairs.flatten(1).T
        one = torch.eye(len(values), dtype=torch.bool)
        return values.masked_fill(one | one.roll(1, 1) | one.roll(-1, 1), math.nan)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--electrodes", type=int, default=16)
    parser.add_argument("--resolution", type=int, default=48, help="nodes across the disc")
    parser.add_argument("--figure", help="PNG file to draw to; needs matplotlib")
    args = parser.parse_args(arguments)
    fine, disc = (Disc(n, args.electrodes) for n in (2 * args.resolution, args.resolution))
    generator = torch.Generator().manual_seed(0)
    measured = [fine.measure(k) for k in (fine.conductivity(), torch.ones_like(fine.x))]
    for values in measured:
        noise = torch.randn(values.shape, dtype=values.dtype, generator=generator)
        values *= 1 + NOISE * noise
    data = disc.measure(torch.ones_like(disc.x)) * measured[0] / measured[1]

    truth = disc.conductivity()
    fields = {"truth": truth.where(disc.mask, math.nan)}
    priors = {
        "smoothness": Smoothness(length=0.4, mean=1.0),
        "total variation": TotalVariation(weight=5.0, mean=1.0),
    }
    print(f"{int((~data.isnan()).sum())} measurements, {int(disc.mask.sum())} unknowns")
    deviation = None
    for name, prior in priors.items():
        found = reconstruct(
            data,
            disc.pairs,
            disc.pairs,
            prior=prior,
            noise=MODEL_ERROR * data.abs(),
            mask=disc.mask,
            spacing=disc.spacing,
        )
        fields[name] = found.field
        if deviation is None:
            deviation = found.deviation()
        wrong = (found.field.log() - truth.log())[disc.mask].norm() / truth.log()[disc.mask].norm()
        print(
            f"{name}: error of log-conductivity {wrong:.3f} of the homogeneous disc's, "
            f"{found.iterations} iterations, converged: {found.converged}, fit {found.fit:.2f}"
        )
    if args.figure and deviation is not None:
        draw(fields, deviation, args.figure)


def draw(fields: dict[str, Tensor], deviation: Tensor, path: str) -> None:
    import matplotlib.pyplot as plt

    figure, panels = plt.subplots(1, len(fields) + 1, figsize=(11, 2.6), layout="constrained")
    for panel, (name, field) in zip(panels, fields.items(), strict=False):
        image = panel.imshow(field.log10().T, origin="lower", vmin=-0.8, vmax=0.8, cmap="RdBu_r")
        panel.set_title(name)
    figure.colorbar(image, ax=panels[:-1], label="log10 conductivity", shrink=0.9)
    image = panels[-1].imshow(deviation.T / math.log(10), origin="lower", cmap="viridis", vmin=0)
    panels[-1].set_title("error bar, smoothness")
    figure.colorbar(image, ax=panels[-1], label="deviation of log10", shrink=0.9)
    for panel in panels:
        panel.set_axis_off()
    figure.savefig(path, dpi=110)


if __name__ == "__main__":
    main()
