"""The `torch.library` operator behind the networks: one solve, on any backend.

A backend is anything with this, `ring` being one bool an axis::

    solve(source, conductance, leak, ring, tol, max_iterations) -> (v, iterations, residual)

Inputs come in the caller's dtypes and strides; `v` goes out as (B, \\*grid, C), `iterations` (0 for
an elimination) and relative residual norms as (B, C), in any dtype and strides. Values have been
checked; whether a network converged is judged here. A source at a node without edge and leak
counts for nothing. Derivatives are `chonn_ops.network.autograd`'s.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from chonn_ops._backends import Backends
from chonn_ops._dtypes import compute_dtype
from chonn_ops.network._checks import check_values, error

BACKENDS = Backends("chonn_ops.network", "CHONN_NETWORK_BACKEND", needs={"reference": "scipy"})


def available_backends() -> tuple[str, ...]:
    """Names that `chonn_ops.kirchhoff_network` takes as `backend` here.

    "reference" needs SciPy; "cpu" needs the compiled kernel; "triton" needs Triton with CUDA, or
    with its interpreter (``TRITON_INTERPRET=1``), which also takes tensors on the CPU.
    """
    return BACKENDS.available()


def warn_of_residuals(
    name: str, residual: Tensor, iterations: Tensor, tol: float, grid: Sequence[int]
) -> None:
    """One warning a call. An elimination (no iterations) is as exact as its arithmetic, and a
    network of NaN has no solution to miss."""
    if residual.is_cuda and torch.cuda.is_current_stream_capturing():
        return  # nothing may be read while a CUDA graph is being recorded
    late = (residual > tol) & (iterations > 0)
    count = int(late.sum())
    if count:
        size = " x ".join(str(n) for n in grid)
        warnings.warn(
            f"{name}: {count} of {late.numel()} networks above tol={tol:g} after "
            f"{int(iterations[late].max())} iterations, worst residual "
            f"{residual[late].max().item():.2e} (grid {size})",
            RuntimeWarning,
            stacklevel=2,
        )


_NAME = "chonn_ops::kirchhoff_network"
torch.library.define(
    _NAME,
    "(Tensor source, Tensor g0, Tensor? g1, Tensor? g2, Tensor leak, bool[] ring, float tol, "
    "int max_iterations, str backend, Tensor? own_leak=None, Tensor? wall=None, bool check=True) "
    "-> (Tensor, Tensor, Tensor)",
    tags=torch.Tag.pt2_compliant_tag,
)


def _network(
    source: Tensor,
    g0: Tensor,
    g1: Tensor | None,
    g2: Tensor | None,
    leak: Tensor,
    ring: Sequence[bool],
    tol: float,
    max_iterations: int,
    backend: str,
    own_leak: Tensor | None = None,
    wall: Tensor | None = None,
    check: bool = True,
) -> tuple[Tensor, Tensor, Tensor]:
    """Potentials (B, \\*grid, C), iterations (B, C) and relative residuals (B, C).

    Potentials and residuals in the dtype they were computed in. `own_leak` and `wall`, from which
    `leak` was made, are here for their values to be checked.
    """
    conductance = tuple(g for g in (g0, g1, g2) if g is not None)
    for name, tensor in zip(("leak", "g0", "g1", "g2"), (leak, *conductance), strict=False):
        if tensor.shape != source.shape:  # backends trust it with addresses
            raise error(name, f"shape {tuple(source.shape)}", tuple(tensor.shape))
    grid = source.shape[1:-1]
    if not len(grid) == len(conductance) == len(ring):
        raise error("ring", f"{len(grid)} axes, as source has", f"{len(conductance)}, {len(ring)}")
    if check:
        check_values(conductance, leak, ring, own_leak, wall)
    dtype = compute_dtype(source, leak, *conductance)
    B, C = source.shape[0], source.shape[-1]
    if B == 0:
        nothing = source.new_empty(0, C, dtype=dtype)
        return source.new_empty(source.shape, dtype=dtype), nothing.to(torch.int32), nothing
    with torch.autocast(source.device.type, enabled=False):
        v, iterations, residual = BACKENDS.choose(backend, source.device).solve(
            source, conductance, leak, tuple(ring), tol, max_iterations
        )
    warn_of_residuals("kirchhoff_network", residual, iterations, tol, grid)
    outputs = (v.to(dtype), iterations.to(torch.int32), residual.to(dtype))
    return outputs[0].contiguous(), outputs[1].contiguous(), outputs[2].contiguous()


torch.library.impl(_NAME, "default", _network)


@torch.library.register_fake(_NAME)
def _(source: Tensor, *arguments: Any) -> tuple[Tensor, Tensor, Tensor]:
    dtype = compute_dtype(source, *arguments[:4])
    networks = (source.shape[0], source.shape[-1])
    return (
        source.new_empty(source.shape, dtype=dtype),
        source.new_empty(networks, dtype=torch.int32),
        source.new_empty(networks, dtype=dtype),
    )


def fold(operator: Callable[..., Any], info: Any, in_dims: Sequence[Any], *args: Any) -> Any:
    """A vmap rule: networks are independent, so the mapped axis joins the batch of all tensors."""
    count = info.batch_size

    def folded(x: Any, dim: int | None) -> Any:
        if not isinstance(x, Tensor):
            return x
        return (x.expand(count, *x.shape) if dim is None else x.movedim(dim, 0)).flatten(0, 1)

    outputs = operator(*map(folded, args, in_dims))
    return tuple(output.unflatten(0, (count, -1)) for output in outputs), (0, 0, 0)


torch.library.register_vmap(_NAME, partial(fold, torch.ops.chonn_ops.kirchhoff_network))
