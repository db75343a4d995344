"""What a solver does on the steady problems: errors and milliseconds, beside no model.

Contenders
    own scheme      the scheme that made the data, by `kirchhoff_network` in float64 from the stored
                    float32 inputs, on the data's own grid, batches of 4; of Poisson's equation the
                    series itself. Of ConDiff all cells of the coefficient
    models' inputs  the same from what models see, where that is less (ConDiff: no last row, column)
    other scheme    who knows the equation, not the scheme: finite volumes of `chonn_ops.diffusion`,
                    harmonic means and u = 0 at the walls

Columns
    error           mean over samples of the relative L1 error, for ConDiff of the relative L2 error
    ms              CPU time of one sample, one thread: the median over `--rounds`
    generator_ms    of one sample by the generator, mostly SciPy's sparse LU
"""

from __future__ import annotations

import functools
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from chonn_lab.benchmarks.harness import Row, Run, main_of, milliseconds, show
from chonn_lab.experiments.solvers import CellScheme, CornerScheme, SineScheme, WaveScheme
from chonn_lab.problems import condiff, darcy, darcy_solver, helmholtz, helmholtz_open, poisson
from chonn_ops import diffusion, kirchhoff_network

BATCH = 4
DARCY: dict[str, dict[str, Any]] = {
    "darcy": {},
    "darcy_contrast 100,000": {"contrast": 1e5},
    "darcy_contrast 1,000": {"contrast": 1e3},
    "darcy_lognormal": {"coefficient": "log-normal"},
    "darcy_loguniform": {"coefficient": "log-uniform"},
}


class Case(NamedTuple):
    """Outputs (S, C, R, R), solves of whole inputs by name, and the generator's of one sample."""

    problem: str
    truth: Tensor
    inputs: Tensor
    solves: dict[str, Callable[[Tensor], Tensor]]
    generate: Callable[[], object]
    power: int = 1


def equation(k: Tensor) -> Tensor:
    """-div(k grad u) = 1 at the centres of cells, as a textbook has it; both (B, 1, R, R)."""
    medium = k.movedim(1, -1)
    circuit = diffusion(medium, 1 / k.shape[-1], boundary="dirichlet")
    return circuit.solve(torch.ones_like(medium), method="direct").movedim(-1, 1)


def darcy_case(name: str, path: Path, samples: int, points: int) -> Case:
    darcy.generate(path, samples, points, progress=False, **DARCY[name])
    nu, u = map(torch.from_numpy, darcy.read(path))
    solves = {"own scheme": CellScheme(points), "other scheme": equation}
    generator = functools.partial(darcy_solver.solve_steady, nu[0].double().numpy(), 1.0)
    return Case(name, u[:, None], nu[:, None], solves, generator)


def poisson_case(samples: int, points: int) -> Case:
    """Fields of the file, not normalised: the source in float32, the series' nodes on the walls."""
    rng = np.random.default_rng(np.random.SeedSequence(0).spawn(2)[0])
    a = rng.uniform(-1, 1, (samples, poisson.K_IN, poisson.K_IN))
    f, u = (torch.from_numpy(x).float()[:, None] for x in poisson.fields(a, points))

    def other(f: Tensor) -> Tensor:
        """Five points, u = 0 at the outermost nodes."""
        inner = f[..., 1:-1, 1:-1].movedim(1, -1)
        circuit = diffusion(torch.ones_like(inner), 1.0, boundary="dirichlet")
        # From the outermost unknowns to the walls it is a whole step here, not half a cell.
        g, leak = circuit.conductance, circuit.leak / 2
        v = kirchhoff_network(inner / (points - 1) ** 2, g, leak, method="direct")
        return torch.nn.functional.pad(v.movedim(-1, 1), [1, 1, 1, 1])

    solves = {"own scheme": SineScheme().series, "other scheme": other}
    return Case("poisson", u, f, solves, lambda: poisson.fields(a[0], points))


