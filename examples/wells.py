"""Permeability from well pressures: Darcy flow, 25 wells, noise of 1 %.

Five of the wells are pumped in turn, and the pressure is measured in all. The true permeability is
drawn from the prior, so that its error bars can be checked: 90 % of the nodes should lie in their
90 % intervals.

    python examples/wells.py --resolution 64 --figure wells.png
"""

import argparse

from chonn_plugins.openmp import sleep_while_waiting

sleep_while_waiting()  # before torch is imported

import torch
from torch import Tensor

from chonn_ops import Direct, diffusion
from chonn_ops.inverse import Reconstruction, Smoothness, reconstruct

SIDE = 1000.0  # metres
PERMEABILITY = 1e-13  # m^2: the geometric mean
THICKNESS, VISCOSITY = 10.0, 1e-3  # m, Pa s
RATE = 1e-3  # m^3 / s of a pumped well
LEVELS = torch.arange(0.1, 1.0, 0.1)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--resolution", type=int, default=64, help="cells a side")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--figure", help="PNG file to draw to; needs matplotlib")
    args = parser.parse_args(arguments)
    n, spacing = args.resolution, SIDE / args.resolution
    at = ((torch.arange(5) + 0.5) * n / 5).long()
    wells = torch.cartesian_prod(at, at)
    pumped = wells[[0, 4, 12, 20, 24]]
    source = torch.zeros(5, n, n, dtype=torch.float64)
    source[range(5), pumped[:, 0], pumped[:, 1]] = -RATE
    # Flow is mobility times the gradient of the pressure: k * thickness / viscosity.
    mobility = THICKNESS / VISCOSITY
    prior = Smoothness(length=SIDE / 2, deviation=1.0, mean=PERMEABILITY * mobility)
    drawn = []
    for seed in range(args.seeds):
        generator = torch.Generator().manual_seed(seed)
        truth = PERMEABILITY * prior.sample((n, n), spacing, generator=generator)[0].exp()
        medium = diffusion(truth[None, ..., None] * mobility, spacing, boundary="dirichlet")
        pressure = medium.solve(source[None, ..., None] / spacing**2, Direct())
        pressure = pressure[0, ..., 0][:, wells[:, 0], wells[:, 1]]
        noise = 0.01 * pressure.abs()
        measured = pressure + noise * torch.randn(
            pressure.shape, dtype=pressure.dtype, generator=generator
        )
        found = reconstruct(
            measured,
            wells,
            source,
            prior=prior,
            noise=noise,
            spacing=spacing,
            boundary="dirichlet",
        )
        error, alone = (
            (field / truth).log().square().mean().sqrt()
            for field in (found.field / mobility, torch.tensor(PERMEABILITY))
        )
        covered = [coverage(found, truth * mobility, float(level)) for level in LEVELS]
        drawn.append((truth, found, covered))
        print(
            f"seed {seed}: error of log-permeability {error:.3f}, of the prior's mean {alone:.3f}; "
            f"90 % intervals hold {covered[-1]:.1%}; {found.iterations} iterations, "
            f"converged: {found.converged}, fit {found.fit:.2f}"
        )
    if args.figure:
        draw(drawn, wells, mobility, args.figure)


def coverage(found: Reconstruction, truth: Tensor, level: float) -> float:
    """Part of the nodes whose true value lies in its interval."""
    low, high = found.interval(level)
    return float(((low < truth) & (truth < high)).double().mean())


def draw(
    drawn: list[tuple[Tensor, Reconstruction, list[float]]],
    wells: Tensor,
    mobility: float,
    path: str,
) -> None:
    import matplotlib.pyplot as plt

    truth, found, _ = drawn[0]
    figure, panels = plt.subplots(1, 4, figsize=(13, 2.9), layout="constrained")
    logs = {"truth": truth.log10(), "reconstruction": (found.field / mobility).log10()}
    for panel, (name, field) in zip(panels, logs.items(), strict=False):
        image = panel.imshow(
            field.T, origin="lower", vmin=logs["truth"].min(), vmax=logs["truth"].max()
        )
        panel.plot(*wells.T, "w.", markersize=3)
        panel.set_title(name)
    figure.colorbar(image, ax=panels[:2], label="log10 permeability, m$^2$", shrink=0.9)
    deviation = found.deviation() / torch.tensor(10.0).log()
    image = panels[2].imshow(deviation.T, origin="lower", cmap="magma", vmin=0)
    panels[2].plot(*wells.T, "w.", markersize=3)
    panels[2].set_title("error bar")
    figure.colorbar(image, ax=panels[2], label="deviation of log10", shrink=0.9)
    for panel in panels[:3]:
        panel.set_axis_off()
    panels[3].plot([0, 1], [0, 1], color="0.7")
    for seed, (_, _, covered) in enumerate(drawn):
        panels[3].plot(LEVELS, covered, ".-", label=f"seed {seed}")
    panels[3].set(xlabel="level of the interval", ylabel="true values in it", title="coverage")
    panels[3].legend(frameon=False)
    figure.savefig(path, dpi=110)


if __name__ == "__main__":
    main()
