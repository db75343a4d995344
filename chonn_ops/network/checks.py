"""Checks of the networks' arguments."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from chonn_ops._dtypes import COMPLEX_DTYPES, DTYPES
from chonn_ops.checks import answer, check_choice, check_kind, check_tensor, error
from chonn_ops.network.edges import used_edges
from chonn_ops.network.graph import Graph, Joined, graph_of

AXES = 3
METHODS = ("auto", "direct", "multigrid")
# Dtypes of networks, those at one frequency included.
NETWORK_DTYPES = (*DTYPES, *COMPLEX_DTYPES)
Dtypes = Sequence[torch.dtype]
Periodic = bool | Sequence[bool]


def check_field(name: str, field: Any, dtypes: Dtypes = DTYPES) -> None:
    """Require a (B, \\*grid, C) tensor with at least one node and one channel."""
    check_tensor(name, field)
    if not 3 <= field.dim() <= AXES + 2:
        raise error(name, f"shape (B, *grid, C) with 1 to {AXES} grid axes", tuple(field.shape))
    if 0 in field.shape[1:]:
        raise error(name, "at least one node and one channel", f"shape {tuple(field.shape)}")
    if field.dtype not in dtypes:
        raise error(name, f"a dtype of {dtypes}", field.dtype)


def check_like(
    name: str, tensor: Any, field: Tensor, owner: str = "the source", dtypes: Dtypes = DTYPES
) -> None:
    """Require a tensor with the shape and the device of `field`, which messages call `owner`."""
    check_tensor(name, tensor)
    if tensor.shape != field.shape:
        expected = f"shape (B, *grid, C) = {tuple(field.shape)}"
        if owner == "the source" and tensor.shape == (1, *field.shape[1:]):
            expected += " (or, for several sources of one network, a source (B, S, *grid, C))"
        raise error(name, expected, tuple(tensor.shape))
    check_kind(name, tensor, field.device, owner, dtypes)


def check_sources(name: str, source: Any, leak: Tensor, dtypes: Dtypes = DTYPES) -> None:
    """Require (B, \\*grid, C) or (B, S, \\*grid, C), where the leak is."""
    check_tensor(name, source)
    shape = tuple(leak.shape)
    several = source.dim() == leak.dim() + 1
    if tuple(source.shape[:1] + source.shape[2:] if several else source.shape) != shape:
        raise error(name, f"shape (B, *grid, C) = {shape} or (B, S, *grid, C)", tuple(source.shape))
    check_kind(name, source, leak.device, "the network", dtypes)


def per_axis_periodic(periodic: Any, axes: int) -> tuple[Joined, ...]:
    """One bool an axis, from one for all axes or one each; a graph alone stays what it is."""
    if isinstance(periodic, tuple) and axes == 1 == len(periodic) and graph_of(periodic):
        return periodic
    closed = (periodic,) * axes if isinstance(periodic, bool) else periodic
    if (
        not isinstance(closed, (tuple, list))
        or len(closed) != axes
        or not all(isinstance(one, bool) for one in closed)
    ):
        raise error("periodic", f"a bool, or {axes} of them", repr(periodic))
    return tuple(closed)


def on_graph(conductance: Any, periodic: Any, graph: Any) -> tuple[Any, Any]:
    """What the rest of the package takes as conductances and `periodic` of circuits on a graph,
    which is one axis: one tensor, and the graph alone."""
    if graph is None:
        return conductance, periodic
    if not isinstance(graph, Graph):
        raise TypeError(f"graph: expected a Graph, got {type(graph).__name__}")
    if periodic is not False:
        raise error("periodic", "none beside a graph", repr(periodic))
    if not isinstance(conductance, Tensor):
        kind = type(conductance).__name__
        raise TypeError(f"conductance: expected one Tensor (B, E, C) with a graph, got {kind}")
    return (conductance,), (graph,)


def check_network(
    field: Tensor,
    conductance: Any,
    periodic: Periodic | tuple[Joined, ...],
    owner: str = "the source",
    dtypes: Dtypes = DTYPES,
) -> tuple[Joined, ...]:
    """Check conductances of networks with one value a node in `field`, and which axes are periodic.

    Reads no values. Returns one bool an axis, or the graph alone.
    """
    if isinstance(periodic, tuple) and periodic and (graph := graph_of(periodic)):
        (g,) = conductance
        check_tensor("conductance", g)
        B, C = field.shape[0], field.shape[-1]
        if field.dim() != 3 or field.shape[1] != graph.num_nodes:
            expected = f"shape (B, N, C) with N = {graph.num_nodes} nodes of the graph"
            raise error(owner.removeprefix("the "), expected, tuple(field.shape))
        if g.shape != (B, graph.num_edges, C):
            expected = f"shape (B, E, C) = {(B, graph.num_edges, C)}"
            raise error("conductance", expected, tuple(g.shape))
        check_kind("conductance", g, field.device, owner, dtypes)
        return periodic
    axes = field.dim() - 2
    if not isinstance(conductance, (tuple, list)):
        kind = type(conductance).__name__
        raise TypeError(f"conductance: expected a tuple of one Tensor an axis, got {kind}")
    if len(conductance) != axes:
        raise error("conductance", f"{axes} tensors, one an axis", len(conductance))
    for axis, g in enumerate(conductance):
        check_like(f"conductance[{axis}]", g, field, owner, dtypes)
    return per_axis_periodic(periodic, axes)


def check_arguments(
    source: Any,
    conductance: Any,
    leak: Any,
    periodic: Periodic | tuple[Joined, ...],
    tol: float,
    max_iterations: int,
    method: str = "auto",
    dtypes: Dtypes = DTYPES,
) -> tuple[Joined, ...]:
    """Check shapes, dtypes, devices and options, without reading a tensor's values.

    Returns whether each axis is periodic, or the graph alone.
    """
    check_field("source", source, dtypes)
    closed = check_network(source, conductance, periodic, dtypes=dtypes)
    check_like("leak", leak, source, dtypes=dtypes)
    check_choice("method", method, METHODS)
    if not 0 < _number(tol) < 1:
        raise error("tol", "above 0 and below 1", tol)
    if not 1 <= _number(max_iterations) < math.inf or _number(max_iterations) % 1:
        raise error("max_iterations", "a whole number of at least 1", max_iterations)
    if method == "multigrid" and any_complex(source, leak, *conductance):
        raise error("method", "'auto' or 'direct' for complex numbers", repr(method))
    return closed


def _number(value: Any) -> float:
    """NaN for what is no number."""
    try:
        return float(value)
    except (TypeError, ValueError):
        return math.nan


def any_complex(*tensors: Tensor | None) -> bool:
    """Whether a network has a complex number, so that it is one at a frequency."""
    return any(tensor is not None and tensor.is_complex() for tensor in tensors)


def smallest_of(tensor: Tensor) -> float:
    """The smallest entry, NaN where one is; 0 of none. Reads values."""
    for dim, stride in enumerate(tensor.stride()):
        if stride == 0:  # expanded: all entries equal the first
            tensor = tensor.narrow(dim, 0, min(1, tensor.shape[dim]))
    return float(tensor.amin()) if tensor.numel() else 0.0


def recording(field: Tensor) -> bool:
    """Whether a CUDA graph is being recorded: then nothing may be read from the device."""
    return field.is_cuda and torch.cuda.is_current_stream_capturing()


def check_not_negative(name: str, tensor: Tensor) -> float | None:
    """Refuse negative values where values may be read; a NaN passes.

    Returns the smallest value, None where it may not be read.
    """
    smallest = answer(lambda: smallest_of(tensor), tensor)
    if smallest is not None and smallest < 0:
        raise error(name, ">= 0 everywhere", f"minimum {smallest:g}")
    return smallest


def check_positive(name: str, tensor: Tensor) -> None:
    """Refuse values that are not above 0 where values may be read; a NaN passes."""
    smallest = answer(lambda: smallest_of(tensor) if tensor.numel() else 1.0, tensor)
    if smallest is not None and smallest <= 0:
        raise error(name, "> 0 everywhere", f"minimum {smallest:g}")


def refuse_negative(
    conductance: Sequence[Tensor], leak: Tensor, periodic: Sequence[Joined]
) -> None:
    """Refuse negative values where values may be read."""
    for axis, (g, wraps) in enumerate(zip(conductance, periodic, strict=True)):
        # Reading a whole tensor is faster than reading its edges only.
        smallest = answer(partial(smallest_of, g), g)
        if smallest is not None and not smallest >= 0:
            check_not_negative(f"conductance[{axis}]", used_edges(g, axis, wraps))
    check_not_negative("leak", leak)


def resonance(residual: float, tol: float, network: tuple[int, ...]) -> RuntimeError:
    """The error of a complex network (batch, channel) that complex128 does not solve."""
    return RuntimeError(
        f"kirchhoff_network: expected a residual of at most tol={tol:g}, got {residual:.2e} in "
        f"network {network} (batch, channel): it is at a resonance, or so near that complex128 has "
        "no digits left, or a part of it has no leak. To solve it: loss (of a wave, a negative "
        "imaginary part of the leak; of admittances, a positive real part), or another frequency"
    )
