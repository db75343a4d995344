"""Time and memory of the selective Kirchhoff scan on the CPU, beside its peers, in one run.

Sections: rows (the peers at each shape), fields (directions and boundaries of a field). Inputs are
random, the same for all.

Contenders
    chonn-ops       `kirchhoff_scan`, backend "cpu", as a user calls it
    torch           `kirchhoff_scan`, backend "torch" (the fallback without a compiler)
    mambapy         `mambapy.pscan.pscan` on materialised (B, L, D, N) coefficients; their making
                    and the readout are included
    compiled loop   `torch.compile` of sixteen steps of the loop
    loop            one PyTorch step after another; forward only
    exp alone       only `torch.exp(delta[..., None] * decay)`, as whatever materialises it needs

Columns
    forward, both   _ms: without autograd; of forward and backward for all inputs
    _ratio          that time over the time of chonn-ops in the same run
    peak_MiB        highest resident memory during forward and backward, above the memory before,
                    in a fresh process; Linux only
"""

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from chonn_lab.benchmarks.harness import Call, Row, Run, fresh_peak, gradients, inference, main_of
from chonn_ops.scan import BOUNDARIES, DIRECTIONS, kirchhoff_scan, scan_field

COMPILED_STEPS = 16
SHAPES = ((8, 1024, 64, 16), (2, 3136, 192, 1), (4, 4096, 20, 16), (32, 256, 256, 8))
SMOKE_SHAPES = ((2, 64, 16, 4),)
FIELD = (4, 64, 64, 64, 16)  # B, height, width, D, N
SMOKE_FIELD = (2, 8, 8, 16, 4)
RASTER = ("matched", "periodic")  # boundaries of the scan in one direction

Scan = Callable[..., Tensor]


def loop(u: Tensor, delta: Tensor, decay: Tensor, b: Tensor, c: Tensor, d: Tensor) -> Tensor:
    return _steps(u.new_zeros(u.shape[0], *decay.shape), u, delta, decay, b, c)[1] + d * u


def _steps(
    v: Tensor, u: Tensor, delta: Tensor, decay: Tensor, b: Tensor, c: Tensor
) -> tuple[Tensor, Tensor]:
    """One step after another: the last state and the readouts."""
    out = []
    for k in range(u.shape[1]):
        retention = torch.exp(-delta[:, k, :, None] * decay)
        inflow = b[:, k, None, :] * u[:, k, :, None]
        v = retention * v + (1 - retention) / decay * inflow
        out.append((c[:, k, None, :] * v).sum(-1))
    return v, torch.stack(out, dim=1)


@functools.cache
def _compiled() -> Callable[..., tuple[Tensor, Tensor]]:
    return torch.compile(_steps, dynamic=False)


def compiled_loop(
    u: Tensor, delta: Tensor, decay: Tensor, b: Tensor, c: Tensor, d: Tensor
) -> Tensor:
    """The loop with `torch.compile` of a body of `COMPILED_STEPS` steps, shapes static.

    More steps a body are little faster and take far longer to compile; one step at a time pays
    the call of a compiled function L times.
    """
    v, out = u.new_zeros(u.shape[0], *decay.shape), []
    for part in zip(*(t.split(COMPILED_STEPS, 1) for t in (u, delta, b, c)), strict=True):
        v, y = _compiled()(v, part[0], part[1], decay, part[2], part[3])
        out.append(y)
    return torch.cat(out, dim=1) + d * u


def mambapy_scan(
    u: Tensor, delta: Tensor, decay: Tensor, b: Tensor, c: Tensor, d: Tensor
) -> Tensor:
    from mambapy.pscan import pscan

    retention = torch.exp(-delta[..., None] * decay)
    inflow = (1 - retention) / decay * b[:, :, None, :] * u[..., None]
    states = pscan(retention, inflow)
    return (states @ c[..., None])[..., 0] + d * u


