"""`kirchhoff_network`: the potentials of grids of nodes under Kirchhoff's current law."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, overload

import torch
from torch import Tensor

from chonn_ops._backends import requested
from chonn_ops._dtypes import compute_dtype, potential_dtype
from chonn_ops.checks import answer, check_choice, error, refuse_trace
from chonn_ops.network.autograd import solve_network
from chonn_ops.network.checks import (
    NETWORK_DTYPES,
    Periodic,
    check_arguments,
    check_sources,
    on_graph,
)
from chonn_ops.network.edges import backward_error
from chonn_ops.network.graph import Graph, Joined, graph_of, packed_of
from chonn_ops.network.ground import Ungrounded, lost_networks
from chonn_ops.network.methods import choose, exceed_digits
from chonn_ops.network.operator import BACKENDS

Method = Literal["auto", "direct", "multigrid"]
_MOST_ITERATIONS = 2**31 - 1  # the kernels count in int32


class NetworkInfo(NamedTuple):
    """How the solves went, as `kirchhoff_network` returns it with ``return_info=True``.

    Attributes
    ----------
    iterations : Tensor, shape (B, C)
        int32; 0 where the network was eliminated without iterations.
    backward_error : Tensor, shape (B, C), or (B, S, C) for S sources
        :math:`\\max_p |s - A v|_p / (|A||v| + |s|)_p` of the potentials v that are returned,
        computed in float64, with :math:`(|A||v|)_p = |l_p v_p| + \\sum_q |g_{pq}| (|v_p| + |v_q|)`:
        the least relative change of leaks, conductances and sources that can make v exact [1]_.
        About the rounding of v's dtype where the network was eliminated. 0 only where v is exact;
        NaN where an input is not finite. It has no gradient, and costs a pass over the fields.

    method : str
        "direct" if all networks were eliminated at once, else "multigrid", which may have
        eliminated those above `tol`. Where no value may be read, as on a GPU, `iterations` of 0 say
        that "multigrid" eliminated at once, too. Empty in a program that `torch.compile` or
        `torch.export` has traced.
    reason : str
        Why, as a sentence.

    References
    ----------
    .. [1] W. Oettli, W. Prager, "Compatibility of approximate solution of linear equations with
       given error bounds for coefficients and right-hand sides", Numerische Mathematik 6 (1964).
    """

    iterations: Tensor
    backward_error: Tensor
    method: str
    reason: str


def solve_checked(
    source: Tensor,
    conductance: Sequence[Tensor],
    leak: Tensor,
    periodic: Sequence[Joined],
    tol: float,
    max_iterations: int,
    backend: str | None,
    method: str = "auto",
    ungrounded: Ungrounded = "error",
    rates: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Solve networks whose arguments have been checked.

    `rates`: as in `chonn_ops.network.ground`. Returns potentials in the dtype of the solve,
    iterations and the residuals that were compared with `tol`.
    """
    refuse_trace("kirchhoff_network")
    g = (*conductance, None, None)[:3]
    closed, graph = packed_of(periodic)
    most = min(int(max_iterations), _MOST_ITERATIONS)
    options = (closed, float(tol), most, requested(backend), method, graph)
    network = (*g, leak, *options)
    check_choice("ungrounded", ungrounded, ("error", "nan"))
    if ungrounded == "error":
        return solve_network(source, network, rates=rates)
    lost = lost_networks(source, network)
    solved = solve_network(torch.where(lost, 0, source), network, rates=rates)
    # Behind the solve, so that gradients of these networks are 0.
    return torch.where(lost, math.nan, solved[0]), *solved[1:]


@overload
def kirchhoff_network(
    source: Tensor,
    conductance: Sequence[Tensor] | Tensor,
    leak: Tensor,
    *,
    periodic: Periodic = False,
    graph: Graph | None = None,
    tol: float = 1e-5,
    max_iterations: int = 300,
    method: Method = "auto",
    return_info: Literal[False] = False,
    backend: str | None = None,
    ungrounded: Ungrounded = "error",
) -> Tensor: ...


@overload
def kirchhoff_network(
    source: Tensor,
    conductance: Sequence[Tensor] | Tensor,
    leak: Tensor,
    *,
    periodic: Periodic = False,
    graph: Graph | None = None,
    tol: float = 1e-5,
    max_iterations: int = 300,
    method: Method = "auto",
    return_info: Literal[True],
    backend: str | None = None,
    ungrounded: Ungrounded = "error",
) -> tuple[Tensor, NetworkInfo]: ...


