"""The contenders of the scan benchmark, their inputs, and how one is called."""

from __future__ import annotations

from collections.abc import Callable

import torch
from _harness import Call, version
from torch import Tensor

from chonn_ops.scan import available_backends, kirchhoff_scan

COMPILED_STEPS = 16

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


def compiled_loop() -> Scan:
    """The loop with `torch.compile` of a body of `COMPILED_STEPS` steps, shapes static.

    More steps a body are little faster and take far longer to compile; one step at a time pays
    the call of a compiled function L times.
    """
    body = torch.compile(_steps, dynamic=False)

    def scan(u: Tensor, delta: Tensor, decay: Tensor, b: Tensor, c: Tensor, d: Tensor) -> Tensor:
        v, out = u.new_zeros(u.shape[0], *decay.shape), []
        for part in zip(*(t.split(COMPILED_STEPS, 1) for t in (u, delta, b, c)), strict=True):
            v, y = body(v, part[0], part[1], decay, part[2], part[3])
            out.append(y)
        return torch.cat(out, dim=1) + d * u

    return scan


def mambapy_scan(
    u: Tensor, delta: Tensor, decay: Tensor, b: Tensor, c: Tensor, d: Tensor
) -> Tensor:
    from mambapy.pscan import pscan

    retention = torch.exp(-delta[..., None] * decay)
    inflow = (1 - retention) / decay * b[:, :, None, :] * u[..., None]
    states = pscan(retention, inflow)
    return (states @ c[..., None])[..., 0] + d * u


def contenders(with_compiled: bool) -> dict[str, Scan]:
    """Name and function of all that can run here."""
    found: dict[str, Scan] = {}
    for name, backend in (("chonn-ops", "cpu"), ("torch", "torch")):
        if backend in available_backends():
            found[name] = lambda *inputs, backend=backend: kirchhoff_scan(*inputs, backend=backend)
    if version("mambapy"):
        found["mambapy"] = mambapy_scan
    if with_compiled:
        torch.compiler.reset()
        found["compiled loop"] = compiled_loop()
    return found | {"loop": loop}


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
    inputs = [*streams[:2], decay, *streams[2:], d]
    return [tensor.requires_grad_() for tensor in inputs]


def forward_call(scan: Scan, inputs: list[Tensor]) -> Call:
    def call() -> None:
        with torch.no_grad():
            scan(*inputs)

    return call


def both_call(scan: Scan, inputs: list[Tensor]) -> Call:
    grad = torch.randn_like(inputs[0])

    def call() -> None:
        torch.autograd.grad(scan(*inputs), inputs, grad)

    return call


def prepare(column: str, scan: Scan, inputs: list[Tensor]) -> Call:
    return (forward_call if column == "forward" else both_call)(scan, inputs)


def prepare_contender(name: str, shape: tuple[int, ...]) -> Call:
    """A forward and backward, to be made in another process."""
    return both_call(contenders(name == "compiled loop")[name], make_inputs(shape))


def prepare_ours(column: str, shape: tuple[int, ...], dtype: torch.dtype) -> Call:
    """A scan as a user calls it, to be made in another process."""
    return prepare(column, kirchhoff_scan, make_inputs(shape, dtype))