SCANS: dict[str, Scan] = {
    "chonn-ops": functools.partial(kirchhoff_scan, backend="cpu"),
    "torch": functools.partial(kirchhoff_scan, backend="torch"),
    "mambapy": mambapy_scan,
    "compiled loop": compiled_loop,
    "loop": loop,
}


def make_inputs(
    shape: tuple[int, ...], dtype: torch.dtype = torch.float32, grid: tuple[int, ...] = ()
) -> list[Tensor]:
    """u, delta, decay, b, c, d; streams in `dtype`, of shape (B, L, .) or (B, \\*grid, .)."""
    B, L, D, N = shape
    torch.manual_seed(0)
    u, step = torch.randn(B, L, D), torch.nn.functional.softplus(torch.randn(B, L, D))
    b, c = torch.randn(B, L, N), torch.randn(B, L, N)
    decay, d = torch.rand(D, N) * 4 + 0.1, torch.randn(D)
    if grid:
        u, step, b, c = (t.unflatten(1, grid) for t in (u, step, b, c))
    streams = [t.to(dtype) for t in (u, step, b, c)]
    return [*streams[:2], decay, *streams[2:], d]


def both(name: str, shape: tuple[int, ...]) -> Call:
    """A forward and backward, to be made in another process, too."""
    return gradients(SCANS[name], make_inputs(shape))


def contender(name: str, shape: tuple[int, ...]) -> Row:
    calls: dict[str, Call] = {"forward": inference(SCANS[name], make_inputs(shape))}
    calls["forward"]()
    row: Row = {"shape": list(shape), "calls": calls}
    if name != "loop":  # its backward would take most of the run
        calls["both"] = both(name, shape)
        row["peak_bytes"] = fresh_peak(both, name, shape)
    return row


def exponentials(shape: tuple[int, ...]) -> Row:
    _, step, decay, *_ = make_inputs(shape)
    call = lambda: torch.exp(step[..., None] * decay)  # noqa: E731
    return {"shape": list(shape), "calls": {"forward": call}}


def shapes(run: Run) -> list[Row]:
    """Rows of all contenders at each shape."""
    rows = []
    for shape in SMOKE_SHAPES if run.smoke else SHAPES:
        torch.compiler.reset()
        _compiled.cache_clear()
        names = [name for name in SCANS if not run.smoke or name != "compiled loop"]
        makes: dict[str, Any] = {n: functools.partial(contender, n, shape) for n in names}
        makes["exp alone"] = functools.partial(exponentials, shape)
        rows += run.section(makes, shape=shape)["rows"]
    return rows


def field_call(column: str, directions: str, boundary: str, field: tuple[int, ...]) -> Call:
    B, height, width, D, N = field
    inputs = make_inputs((B, height * width, D, N), grid=(height, width))
    scan = functools.partial(scan_field, directions=directions, boundary=boundary)
    return (inference if column == "forward" else gradients)(scan, inputs)


def fields(run: Run) -> dict[str, Any]:
    """Times and peak memory of each mode with each boundary that it has."""
    field = SMOKE_FIELD if run.smoke else FIELD

    def make(directions: str, boundary: str) -> Row:
        row: Row = {"directions": directions, "boundary": boundary, "calls": {}}
        for column in ("forward", "both"):
            call = row["calls"][column] = field_call(column, directions, boundary, field)
            call()
            peak = fresh_peak(field_call, column, directions, boundary, field)
            row[f"{column}_peak_bytes"] = peak
        return row

    # One direction has no second scan that a mirror image could feed.
    boundaries = RASTER[:1] if run.smoke else BOUNDARIES
    pairs = [(d, b) for d in DIRECTIONS for b in boundaries if d != "raster" or b in RASTER]
    makes = {f"{d} {b}": functools.partial(make, d, b) for d, b in pairs}
    return run.section(makes, field=list(field))


main = main_of(__doc__, "scan", {"rows": shapes, "fields": fields}, ["mambapy"])

if __name__ == "__main__":
    main()
