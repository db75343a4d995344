"""What the flow itself does to errors: growth of small perturbations, by their wavenumber.

python tools/navier_stokes_growth.py   # minutes; benchmarks/results/navier_stokes_growth.json

Why a lower one-step error need not give a lower rollout error: the solver of the Navier-Stokes
problem goes on from t = 10 with the true vorticity and with one that has an error of random phases
in a band of wavenumbers, of 1e-3 of its norm. `make tables` puts the ratios of later to first norm
of the difference, means over the trajectories, into docs/experiments.md.
"""

from __future__ import annotations

import argparse
import statistics
from pathlib import Path

import numpy as np
import torch
from results_file import drawn_data, read_record
from torch import Tensor

from chonn_ops._files import write_json
from chonn_ops.experiments.provenance import code
from chonn_ops.problems import navier_stokes
from chonn_ops.problems._vorticity_solver import solve

OUTPUT = Path(__file__).parent.parent / "benchmarks" / "results" / "navier_stokes_growth.json"
# Largest of the two wavenumbers, in periods of the domain: from, to below.
BANDS = ((1, 2), (2, 4), (4, 8), (8, 16))
START, FRAMES = 10, 40
SIZE = 1e-3


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--samples", type=int, default=16)
    parser.add_argument("--resolution", type=int, default=64)
    parser.add_argument("--step", type=float, default=2e-2)
    parser.add_argument("--output", type=Path, default=OUTPUT)
    args = parser.parse_args()
    config = {
        **{name: getattr(args, name) for name in ("samples", "resolution", "step")},
        "start": START,
        "frames": FRAMES,
        "size": SIZE,
    }
    force = navier_stokes.forcing(args.resolution)
    rng = np.random.default_rng(0)
    begun = navier_stokes.draw_vorticity(rng, args.samples, args.resolution)
    data = drawn_data("first frames", torch.as_tensor(begun))
    threads = torch.get_num_threads()
    record = read_record(args.output, "navier_stokes_growth", config, ("torch",), threads, data)
    true = solve(begun, force, START, args.step)[:, -1]
    later = solve(true, force, FRAMES, args.step)
    done = [tuple(result["band"]) for result in record["results"]]
    for band in BANDS:
        # Drawn for finished bands, too: the others' is the same after a stop.
        error = SIZE * norms(true)[:, None, None] * noise(rng, len(true), args.resolution, band)
        if band in done:
            continue
        apart = norms(solve(true + error, force, FRAMES, args.step) - later)
        growth = (apart / norms(error)[:, None]).T.tolist()
        record["results"].append({"band": band, "growth": growth, **code()})
        write_json(args.output, record)
        print(f"modes {band[0]} to {band[1]}: {statistics.fmean(growth[-1]):.3g} times", flush=True)


def noise(rng: np.random.Generator, n: int, resolution: int, band: tuple[int, int]) -> Tensor:
    """(n, R, R) white noise of a band, of norm 1."""
    white = torch.from_numpy(rng.standard_normal((n, resolution, resolution)))
    k = torch.fft.fftfreq(resolution, 1 / resolution).abs()
    size = torch.maximum(k[:, None], k)
    kept = (size >= band[0]) & (size < band[1])
    fields = torch.fft.ifft2(torch.fft.fft2(white) * kept).real
    return fields / norms(fields)[:, None, None]


def norms(fields: Tensor) -> Tensor:
    return torch.linalg.vector_norm(fields, dim=(-2, -1))


if __name__ == "__main__":
    main()