def kirchhoff_network(
    source: Tensor,
    conductance: Sequence[Tensor] | Tensor,
    leak: Tensor,
    *,
    periodic: Periodic = False,
    graph: Graph | None = None,
    tol: float = 1e-5,
    max_iterations: int = 300,
    method: Method = "auto",
    return_info: bool = False,
    backend: str | None = None,
    ungrounded: Ungrounded = "error",
) -> Tensor | tuple[Tensor, NetworkInfo]:
    r"""Solve Kirchhoff's current law at every node of a grid or graph, one network a batch and
    channel.

    .. math::

        \sum_q g_{pq} (v_p - v_q) + l_p v_p = s_p

    over the neighbours q of each node p along 1, 2 or 3 axes. The matrix is symmetric and an
    M-matrix. For any conductances :math:`v \ge 0` where :math:`s \ge 0`,
    :math:`|v| \le \max |s| / \min l`, and the network dissipates the power :math:`s \cdot v`.

    Complex numbers make it a network at a frequency, or a time-harmonic wave, see Notes.

    Real networks are eliminated (`method` "direct"), where no contrast costs potentials a digit, or
    iterated ("multigrid"), which is faster in large volumes. A gradient costs one more solve; a
    direct forward keeps its factors for it, if they take at most 1 GiB. Gradients of eliminated
    networks have digits of their own where potentials decay, and where small leaks lift them all.

    This is the plain operator, which knows nodes, edges and leaks. `diffusion` makes them from an
    equation, its walls included.

    Parameters
    ----------
    source : Tensor, shape (B, \*grid, C) or (B, S, \*grid, C)
        Current :math:`s_p` into each node, 1 to 3 grid axes. bfloat16, float16, float32, float64,
        complex64 or complex128. The solve is float64 if any input is float64 or complex128, else
        float32, also under autocast, and complex if any input is complex. S sources share one
        elimination of their networks.
    conductance : sequence of Tensor, shape (B, \*grid, C)
        :math:`g_{pq}`, one tensor an axis, >= 0 if all inputs are real: entry p joins node p and
        the next one along that axis. The last entry along an axis counts where it is periodic only:
        it joins the last node to the first. With `graph` one tensor (B, E, C), an entry an edge.
    leak : Tensor, shape (B, \*grid, C)
        Conductance :math:`l_p` from each node to ground, >= 0 if all inputs are real. A connected
        part of a network without leak, such as a node with neither edge nor leak, has potential 0
        and must not have a source, see `ungrounded`.
    periodic : bool or sequence of bool
        Whether an edge joins the last node of an axis and the first: one for all axes, or one each.
    graph : Graph, optional
        The nodes and edges, instead of a grid: sources and leaks are (B, N, C) then. Circuits on a
        graph are eliminated.
    tol : float
        Where iterations stop: at :math:`|s - A v|_2 \le tol \, |s|_2` and an estimated error of
        potentials of at most :math:`tol \max |v| / 2` of the network, see
        `chonn_ops.network.torch.Progress`. So potentials below `tol` of the largest, and what they
        make of gradients, may have no digits. A direct solve is right to rounding.
    max_iterations : int
        Most iterations of multigrid; "auto" stops after 12 (40 on three axes) where it can
        eliminate the rest.
    method : {"auto", "direct", "multigrid"}
        "auto" eliminates at once, on the compiled and the Triton kernels, grids of two axes with at
        most 512 x 512 nodes and of three with at most 12 x 12 x 12, in groups of networks whose
        factors are predicted to take at most 2 GiB. It iterates all others, and eliminates
        those that stay above `tol`, up to 512 x 512 or 32 x 32 x 32 nodes and 2 GiB a network. It
        eliminates networks of these sizes at once if the leaks of one, all or those of a part, are
        below the rounding of its largest conductance.
        "direct" eliminates all that memory holds. "multigrid" only iterates.
        The backend "reference" is direct in any case.
    return_info : bool
        Also return iterations and backward error of each network.
    backend : {"reference", "torch", "cpu", "triton"}, optional
        Default: the environment variable ``CHONN_NETWORK_BACKEND``, else by device.
    ungrounded : {"error", "nan"}
        What a source in a part without ground makes of its network: a ValueError that names it, or
        NaN for all its potentials, which have no gradient then. Other networks are not affected.
        "nan" reads values on a GPU, too.

    Returns
    -------
    v : Tensor, shape (B, \*grid, C)
        Potentials :math:`v_p`, in ``source.dtype`` or the complex dtype of its precision, in the
        unit of source over conductance. A network with a NaN or an infinity in an input is all NaN;
        the others are not affected.
    info : NetworkInfo
        Only with `return_info`.

    Raises
    ------
    TypeError
        Something else than a Tensor.
    ValueError
        Wrong shape, dtype or device; a negative conductance or leak (checked on the CPU only,
        because reading values stalls a GPU); a source in a connected part without leak, whether or
        not the part's sources sum to 0, which is named (by all backends but "triton", which reads
        no value: there one node of the part has potential 0, and the backward error is large unless
        the sources sum to 0); an unknown method; a `tol` not between 0 and 1; a `max_iterations`
        below 1; an unknown or unavailable backend.
    RuntimeError
        A network is above `tol` after `max_iterations` and too large to be eliminated, or `method`
        is "multigrid", or a complex network is at a resonance, or factors would take more than all
        memory, or more than 2 GiB for one circuit on a graph. The message says what to change.

    Notes
    -----
    A conductance of 0 that leads to a part without ground has a derivative from above, which its
    gradient is, if all such edges of the part rise together by equal amounts, or in a circuit of
    `diffusion` as those of one cell do: `chonn_ops.network.ground` proves it. On a GPU, where
    values are not read, gradients take the potentials of such parts as 0.

    If any input is complex, conductances are admittances of coils, capacitors and resistors, or
    the equation is :math:`-\nabla (k \nabla u) - \omega^2 c u - i \omega d u = f`. Then no sign is
    checked, and real numbers may be negative. Time goes as :math:`e^{-i \omega t}`, so loss is a
    negative imaginary part of a wave's leak and a positive real part of an admittance. Passive
    networks, which have no gain anywhere, are recommended: they have no resonance where there is
    loss.

    Complex networks are eliminated, whatever `tol`; "multigrid" is refused. complex64 on the
    compiled kernel: factors in complex64, and steps of refinement with residuals in complex128, one
    at least, until the residual is at most `tol`; networks that stay above it are eliminated in
    complex128. Otherwise: factors in complex128, refined to rounding where the input is complex128.
    What is above `tol` then is at a resonance, a `RuntimeError`. Gradients follow PyTorch: for a
    real loss, the conjugate Wirtinger derivative, and its real part for a real input.

    References
    ----------
    C.-W. Ho, A. Ruehli, P. Brennan, "The modified nodal approach to network analysis", IEEE Trans.
    Circuits and Systems 22 (1975).

    Examples
    --------
    Two nodes, 1 ohm between them, 1 ohm from the second to ground, 1 A into the first:

    >>> import torch
    >>> from chonn_ops import kirchhoff_network
    >>> field = lambda *values: torch.tensor(values).reshape(1, 2, 1)
    >>> v = kirchhoff_network(field(1.0, 0.0), (field(1.0, 0.0),), field(0.0, 1.0))
    >>> [round(x, 4) for x in v.flatten().tolist()]
    [2.0, 1.0]
    """
    network = (source, conductance, leak, periodic, graph)
    return solve_given(
        *network, tol, max_iterations, method, return_info, backend, ungrounded, None
    )


