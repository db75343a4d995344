"""`kirchhoff_network` with complex numbers beside a loop of SciPy's `spsolve`, in one run.

Networks are -laplace u - (k / c)^2 u with a wave number k of 24 on the unit square, random media of
a velocity c of 1 to 1.5 in stripes of waves, a loss of 2 % or none, and noise as source. Planes of
64 x 64 nodes are 32 networks, others fewer.

Contenders
    complex64   `kirchhoff_network`, refined to a residual of 1e-5
    complex128  the same in complex128
    spsolve     SciPy's sparse LU in complex128 (CSC), one network after another; "both" solves for
                the gradient, too, and multiplies potentials as we do

Columns
    forward, both   _ms of all networks: without autograd; of forward and backward for all inputs
    _ratio          that time over the time of the first row
    error           of potentials, over the largest one of `spsolve`
    gradient_error  of the conductances' gradients, the same way
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from chonn_lab.benchmarks.accuracy import matrices
from chonn_lab.benchmarks.direct import Networks, difference, ours
from chonn_lab.benchmarks.harness import (
    Turns,
    add_ratios,
    arguments,
    environment,
    fill,
    show,
    start,
    write_result,
)

DTYPES = {"complex64": torch.complex64, "complex128": torch.complex128}
WAVE_NUMBER = 24.0


def networks(count: int, n: int, loss: float) -> Networks:
    """Source, conductances and leak, of numbers that complex64 holds, in complex128."""
    rng = np.random.default_rng(0)
    y, x = np.meshgrid(*[np.linspace(0, 1, n)] * 2, indexing="ij")
    a, b, c = (rng.uniform(2, 9, (count, 1, 1)) for _ in range(3))
    speed = 1.25 + 0.25 * np.sin(a * x + b * y + c)
    leak = -((WAVE_NUMBER / n / speed) ** 2) * (1 + 1j * loss)
    source = rng.standard_normal((count, n, n)) + 1j * rng.standard_normal((count, n, n))
    fields = (source, np.ones((count, n, n)), leak)
    s, g, l = (torch.from_numpy(f + 0j).to(torch.complex64)[..., None] for f in fields)  # noqa: E741
    return s.to(torch.complex128), [g.to(torch.complex128)] * 2, l.to(torch.complex128)


def weights(like: Tensor) -> Tensor:
    """What potentials are multiplied by for a real loss."""
    return torch.randn(like.shape, dtype=like.dtype, generator=torch.Generator().manual_seed(1))


def scipys(case: Networks) -> tuple[Callable[[], Any], Callable[[], Any]]:
    """The same two calls by a loop of `spsolve`."""
    from scipy.sparse.linalg import spsolve

    source, g, leak = case
    n, edges = source.shape[1], [x[..., 0].numpy() for x in g]
    all_a = list(matrices(edges, leak[..., 0].numpy(), (False, False)))

    def solve(s: Tensor) -> Tensor:
        flat = s[..., 0].flatten(1).numpy()
        v = [spsolve(a, x, permc_spec="MMD_AT_PLUS_A") for a, x in zip(all_a, flat, strict=True)]
        return torch.from_numpy(np.stack(v)).reshape(len(v), n, n, 1)

    def both() -> Any:
        v, w = solve(source), solve(weights(source).conj().resolve_conj()).conj()
        edges = [-torch.diff(w, dim=axis) * torch.diff(v, dim=axis).conj() for axis in (1, 2)]
        return w, -w * v.conj(), *edges

    return lambda: solve(source), both


def measure(turns: Turns, count: int, n: int, loss: float) -> dict[str, Any]:
    """Rows of all contenders for one case."""
    case = networks(count, n, loss)
    forward, both = scipys(case)
    v, (_, _, *truth) = forward(), both()
    rows: dict[str, dict[str, Any]] = {}
    calls: dict[tuple[str, str], Callable[[], Any]] = {}
    for name, dtype in DTYPES.items():
        source, leak, *g = (x.to(dtype) for x in (case[0], case[2], *case[1]))
        calls[name, "forward"], calls[name, "both"] = ours(
            (source, g, leak), weights(case[0]).to(dtype)
        )
        _, _, *edges = calls[name, "both"]()
        used = [x.narrow(axis + 1, 0, n - 1) for axis, x in enumerate(edges)]
        rows[name] = {
            "name": name,
            "error": difference(calls[name, "forward"](), v),
            "gradient_error": max(map(difference, used, truth)),
        }
    rows["spsolve"] = {"name": "spsolve"}
    calls["spsolve", "forward"], calls["spsolve", "both"] = forward, both
    fill(rows, turns.times(calls))
    add_ratios(rows, "complex64", ("forward", "both"))
    print(f"{count} networks of {n} x {n}, loss {loss:g}")
    shown = ("forward_ms", "forward_ratio", "both_ms", "both_ratio", "error", "gradient_error")
    show(list(rows.values()), "name", *shown)
    return {"networks": count, "grid": [n, n], "loss": loss, "rows": list(rows.values())}


def main(given: list[str] | None = None) -> None:
    options = start(arguments(__doc__, "direct_complex"), given)
    turns = Turns(1, 0.0, 1) if options.smoke else Turns(options.rounds, options.visit_ms, 1)
    cases = [(2, 12, 0.02)]
    if not options.smoke:
        cases = [(32, 64, 0.02), (32, 64, 0.0), (32, 32, 0.02), (1, 64, 0.02), (8, 128, 0.02)]
    result: dict[str, Any] = {"environment": environment(options, ("scipy",))}
    result["batches"] = [measure(turns, *case) for case in cases]
    write_result(options.output, result)


if __name__ == "__main__":
    main()
