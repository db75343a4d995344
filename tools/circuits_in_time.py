"""Circuits in time, measured: energy, numerical diffusion, iterations and times of a step.

The numbers of docs/networks.md, "Circuits in time", on one thread. Takes about a minute.

    python tools/circuits_in_time.py
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from pages.blocks import markdown
from torch import Tensor

from chonn_ops import (
    CHONNFNO2d,
    CKBOptions,
    RCNetworkCell,
    directed_network,
    kirchhoff_network,
    lc_step,
    rc_step,
)
from chonn_ops.network import advection_step, lc_energy, upwind_conductance, zero_current

SIZE, BATCH, CHANNELS = 64, 8, 8
STEPS = 1000
ROUNDS = 3


def main() -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    with torch.no_grad():
        energies()
        numerical_diffusion()
        solves()
        steps()


def table(header: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    print("\n" + markdown(header, [list(map(str, row)) for row in rows]), end="")


def spread(*shape: int, decades: float = 2.0) -> Tensor:
    return 10.0 ** (decades * (torch.rand(shape, dtype=torch.float64) - 0.5))


def energies() -> None:
    """How far the energy of LC networks goes in 1,000 steps, relative to where it was."""
    rows = []
    grid, ends = (1, 32, 32, 4), "short"
    start = zero_current(torch.randn(grid, dtype=torch.float64), ends)
    L = [spread(*i.shape) for i in start.current]
    C = spread(*grid)
    for dtype in (torch.float64, torch.float32):
        for tol in (1e-5, 1e-2):
            state = zero_current(start.voltage.to(dtype), ends)
            coils, capacitors = [x.to(dtype) for x in L], C.to(dtype)

            def energy(state: Any) -> Tensor:
                wide = type(state)(state.voltage.double(), [i.double() for i in state.current])
                return lc_energy(wide, [x.double() for x in coils], capacitors.double())  # noqa: B023

            first, worst, iterations = energy(state), 0.0, 0
            for _ in range(STEPS):
                state, info = lc_step(
                    state, coils, capacitors, 0.5, ends=ends, tol=tol, return_info=True
                )
                worst = max(worst, (energy(state) / first - 1).abs().max().item())
                iterations = max(iterations, int(info.iterations.max()))
            rows.append((str(dtype)[6:], f"{tol:g}", iterations, f"{worst:.1e}"))
    table(("LC, 32 x 32", "tol", "iterations", f"energy off, worst of {STEPS} steps"), rows)


def numerical_diffusion() -> None:
    """What constant advection spreads by, in units of |a| h / 2."""
    rows, n, count = [], 4001, 20
    x = (torch.arange(n, dtype=torch.float64) - n // 2)[None, :, None]
    for courant in (0.1, 1.0, 5.0):
        v = (x == 0).double()
        for _ in range(count):
            v = advection_step(v, (torch.ones_like(v),), courant, ends="ring")
        mean = (x * v).sum().item()
        variance = ((x - mean).square() * v).sum().item()
        measured = variance / (2 * courant * count) / 0.5
        rows.append((courant, f"{mean / (courant * count):.9f}", f"{measured:.9f}", 1 + courant))
    table(("a dt / h", "shift / a t", "D / (a h / 2), measured", "expected"), rows)


def milliseconds(call: Callable[[], Any]) -> float:
    """The quickest call, of one processor: others may be at work on the machine."""
    call()
    times = []
    for _ in range(ROUNDS):
        start = time.process_time()
        call()
        times.append(time.process_time() - start)
    return 1000 * min(times)


def whirls(speed: float) -> list[Tensor]:
    """Velocities through the faces of a flow round four whirls, without divergence."""
    angle = 2 * math.pi * torch.arange(SIZE) / SIZE
    stream = speed * SIZE / 10 * torch.sin(angle)[:, None] * torch.sin(angle)
    flow = stream - stream.roll(1, 1), stream.roll(1, 0) - stream
    return [a[None, ..., None].expand(BATCH, SIZE, SIZE, CHANNELS) for a in flow]


def solves() -> None:
    """One solve of each kind on the same resistors, to 1e-5: forward alone, and with gradients."""
    source = torch.randn(BATCH, SIZE, SIZE, CHANNELS)
    g = tuple(spread(*source.shape).float() for _ in range(2))
    rows = []
    for kind, level in (("a step, C / dt = 1", 1.0), ("steady, leak 1e-3", 1e-3)):
        leak = torch.full_like(source, level)
        calls: dict[str, Callable[..., Any]] = {
            f"resistors, {backend or 'default'}": lambda s, backend=backend, leak=leak, **options: (
                kirchhoff_network(s, g, leak, ends="ring", backend=backend, **options)
            )
            for backend in (None, "torch")
        }
        for speed in (0.0, 1.0, 100.0):
            f, b = upwind_conductance(whirls(speed), ends="ring")
            ways = [tuple(x + y for x, y in zip(way, g, strict=True)) for way in (f, b)]
            calls[f"directed, flow {speed:g}"] = lambda s, ways=ways, leak=leak, **options: (
                directed_network(s, ways[0], ways[1], leak, ends="ring", **options)
            )
        for name, call in calls.items():
            iterations = call(source, return_info=True)[1].iterations.max().item()
            forward = milliseconds(lambda call=call: call(source))

            def both(call: Callable[..., Any] = call) -> None:
                with torch.enable_grad():
                    call(source.requires_grad_()).sum().backward()

            rows.append((kind, name, iterations, f"{forward:.0f}", f"{milliseconds(both):.0f}"))
            source.requires_grad_(False)
    networks = f"{BATCH * CHANNELS} of {SIZE} x {SIZE}"
    table((networks, "solve", "iterations", "forward, ms", "and backward, ms"), rows)


def steps() -> None:
    """A forward step of each kind beside an FNO's."""
    v = torch.randn(BATCH, SIZE, SIZE, CHANNELS)
    g = tuple(spread(*v.shape).float() for _ in range(2))
    leak, state = torch.full_like(v, 1e-3), zero_current(v, "ring")
    cell, features = RCNetworkCell(24, CHANNELS, ends="ring"), torch.randn(BATCH, SIZE, SIZE, 24)
    fno = CHONNFNO2d(1, modes1=12, modes2=12, width=20, initial_step=1, ckb=CKBOptions(order=0))
    x, places = torch.randn(BATCH, SIZE, SIZE, 1), torch.rand(BATCH, SIZE, SIZE, 2)
    calls = {
        "FNO2d, width 20, 12 modes, 4 layers": lambda: fno(x, places),
        "rc_step, tol 1e-5": lambda: rc_step(v, g, leak, 1.0, 1.0, ends="ring"),
        "rc_step, tol 1e-3": lambda: rc_step(v, g, leak, 1.0, 1.0, ends="ring", tol=1e-3),
        "lc_step, tol 1e-3": lambda: lc_step(state, (1.0, 1.0), 1.0, 1.0, ends="ring", tol=1e-3),
        "RCNetworkCell(24), tol 1e-3": lambda: cell.step(features),
        "advection_step, flow 1, tol 1e-3": lambda: advection_step(
            v, whirls(1.0), 1.0, ends="ring", tol=1e-3
        ),
        "advection_step, flow 1, split": lambda: advection_step(
            v, whirls(1.0), 1.0, ends="ring", split=True
        ),
    }
    times = {name: milliseconds(call) for name, call in calls.items()}
    first = next(iter(times.values()))
    rows = [(name, f"{ms:.1f}", f"{ms / first:.2f}x") for name, ms in times.items()]
    table((f"batch {BATCH}, {CHANNELS} channels, {SIZE} x {SIZE}", "ms", "/ FNO"), rows)


if __name__ == "__main__":
    main()
