"""The `torch.library` operator behind the networks: one solve, on any backend.

A backend is anything with this, `ring` being one bool an axis::

    solve(source, conductance, leak, ring, tol, max_iterations) -> (v, iterations, residual)

Inputs come in the caller's dtypes and strides; `v` goes out as (B, \\*grid, C), `iterations` (0 for
an elimination) and relative residual norms as (B, C), in any dtype and strides. Values have been
checked; whether a network converged is judged here. A source at a node without edge and leak
counts for nothing. Derivatives are `chonn_ops.network._autograd`'s.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import os
import warnings
from collections.abc import Sequence
from functools import cache
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

from chonn_ops._dtypes import compute_dtype
from chonn_ops._library import warn_of_fallback
from chonn_ops.network._checks import check_values, error

# The kernels return tuples from helpers; older releases were not tried.
_TRITON = (3, 9)


@cache
def _module(name: str) -> Any:
    """A backend of this package, imported when asked for; None where it has not been installed."""
    path = f"chonn_ops.network.{name}"
    return importlib.import_module(path) if find_spec(path) else None


def _cpu() -> Any:
    """The compiled kernel, or None without one that runs here."""
    module = _module("_cpu")
    return module if module is not None and module.available_isas() else None


@cache
def _triton() -> Any:
    """The Triton backend, or None without a Triton that has what it needs."""
    if find_spec("triton") is None:
        return None
    version = tuple(int(part) for part in importlib.metadata.version("triton").split(".")[:2])
    return _module("_triton") if version >= _TRITON else None


def _interprets_triton() -> bool:
    return os.environ.get("TRITON_INTERPRET") == "1"


def _loaded(name: str) -> Any:
    """The backend of this name if this machine has what it needs, else None."""
    if name == "reference":
        return _module("reference") if find_spec("scipy") else None
    if name == "cpu":
        return _cpu()
    if name == "triton":
        return _triton() if torch.cuda.is_available() or _interprets_triton() else None
    return _module("_torch")


def available_backends() -> tuple[str, ...]:
    """Names that `chonn_ops.kirchhoff_network` takes as `backend` here.

    "reference" needs SciPy; "cpu" needs the compiled kernel; "triton" needs Triton with CUDA, or
    with its interpreter (``TRITON_INTERPRET=1``), which also takes tensors on the CPU.
    """
    names = ("reference", "torch", "cpu", "triton")
    return tuple(name for name in names if _loaded(name) is not None)


def _backend(name: str, device: torch.device) -> Any:
    """The forced backend (argument, then environment), else the fastest for the device.

    Resolved when the operator runs, so that an exported program picks the machine it runs on.
    """
    forced = name or os.environ.get("CHONN_NETWORK_BACKEND", "")
    if not forced:  # asks nothing about CUDA for tensors elsewhere: asking may start its driver
        compiled = {"cpu": _cpu, "cuda": _triton}.get(device.type, lambda: None)()
        if compiled is None and device.type == "cpu":
            warn_of_fallback()
        return compiled or _module("_torch") or _module("reference")
    known = available_backends()
    if forced not in known:
        raise error("backend", f"one of {known}", repr(forced))
    if forced == "cpu" and device.type != "cpu":
        raise error("backend 'cpu'", "tensors on the CPU", device)
    if forced == "triton" and device.type != "cuda" and not _interprets_triton():
        raise error("backend 'triton'", "tensors on a CUDA device", device)
    return _loaded(forced)


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
        v, iterations, residual = _backend(backend, source.device).solve(
            source, conductance, leak, tuple(ring), tol, max_iterations
        )
    warn_of_residuals("kirchhoff_network", residual, iterations, tol, grid)
    outputs = (v.to(dtype), iterations.to(torch.int32), residual.to(dtype))
    return outputs[0].contiguous(), outputs[1].contiguous(), outputs[2].contiguous()


torch.library.register_kernel(_NAME, None, _network)


@torch.library.register_fake(_NAME)
def _(
    source: Tensor,
    g0: Tensor,
    g1: Tensor | None,
    g2: Tensor | None,
    leak: Tensor,
    ring: Sequence[bool],  # noqa: ARG001
    tol: float,  # noqa: ARG001
    max_iterations: int,  # noqa: ARG001
    backend: str,  # noqa: ARG001
    own_leak: Tensor | None = None,  # noqa: ARG001
    wall: Tensor | None = None,  # noqa: ARG001
    check: bool = True,  # noqa: ARG001
) -> tuple[Tensor, Tensor, Tensor]:
    dtype = compute_dtype(source, g0, g1, g2, leak)
    networks = (source.shape[0], source.shape[-1])
    return (
        source.new_empty(source.shape, dtype=dtype),
        source.new_empty(networks, dtype=torch.int32),
        source.new_empty(networks, dtype=dtype),
    )


def _fold(info: Any, in_dims: tuple[Any, ...], *args: Any) -> tuple[Any, Any]:
    """The vmap rule: networks are independent, so the mapped axis joins the batch."""
    count = info.batch_size

    def folded(tensor: Tensor | None, dim: int | None) -> Tensor | None:
        if tensor is None:
            return None
        moved = tensor.expand(count, *tensor.shape) if dim is None else tensor.movedim(dim, 0)
        return moved.flatten(0, 1)

    fields = [folded(tensor, dim) for tensor, dim in zip(args[:5], in_dims[:5], strict=True)]
    outputs = torch.ops.chonn_ops.kirchhoff_network(*fields, *args[5:])
    return tuple(output.unflatten(0, (count, -1)) for output in outputs), (0, 0, 0)


torch.library.register_vmap(_NAME, _fold)