def condiff_case(path: Path, samples: int, points: int) -> Case:
    variance = 2.0 if points == condiff.RESOLUTION else 0.4
    condiff.generate(path, samples, points, variance=variance, progress=False)
    k, f, u = condiff.read(path)
    around = [k[:, i : i + points, j : j + points] for i, j in ((0, 0), (1, 0), (0, 1), (1, 1))]
    inputs = torch.stack([*around, f], 1)

    def cropped(x: Tensor) -> Tensor:
        seen = torch.nn.functional.pad(x[:, :1], [0, 1, 0, 1], mode="replicate")
        cells = [seen[..., i : i + points, j : j + points] for i in (0, 1) for j in (0, 1)]
        return CornerScheme()(torch.cat([cells[0], cells[2], cells[1], cells[3], x[:, -1:]], 1))

    solves = {"own scheme": CornerScheme(), "models' inputs": cropped}
    generator = functools.partial(condiff.solve, k[0].double().numpy(), f[0].double().numpy())
    return Case("condiff", u[:, None], inputs, solves, generator, 2)


def helmholtz_case(path: Path, samples: int, points: int) -> Case:
    helmholtz.generate(path, samples, points, progress=False)
    k, u = helmholtz.read(path)
    one = k[0].double().numpy()
    solves = {"own scheme": WaveScheme()}
    return Case("helmholtz", u[:, None], k[:, None], solves, lambda: helmholtz.solve(one))


def open_case(path: Path, samples: int, points: int) -> Case:
    # Waves are resolved by 10 cells.
    wavenumber = helmholtz_open.WAVENUMBER * points / helmholtz_open.RESOLUTION
    helmholtz_open.generate(path, samples, points, wavenumber, progress=False)
    inputs, u = helmholtz_open.read(path)
    solves = {"own scheme": WaveScheme(helmholtz_open.LAYER, helmholtz_open.ATTENUATION)}
    one = [field.double().numpy() for field in inputs[0]]
    return Case("helmholtz_open", u, inputs, solves, lambda: helmholtz_open.solve(*one))


def measure(case: Case, rounds: int) -> list[Row]:
    """A row a contender."""

    def timed(call: Callable[[], object]) -> float:
        return milliseconds(call, rounds, time.process_time)

    generator = timed(case.generate)
    rows = []
    truth, axes = case.truth.double(), (1, 2, 3)
    for name, solve in case.solves.items():
        # Schemes return what they get: in float64 nothing is rounded to the stored numbers.
        parts = case.inputs.double().split(BATCH)
        found = torch.cat([solve(part) for part in parts])
        error = (found - truth).abs().pow(case.power).sum(axes)
        error = (error / truth.abs().pow(case.power).sum(axes)) ** (1 / case.power)
        row = {"problem": case.problem, "name": name, "error": error.mean().item()}
        ms = timed(functools.partial(solve, parts[0])) / len(parts[0])
        rows.append(
            row | {"metric": f"relative_l{case.power}", "ms": ms, "generator_ms": generator}
        )
    show(rows)
    return rows


@torch.no_grad()
def problems(run: Run) -> list[Row]:
    sizes = (4, 32) if run.smoke else (32, 64)  # samples, points a side
    with tempfile.TemporaryDirectory() as folder:

        def path(name: str) -> Path:
            return Path(folder) / f"{name}.hdf5"

        makes: list[Callable[[], Case]] = [
            *(functools.partial(darcy_case, name, path(name), *sizes) for name in DARCY),
            functools.partial(poisson_case, *sizes),
            functools.partial(condiff_case, path("condiff"), *sizes),
            functools.partial(helmholtz_case, path("helmholtz"), *sizes),
            functools.partial(open_case, path("open"), *sizes),
        ]
        return [row for make in makes for row in measure(make(), run.rounds)]


main = main_of(__doc__, "controls", {"rows": problems}, ["scipy"], threads=1)

if __name__ == "__main__":
    main()