def solve_given(
    source: Tensor,
    conductance: Sequence[Tensor] | Tensor,
    leak: Tensor,
    periodic: Periodic | tuple[Joined, ...],
    graph: Graph | None,
    tol: float,
    max_iterations: int,
    method: Method,
    return_info: bool,
    backend: str | None,
    ungrounded: Ungrounded,
    rates: Tensor | None,
) -> Any:
    """`kirchhoff_network`, with the `rates` of `chonn_ops.network.ground`."""
    fields, joined = on_graph(conductance, periodic, graph)
    both = isinstance(source, Tensor) and isinstance(leak, Tensor)
    # With conductances that fit the source, it is the leak that lacks an axis.
    fit = both and isinstance(fields, (tuple, list)) and source.dim() == len(fields) + 2
    several = both and not fit and source.dim() == leak.dim() + 1
    one = leak if several else source
    closed = check_arguments(one, fields, leak, joined, tol, max_iterations, method, NETWORK_DTYPES)
    if several:  # they share one elimination
        check_sources("source", source, leak, NETWORK_DTYPES)
        if method == "multigrid":
            raise error("method", "'auto' or 'direct' for sources (B, S, *grid, C)", repr(method))
        method = "direct" if graph_of(closed) is None else method
    network = (source, fields, leak, closed)
    options = (tol, max_iterations, backend, method, ungrounded, rates)
    v, iterations, _ = solve_checked(*network, *options)
    v = v.to(potential_dtype(source, v.dtype))
    if not return_info:
        return v
    return v, info_of(v, iterations, network, backend, method)


def info_of(
    v: Tensor,
    iterations: Tensor,
    network: tuple[Tensor, Sequence[Tensor], Tensor, Sequence[Joined]],
    backend: str | None,
    method: str,
) -> NetworkInfo:
    """Describe a solve of these networks that returned potentials v."""
    source, conductance, leak, periodic = network
    error = backward_error(v, source, conductance, leak, periodic)
    if torch.compiler.is_compiling():  # sizes may be symbols, which a choice would fix
        return NetworkInfo(iterations, error, "", "")
    shape = (tuple(leak.shape[1:-1]), tuple(periodic), leak.shape[0] * leak.shape[-1])
    name = BACKENDS.name_for(requested(backend), source.device)
    dtype = compute_dtype(source, leak, *conductance)
    choice = choose(*shape, dtype, name, method)
    reason = choice.reason
    network_of = (conductance, leak, periodic, dtype)
    if choice.fallback and answer(lambda: exceed_digits(*network_of), leak, *conductance):
        reason = "elimination: iterations cannot judge leaks below the rounding of conductances"
    done = "direct" if reason.startswith("elimination") else "multigrid"
    return NetworkInfo(iterations, error, done, reason)
