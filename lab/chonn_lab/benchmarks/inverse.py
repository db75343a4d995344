"""Reconstructions of `chonn_ops.inverse`: wells in a medium.

Log-permeability is drawn from the prior on 32 x 32 cells with 25 wells, five of which are pumped in
turn, and noise of 1 % of each pressure. Rows have the error over that of the prior's mean, and the
coverage of 90 % intervals.
"""

import statistics
import time
from typing import Any

import torch

from chonn_lab.benchmarks.harness import Row, Run, main_of, show
from chonn_ops import diffusion
from chonn_ops.inverse import Smoothness, reconstruct


def experiment(n: int, a_side: int, pumped: int, seed: int) -> Row:
    """One medium: error over the prior's, coverage, seconds."""
    generator = torch.Generator().manual_seed(seed)
    prior = Smoothness(length=0.5, mean=1.0)
    x = prior.sample((n, n), 1 / n, generator=generator)[0]
    along = ((torch.arange(a_side) + 0.5) * n / a_side).long()
    wells = torch.cartesian_prod(along, along)
    some = wells[torch.linspace(0, len(wells) - 1, pumped).long()]
    source = torch.zeros(pumped, n, n, dtype=torch.float64)
    source[range(pumped), some[:, 0], some[:, 1]] = 1
    k = x.exp()[None, ..., None]
    network = diffusion(k, 1 / n, boundary="dirichlet").factorize()
    v = network.solve(source[None, ..., None] * n**2)[0, ..., 0][:, wells[:, 0], wells[:, 1]]
    noise = 0.01 * v.abs()
    measured = v + noise * torch.randn(v.shape, dtype=v.dtype, generator=generator)
    begin = time.process_time()
    reconstruction = reconstruct(
        measured, wells, source, prior=prior, noise=noise, spacing=1 / n, boundary="dirichlet"
    )
    took = time.process_time() - begin
    low, high = reconstruction.interval(0.9)
    truth = x.exp()
    error, prior_error = (
        float(y.square().mean().sqrt()) for y in (reconstruction.field.log() - x, x)
    )
    return {
        "seed": seed,
        "grid": [n, n],
        "sources": pumped,
        "wells": len(wells),
        "error": error,
        "prior_error": prior_error,
        "ratio": error / prior_error,
        "coverage": float(((low < truth) & (truth < high)).double().mean()),
        "iterations": reconstruction.iterations,
        "converged": reconstruction.converged,
        "seconds": took,
    }


def wells(run: Run) -> dict[str, Any]:
    n, seeds = (12, 3) if run.smoke else (32, 30)
    rows = [experiment(n, 5, 5, seed) for seed in range(seeds)]
    show(rows[:3])
    return {"rows": rows, "coverage": statistics.fmean(row["coverage"] for row in rows)}


main = main_of(__doc__, "inverse", {"wells": wells}, ["scipy"], threads=1)

if __name__ == "__main__":
    main()
