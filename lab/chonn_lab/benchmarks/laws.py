"""Circuits of elements with laws: steps, times and errors, and torch-sla's nonlinear solve beside.

Sections
    table       `NonlinearCircuit` with each law of `LAWS` on edges or leaks, float64; conductances
                and leaks are log-normal, sources white noise
    cubic       `peers.cubic` as `heat_slab`, beside torch-sla; CHONN_TORCH_SLA names its Python

Columns of the table
    many, one       _ms of 64 networks of 32 x 32 nodes, and of one of 128 x 128; linear_many and
                    linear_one, of resistors in the place of the laws
    _steps, _most   the mean number of steps of the networks, and the largest
    error           of the potentials of four networks of 5 x 5 nodes, over the largest potential:
                    the distance from the only root of Kirchhoff's current law, in 40 digits
    gradient, hessian   of a weighted sum of them along a random change of all fields, beside
                    differences of fourth order
"""

import functools
import operator
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import mpmath
import numpy as np
import torch
from torch import Tensor

from chonn_lab.benchmarks import heat_slab
from chonn_lab.benchmarks.harness import Row, Run, inference, main_of
from chonn_lab.benchmarks.network import Networks
from chonn_ops import Circuit, NonlinearCircuit, laws

TAU, EPSILON, BETA, KT = 0.5, 1e-4, 5.0, 0.02585
SIZES, SMOKE = {"many": (64, 32), "one": (1, 128)}, {"many": (2, 6), "one": (1, 8)}


def power(p: float) -> Callable[[Any, Any], Any]:
    return lambda drop, k: k * mpmath.sign(drop) * abs(drop) ** (mpmath.mpf(p) - 1)


def forchheimer(drop: Any, k: Any) -> Any:
    root = mpmath.sqrt(1 / k**2 + 4 * BETA * abs(drop)) - 1 / k
    return mpmath.sign(drop) * root / (2 * BETA)


def threshold(drop: Any, k: Any) -> Any:
    def beyond(i: Any) -> Any:
        return i / k + TAU * i / mpmath.sqrt(i**2 + mpmath.mpf(EPSILON) ** 2) - drop

    return mpmath.findroot(beyond, (0, k * drop), solver="anderson", tol=1e-60)


# What obeys the law, the law, and the same in mpmath.
LAWS: dict[str, tuple[str, Any, Callable[[Any, Any], Any]]] = {
    "Forchheimer": ("edges", laws.Forchheimer(BETA), forchheimer),
    "Power(4)": ("edges", laws.Power(4), power(4)),
    "Power(1.3)": ("edges", laws.Power(1.3), power(1.3)),
    "Power(10)": ("edges", laws.Power(10), power(10)),
    "Threshold": ("edges", laws.Threshold(TAU, EPSILON), threshold),
    "diode to ground": ("leaks", laws.Diode(KT), lambda v, k: k * mpmath.expm1(v / KT)),
    "radiation": ("leaks", laws.Radiation(), lambda v, k: k * v * abs(v) ** 3),
    "porous medium": ("leaks", laws.Power(4 / 3), power(4 / 3)),
    "Poisson-Boltzmann": ("leaks", laws.Sinh(0.1), lambda v, k: k * mpmath.sinh(10 * v) / 10),
}


def random_fields(name: str, count: int, n: int) -> list[Tensor]:
    """Sources, and logarithms of conductances and leaks."""
    generator = torch.Generator().manual_seed(0)
    fields = torch.randn(4, count, n, n, 1, dtype=torch.float64, generator=generator)
    # Diodes in reverse cannot hold a source.
    source = fields[0].abs() if name.startswith("diode") else fields[0]
    return [source, *(fields[1:] / 2)]


def circuit_of(name: str, *logarithms: Tensor) -> Any:
    """A circuit with a law, or of resistors for the name ""."""
    *g, leak = (x.exp() for x in logarithms)
    place, law, _ = LAWS.get(name, ("edges", None, None))
    circuit = Circuit(tuple(g), leak)
    return NonlinearCircuit(circuit, **{place: law}) if law else circuit


def error(name: str, fields: Sequence[Tensor]) -> float:
    """The error of the potentials of one network."""
    source, *g, leak = fields[0], *(x.exp() for x in fields[1:])
    networks = Networks(source[..., 0], tuple(x[..., 0] for x in g), leak[..., 0])
    p, q, conductance = (np.concatenate(x, -1) for x in zip(*networks.edges(), strict=True))
    nodes = np.eye(source.numel(), dtype=int).astype(object)
    incidence = np.concatenate([nodes[p] - nodes[q], nodes])
    place, _, law = LAWS[name]
    of_edges, of_leaks = (law, operator.mul) if place == "edges" else (operator.mul, law)
    found = circuit_of(name, *fields[1:]).solve(source).flatten().tolist()
    with mpmath.workdps(40):
        s, v, k, c = (
            np.array([*map(mpmath.mpf, x)])
            for x in (source.flatten().tolist(), found, conductance[0], leak.flatten().tolist())
        )
        elements = [lambda drop, x=x: of_edges(drop, x) for x in k]
        elements += [lambda drop, x=x: of_leaks(drop, x) for x in c]
        for _ in range(20):
            pairs = [*zip(elements, incidence @ v, strict=True)]
            current = np.array([element(drop) for element, drop in pairs])
            slope = np.array([mpmath.diff(*pair) for pair in pairs])
            matrix, rest = (incidence.T * slope) @ incidence, s - incidence.T @ current
            step = np.array(mpmath.lu_solve(mpmath.matrix(matrix), mpmath.matrix(rest)))
            v = v + step
            if max(abs(step)) < 1e-25 * max(abs(v)):
                return float(max(abs(v - found)) / max(abs(v)))
    raise ArithmeticError(f"{name}: expected Newton's method to converge")


def derivatives(name: str, fields: Sequence[Tensor]) -> list[float]:
    """Distances of the gradient and of a product with the Hessian from differences."""
    generator = torch.Generator().manual_seed(1)
    weight, *direction = (
        torch.randn(x.shape, dtype=x.dtype, generator=generator) for x in (fields[0], *fields)
    )

    def value(source: Tensor, *logarithms: Tensor) -> Tensor:
        return (weight * circuit_of(name, *logarithms).solve(source, tol=1e-13)).sum()

    gradient = torch.func.grad(value, (0, 1, 2, 3))

    def along(*fields: Tensor) -> Tensor:
        return (torch.stack(gradient(*fields)) * torch.stack(direction)).sum()

    def difference(function: Callable[..., Any], step: float = 1e-5) -> Tensor:
        at = []
        for h in (step, -step, 2 * step, -2 * step):
            y = function(*(x + h * d for x, d in zip(fields, direction, strict=True)))
            at.append(torch.stack([*y]) if isinstance(y, tuple) else y)
        return (8 * (at[0] - at[1]) - (at[2] - at[3])) / (12 * step)

    product = torch.stack(torch.func.grad(along, (0, 1, 2, 3))(*fields))
    pairs = (along(*fields), difference(value)), (product, difference(gradient))
    return [float((a - b).abs().max() / b.abs().max()) for a, b in pairs]


def table(run: Run) -> Row:
    def make(name: str) -> Row:
        row: Row = {"calls": {}}
        for size, (count, n) in (SMOKE if run.smoke else SIZES).items():
            fields = random_fields(name, count, n)
            linear, circuit = (circuit_of(x, *fields[1:]) for x in ("", name))
            row["calls"][f"linear_{size}"] = inference(linear.solve, fields[:1])
            row["calls"][size] = inference(circuit.solve, fields[:1])
            steps = circuit.solve_with_info(fields[0])[1].iterations.double()
            row |= {f"{size}_steps": float(steps.mean()), f"{size}_most": int(steps.max())}
        small = random_fields(name, 4, 3 if run.smoke else 5)
        row["gradient"], row["hessian"] = derivatives(name, small)
        return {**row, "error": max(error(name, [x[i : i + 1] for x in small]) for i in range(4))}

    return run.section({name: functools.partial(make, name) for name in LAWS})


def cubic(run: Run) -> Iterator[Row]:
    small, large = (6, 8) if run.smoke else (64, 128)  # a dense Jacobian takes gigabytes
    for n, hows in ((small, ["dense"]), (large, ["applied", "given"])):
        peers = {f"torch-sla, {how} Jacobian": "CHONN_TORCH_SLA" for how in hows}
        yield heat_slab.rows(run, {"chonn-ops, cubic": "", **peers}, n, unknowns=n * n)


main = main_of(__doc__, "laws", {"table": table, "cubic": cubic}, ["mpmath"], rounds=3, threads=1)

if __name__ == "__main__":
    main()
