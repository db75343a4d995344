"""`Circuit`: nodes, edges, leaks, and what the equation behind them says about sources."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from chonn_ops._dtypes import at_least_float32, compute_dtype, potential_dtype, real_dtype, widened
from chonn_ops._in_graph import uncompiled
from chonn_ops.boundary import Wall
from chonn_ops.checks import (
    NETWORK_DTYPES,
    answer,
    any_complex,
    check_above,
    check_choice,
    check_field,
    check_like,
    check_not_negative,
    check_sources,
    check_tensor,
    error,
    expanded,
    is_integer,
    numbers_of,
    refuse_trace,
    refuse_transforms,
)
from chonn_ops.network.factorization import Factorization
from chonn_ops.network.layout import (
    Grid,
    Layout,
    backward_error,
    beside,
    current_beside,
    currents_along,
    currents_of,
)
from chonn_ops.network.layout.graph import Graph, merged_ends
from chonn_ops.network.solve.autograd import solve_network
from chonn_ops.network.solve.ground import Ungrounded, at_limits, labels_of, lost_networks, without
from chonn_ops.network.solve.methods import (
    AUTO,
    SIGNED,
    Networks,
    Solver,
    options_of,
    with_signs,
)
from chonn_ops.network.solve.operator import choice_of, forced_backend

# Potentials of so many nodes are solved for at a time by `Circuit.resistance`.
_SOLVED = 2**21
# The kernel has at least so many resistances in the time of one solve: 3.4 on a Delaunay graph of
# 100,000 nodes, 6.3 on a raster of 64 x 64.
_PAIRS = 4
_RESISTANCES = (
    "One circuit with a batch (B, *grid, C) has the resistances of all networks, and pairs (P, 2) "
    "all pairs; torch.autograd differentiates them, also in forward mode"
)
# Below this part of the numbers it is the difference of, a resistance is solved for itself.
_CANCELLED = 1e-6


class NetworkInfo(NamedTuple):
    """How the solves of a circuit went, see `Circuit.solve_with_info`.

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
        eliminated those above the solver's `tol`. Where no value may be read, as on a GPU,
        `iterations` of 0 say that "multigrid" eliminated at once, too. Empty in a program that
        `torch.compile` or `torch.export` has traced. "newton" where elements have laws.
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


class Currents(NamedTuple):
    """Where the current of a circuit flows.

    Attributes
    ----------
    edges : tuple of Tensor, shape (B, \\*grid, C), one an axis
        Entry p is the current from node p to the next one along that axis; 0 where no edge is. A
        graph has one, (B, E, C): the current from each edge's first node to its second.
    walls : Tensor, shape (B, \\*grid, C)
        Current from each node out of the domain, through all of its walls and, of a node that
        `Circuit.hold` holds, into what holds it; negative where it comes in. Summed over the nodes
        of a face it is the flow through that face, and over those of an electrode the flow into it.
    """

    edges: tuple[Tensor, ...]
    walls: Tensor


class Extents(NamedTuple):
    """What laws of elements need to know of a circuit, beside its fields.

    Attributes
    ----------
    leak : Tensor
        Conductance from each node to ground without walls, which may be too large for differences.
    edges : sequence of (length, area), one an axis
        Numbers, or tensors that broadcast with the axis' conductances. None where edges have no
        length of their own, and no law but Ohm's.
    cells : sequence of (mesh, conductivity)
        Cells of linear elements, instead of edges: the `Mesh`, and numbers (B, M, C).
    walls : sequence of (conductivity, value, length, area, exists or None, place)
        Walls that lead to given potentials and obey the law of edges: of the nodes at index i of an
        axis, (axis, i), or None for all.
    films : Wall or None
        What all other walls add. None: walls are the circuit's `wall` and `current`, resistors.
    held : Tensor of bool, or None
        Nodes on walls of potential 0, which conduct without limit.
    joined : bool
        Whether elements are sums of several ones, which may have had the opposite direction.
    """

    leak: Tensor
    edges: Sequence[tuple[Any, Any]] = ()
    cells: Sequence[tuple[Any, Tensor]] = ()
    walls: Sequence[tuple[Any, Any, Any, Any, Tensor | None, tuple[int, int] | None]] = ()
    films: Wall | None = None
    held: Tensor | None = None
    joined: bool = False


class Circuit:
    r"""Resistor networks on a grid or a graph, one a batch entry and channel.

    .. math::

        \sum_q g_{pq} (v_p - v_q) + l_p v_p = V f_p + i_p

    `diffusion` makes circuits from an equation. A bare one, ``Circuit(conductance, leak)``, has
    V = 1 and no current i: its sources are the currents into its nodes.

    Parameters
    ----------
    conductance : sequence of Tensor, shape (B, \*grid, C); or Tensor, shape (B, E, C)
        :math:`g_{pq}`, one tensor an axis: entry p joins node p and the next one along that axis.
        The last entry along an axis counts where it is periodic only. With a graph one tensor with
        an entry an edge.
    leak : Tensor, shape (B, \*grid, C)
        Conductance :math:`l_p` from each node to ground, walls included. It and the conductances
        are 0 at least, or of either sign where the matrix is positive definite, as that of linear
        elements on obtuse cells is.
    on : Grid or Graph, optional
        The nodes and edges. Default: a grid of the leak's shape without periodic axes. Where this
        page says (B, \*grid, C), fields of nodes are (B, N, C) on a graph.
    volume : float or Tensor that expands to (B, \*grid, C)
        V of the cell around each node, which turns a source per unit volume into a current: a
        number > 0, or numbers >= 0.
    wall : Tensor, shape (B, \*grid, C), optional
        What part of the leak leads through the boundary.
    current : Tensor, shape (B, \*grid, C) or (B, S, \*grid, C), optional
        i, what comes in through the boundary: from potentials other than 0 and given fluxes. With
        one for each of S sources, sources are (B, S, \*grid, C), too.

    Attributes
    ----------
    conductance : tuple of Tensor
        One an axis; of a graph one.
    layout : Grid or Graph
        The nodes and edges. The other parameters are attributes as they were given.
    held : Tensor of bool, shape (B, \*grid, C), or None
        The nodes that `hold` holds.
    before : Circuit or None
        The circuit before `hold`.
    rising : callable or None
        Makes the circuit that is added as conductances of 0 rise, see
        `chonn_ops.network.solve.ground`; None where that is 1 for each edge.
    extents : callable or None
        Makes the `Extents` of a circuit that discretises an equation or is merged, for laws.

    Examples
    --------
    Two nodes, 1 ohm between them, 1 ohm from the second to ground, 1 A into the first:

    >>> import torch
    >>> from chonn_ops import Circuit
    >>> field = lambda *values: torch.tensor(values).reshape(1, 2, 1)
    >>> circuit = Circuit((field(1.0, 0.0),), field(0.0, 1.0))
    >>> v = circuit.solve(field(1.0, 0.0))
    >>> v.flatten().tolist()
    [2.0, 1.0]
    >>> circuit.currents(v).edges[0].flatten().tolist()
    [1.0, 0.0]
    """

    def __init__(
        self,
        conductance: Sequence[Tensor] | Tensor,
        leak: Tensor,
        on: Grid | Graph | None = None,
        *,
        volume: float | Tensor = 1.0,
        wall: Tensor | None = None,
        current: Tensor | None = None,
    ) -> None:
        check_field("leak", leak, NETWORK_DTYPES)
        layout = Grid(leak.shape[1:-1]) if on is None else on
        if not isinstance(layout, Layout):
            raise TypeError(f"on: expected a Grid or a Graph, got {type(on).__name__}")
        self.conductance = tuple(layout.check(conductance, leak, NETWORK_DTYPES))
        self.leak, self.layout = leak, layout
        if wall is not None:
            check_like("wall", wall, leak, "the leak", NETWORK_DTYPES)
        if current is not None:
            check_sources("current", current, leak, NETWORK_DTYPES)
        if isinstance(volume, Tensor):
            volume = expanded("volume", volume, leak, "the leak")
            if volume.is_complex():
                raise error("volume", "real numbers", volume.dtype)
            check_not_negative("volume", volume)
        else:
            check_above(0, volume=volume)
        self.volume, self.wall, self.current = volume, wall, current
        self.held: Tensor | None = None
        self.before: Circuit | None = None
        self.rising: Callable[[], Circuit] | None = None
        self.extents: Callable[[], Extents] | None = None

    def _extents(self) -> Extents:
        """What laws need to know; of a bare circuit lengths and areas of 1."""
        if self.extents is not None:
            return self.extents()
        leak = self.leak if self.wall is None else self.leak - self.wall
        return Extents(leak, [(1.0, 1.0)] * len(self.conductance))

    def source(self, density: Tensor) -> Tensor:
        """Current into each node for a source f per unit volume: V f + i.

        `density` and the result have the shape (B, \\*grid, C) or (B, S, \\*grid, C). In the
        circuit's precision or wider.
        """
        check_sources("source", density, self.leak, NETWORK_DTYPES)
        return currents_of(density, self.volume, self.current, self.leak.dtype)

    def solve(
        self, source: Tensor, solver: Solver | None = None, *, ungrounded: Ungrounded = "error"
    ) -> Tensor:
        r"""Solve Kirchhoff's current law at every node, differentiably in every mode.

        For any conductances :math:`\ge 0`, :math:`v \ge 0` where the currents into nodes are, and
        the network dissipates the power of its sources. A gradient costs one more solve; an
        elimination keeps its factors for it, if they take at most 1 GiB. Gradients of eliminated
        networks have digits of their own where potentials decay, and where small leaks lift them
        all.

        Parameters
        ----------
        source : Tensor, shape (B, \*grid, C) or (B, S, \*grid, C)
            f per unit volume; S sources share one elimination.
        solver : Auto, Direct or Iterative, optional
            How; by default ``Auto()``. The environment variable ``CHONN_NETWORK_BACKEND``
            ("reference", "torch", "cpu" or "triton") replaces the backend that suits the device,
            for debugging; "reference" is direct in any case.
        ungrounded : {"error", "nan"}
            What a source in a part without ground makes of its network: a ValueError that names it,
            or NaN for all its potentials, which have no gradient then. Other networks are not
            affected. "nan" reads values on a GPU, too.

        Returns
        -------
        Tensor, shape (B, \*grid, C) or (B, S, \*grid, C)
            Potentials, in the dtype of `source` or the complex dtype of its precision, in the unit
            of current over conductance. A network with a NaN or an infinity in an input is all NaN;
            the others are not affected.

        Raises
        ------
        TypeError
            Something else than a Tensor or a solver.
        ValueError
            Wrong shape, dtype or device; negative conductances or leaks in a network whose matrix
            is not positive definite (found on the CPU only, because reading values stalls a GPU);
            a source in a connected part without leak, whether or not the part's sources sum to 0,
            which is named (by all backends but "triton", which reads no value: there one node of
            the part has potential 0, and the backward error is large unless the sources sum to 0);
            `Iterative` for complex networks, graphs, several sources or negative numbers; an
            unknown or unavailable backend.
        RuntimeError
            A network is above the solver's `tol`, or a complex one is at a resonance, or factors
            would take more than all memory, or more than 2 GiB for one circuit on a graph. The
            message says what to change.

        Notes
        -----
        The solve is float64 if any input is float64 or complex128, else float32, also under
        autocast, and complex if any input is complex.

        A conductance of 0 that leads to a part without ground has a derivative from above, which
        its gradient is, if all such edges of the part rise together by equal amounts, or in a
        circuit of `diffusion` as those of one cell do: `chonn_ops.network.solve.ground` proves it.
        On a GPU, where values are not read, gradients take the potentials of such parts as 0.

        Real networks with negative conductances or leaks are eliminated in float64, whatever the
        inputs are. Sums cancel there, so potentials have an error of the condition number times
        rounding, and a matrix that is singular to rounding is an error. On a GPU no sign is read:
        give `Direct`, and float64 numbers; what is not positive definite is NaN there.

        If any input is complex, conductances are admittances of coils, capacitors and resistors, or
        the equation is :math:`-\nabla (k \nabla u) - \omega^2 c u - i \omega d u = f`. Then no sign
        is checked, and real numbers may be negative. Time goes as :math:`e^{-i \omega t}`, so loss
        is a negative imaginary part of a wave's leak and a positive real part of an admittance.
        Passive networks, which have no gain anywhere, are recommended: they have no resonance where
        there is loss.

        Complex networks are eliminated. complex64 on the compiled kernel: factors in complex64, and
        steps of refinement with residuals in complex128, one at least, until the residual is at
        most `tol`; networks that stay above it are eliminated in complex128. Otherwise: factors in
        complex128, refined to rounding where the input is complex128. What is above `tol` then is
        at a resonance, a `RuntimeError`. Gradients follow PyTorch: for a real loss, the conjugate
        Wirtinger derivative, and its real part for a real input.

        References
        ----------
        C.-W. Ho, A. Ruehli, P. Brennan, "The modified nodal approach to network analysis", IEEE
        Trans. Circuits and Systems 22 (1975).
        """
        v = self._solve(self.source(source), solver, ungrounded)[0]
        return v.to(potential_dtype(source, v.dtype))

    def solve_with_info(
        self, source: Tensor, solver: Solver | None = None, *, ungrounded: Ungrounded = "error"
    ) -> tuple[Tensor, NetworkInfo]:
        """`solve`, and how it went: iterations, backward errors and the choice of the method."""
        current = self.source(source)
        v, iterations, _ = self._solve(current, solver, ungrounded)
        v = v.to(potential_dtype(source, v.dtype))
        error = backward_error(v, current, self.conductance, self.leak, self.layout)
        if torch.compiler.is_compiling():  # sizes may be symbols, which a choice would fix
            return v, NetworkInfo(iterations, error, "", "")
        options: Any = {"backend": forced_backend(), "method": (solver or AUTO).method}
        choice = choice_of(current, self._networks()._replace(**options))
        method = "multigrid" if choice.method == "multigrid" else "direct"
        return v, NetworkInfo(iterations, error, method, choice.reason)

    def _solve(
        self, current: Tensor, solver: Solver | None, ungrounded: Ungrounded
    ) -> tuple[Tensor, Tensor, Tensor]:
        network = (current, self.conductance, self.leak, self.layout)
        return solve_checked(*network, solver or AUTO, ungrounded, self._rates())

    @uncompiled
    def factorize(self) -> Factorization:
        r"""Eliminate the circuit once, to solve for many sources and more.

        The matrix A of :math:`\sum_q g_{pq} (v_p - v_q) + l_p v_p = s_p` is eliminated by nested
        dissection in star-mesh form [1]_ [2]_: with t = l + sum of conductances of the node that
        goes, g_qr += g_q g_r / t and l_q += g_q l / t. Where no number is negative, none is
        subtracted, so no contrast of conductances and no small leak costs a digit.
        `chonn_ops.network.direct.elimination.predicted_bytes` says what factors take.

        Its `solve` takes sources as that of the circuit does. Held nodes have no variance: there
        the diagonal of the inverse and samples, which are deviations from ``solve(0 * source)``,
        are 0. The determinant is that of the matrix of the other nodes.

        Returns
        -------
        Factorization
            Eliminated in float64 where any input is float64 or a conductance or leak is negative,
            else in float32.

        Raises
        ------
        ValueError
            Wrong shape, dtype or device; negative conductances or leaks in a network whose matrix
            is not positive definite (found on the CPU).
        RuntimeError
            Factors that would take more than all memory, with their bytes; networks inside of a
            transform of `torch.func` or `torch.vmap`.

        References
        ----------
        .. [1] W. K. Grassmann, M. I. Taksar, D. P. Heyman, "Regenerative analysis and steady state
           distributions for Markov chains", Operations Research 33 (1985): elimination without
           subtraction.
        .. [2] A. George, "Nested dissection of a regular finite element mesh", SIAM J. Numer.
           Anal. 10 (1973).
        """
        network = (self.conductance, self.leak, self.layout)
        return Factorization(*network, self.volume, self.current, self.held, self._rates())

    def _networks(self) -> Networks:
        """What the operator takes behind a source, for what depends on no option."""
        return Networks(self.conductance, self.leak, self.layout)

    def _at_limits(self, v: Tensor) -> tuple[Tensor, Sequence[Tensor] | None]:
        """Potentials v, (B, \\*grid, C) or (B, S, \\*grid, C), and their differences by axis, for
        derivatives of what flows beside parts without ground; None for differences of these v. No
        value depends on potentials at the ends of edges and walls of 0."""
        if (label := labels_of(self._networks())) is None:
            return v, None
        drops = self.layout.drops(v)
        return at_limits(self._networks(), label, self._rates(), without(v, label), drops)

    def _rates(self) -> Tensor | None:
        """The `rates` of `chonn_ops.network.solve.ground`: conductances, walls and currents of the
        circuit that is added as those of 0 rise; None where that is 1 for each edge, or where there
        is no part without ground."""
        if self.rising is None or labels_of(self._networks()) is None:
            return None
        with torch.no_grad():
            rising = self.rising()
            current = torch.zeros_like(rising.leak) if rising.current is None else rising.current
            axes = self.leak.dim() - 2
            # Leaks that are no walls, or hold nodes, are at nodes that have ground.
            fields = (*rising.conductance, rising.leak, current)
            *rows, currents = (x.flatten(-1 - axes, -2) for x in fields)
            batch = currents.shape[:-2]  # with S where each source has a current
            rows = [beside(x, currents).expand(*batch, -1, -1) for x in rows]
            return torch.cat([*rows, currents], -2)

    def _flows(self, v: Tensor, drops: Sequence[Tensor] | None = None) -> list[Tensor]:
        """The currents along edges, those of held nodes included. `drops`: differences of v, where
        they are known."""
        circuit = self.before or self
        edges = [at_least_float32(g) for g in self.layout.edges(circuit.conductance)]
        return currents_along(edges, self.layout.drops(v) if drops is None else drops)

    def currents(self, v: Tensor) -> Currents:
        """Compute where the current flows at the potentials v.

        Parameters
        ----------
        v : Tensor, shape (B, \\*grid, C) or (B, S, \\*grid, C)
            Those of S sources have S currents.
        """
        check_sources("v", v, self.leak, NETWORK_DTYPES)
        circuit, (v, drops) = self.before or self, self._at_limits(v)
        flows = self._flows(v, drops)
        out = wall = torch.zeros_like(v) if circuit.wall is None else beside(circuit.wall, v) * v
        if circuit.current is not None:
            out = out - current_beside("v", circuit.current, v)
        if self.held is not None:  # what edges bring and no leak takes flows into what holds
            absorbed = wall - beside(circuit.leak, v) * v - self.layout.outflow(flows)
            out = torch.where(beside(self.held, v), absorbed, out)
        return Currents(tuple(flows), out)

    def node_currents(self, v: Tensor) -> Tensor:
        """Current through each node at the potentials v: the larger one of what comes in and what
        goes out along edges and to ground, as in Circuitscape's current maps.

        `v` and the result have the shape (B, \\*grid, C) or (B, S, \\*grid, C). Complex circuits
        and potentials are a `ValueError`, because complex currents have no direction, and so are
        negative conductances and leaks, found on the CPU.
        """
        check_sources("v", v, self.leak, NETWORK_DTYPES)
        circuit = self.before or self
        networks = circuit._networks()
        if answer(lambda: with_signs(networks)[0].method, v) == SIGNED:
            raise error("circuit", "conductances and leaks >= 0", "negative ones")
        if any_complex(v, circuit.leak, circuit.current, *circuit.conductance):
            expected = "real potentials of a real circuit (`currents` has complex currents)"
            raise error("v", expected, "complex numbers")
        net = beside(at_least_float32(circuit.leak), v) * v
        if circuit.current is not None:
            net = net - current_beside("v", circuit.current, v)
        flows = self._flows(v)
        through = net.abs() + self.layout.sums_at_nodes([flow.abs() for flow in flows])
        return (through + (net + self.layout.outflow(flows)).abs()) / 2

    def hold(self, nodes: Tensor, value: Tensor | float | complex = 0.0) -> Circuit:
        """The circuit with nodes at given potentials, whatever is fed into them.

        Parameters
        ----------
        nodes : Tensor of bool that expands to (B, \\*grid, C)
        value : number or Tensor that expands to (B, \\*grid, C); or (B, S, \\*grid, C)
            Potential of those nodes; with S of them, sources are (B, S, \\*grid, C), too. Complex
            potentials make complex ones, of real circuits, too.

        Returns
        -------
        Circuit
            What is solved: nodes that are held have no edges, but 1 siemens to their potential, and
            edges to them are leaks of their neighbours. `currents` and `node_currents` are those of
            the circuit before, with what flows into each held node in its walls. Nodes that are
            held stay so if others are held after them.
        """
        check_tensor("nodes", nodes)
        if nodes.dtype != torch.bool:
            raise error("nodes", "dtype torch.bool", nodes.dtype)
        values = numbers_of("value", value, self.leak.device)
        if not isinstance(value, Tensor) and not bool(values.isfinite().all()):
            raise error("value", "finite numbers", repr(value))
        dtype = compute_dtype(self.leak, *self.conductance)
        values = values.to(
            torch.promote_types(dtype, torch.complex64) if values.is_complex() else dtype
        )
        nodes = expanded("nodes", nodes, self.leak, "the circuit", forms="a shape")
        like, several = self.leak, values.dim() > self.leak.dim()
        if several:
            like = like[:, None].expand(-1, values.shape[1], *like.shape[1:])
        values = expanded("value", values, like, "the circuit", forms="a shape")
        if self.before is not None and self.held is not None and self.current is not None:
            values, current = beside(values, self.current), beside(self.current, values)
            values = torch.where(beside(nodes, values), values, current)
            return self.before.hold(nodes | self.held, values)
        held, zero = nodes.float(), torch.zeros((), dtype=real_dtype(dtype), device=values.device)
        potential = torch.where(beside(nodes, values), values, zero)
        edges, ends = self.layout.edges(self.conductance), self.layout.sums_at_edges(held)
        wide = [at_least_float32(g) for g in edges]  # 256 ones and one more are 256 in bfloat16
        through = self.layout.sums_at_nodes(currents_along(wide, ends))
        flows = currents_along(wide, self.layout.sums_at_edges(potential))
        carried = self.layout.sums_at_nodes(flows)
        free = [torch.where(n == 0, g, 0) for g, n in zip(edges, ends, strict=True)]
        if self.current is not None:
            carried = beside(carried, self.current) + beside(self.current, carried)
        circuit = Circuit(
            self.layout.for_circuit(free),
            torch.where(nodes, 1, self.leak + through),
            self.layout,
            volume=torch.where(nodes, zero, self.volume),
            current=torch.where(beside(nodes, carried), beside(values, carried), carried),
        )
        circuit.held, circuit.before = nodes, self
        circuit.rising = partial(_risen_and_held, self, nodes, values)
        return circuit

    @uncompiled
    def resistance(self, pairs: Tensor) -> Tensor:
        """Effective resistance between pairs of nodes, from one elimination.

        With one right-hand side a pair or one a node, whichever takes less time. Where no gradient
        is needed, a pair takes the compiled kernel less than half of a solve. Computed in float64.
        Differentiable by `torch.autograd`, not by `torch.func` and `torch.vmap`; a gradient
        keeps all potentials.

        Parameters
        ----------
        pairs : Tensor of integers, shape (P, 2)
            Nodes, in row-major order on grids. Held nodes are ground and have no number here: to
            measure up to them, `merge` them in the circuit before `hold`.

        Returns
        -------
        Tensor, shape (B, P, C)
            In the dtype of the circuit. Infinite between parts that are not joined.
        """
        grid = self.leak.shape[1:-1]
        n = math.prod(grid)
        check_tensor("pairs", pairs)
        refuse_transforms("resistance", pairs, self.leak, *self.conductance, instead=_RESISTANCES)
        if pairs.dim() != 2 or pairs.shape[1] != 2 or not is_integer(pairs):
            raise error("pairs", "integers of shape (P, 2)", f"{pairs.dtype}, {tuple(pairs.shape)}")
        if any_complex(self.leak, *self.conductance):
            raise error("conductance", "real networks", "complex ones")
        pairs = pairs.to(self.leak.device).long()
        if len(pairs) and not 0 <= int(pairs.min()) <= int(pairs.max()) < n:
            raise error("pairs", f"nodes from 0 to {n - 1}", [int(pairs.min()), int(pairs.max())])
        if self.held is not None and bool((wrong := self.held.flatten(1, -2)[:, pairs]).any()):
            expected = "nodes that are not held (`merge` them in the circuit before `hold`)"
            raise error("pairs", expected, pairs[wrong.any(0).any(-1)].tolist())
        if with_signs(self._networks())[0].method == SIGNED:
            # The ground below makes some matrices definite that are not.
            with torch.no_grad():
                self._solve(torch.zeros_like(self.leak), None, "error")
        # Each part gets a ground at its first node, as large as the largest conductance: potentials
        # would grow without bounds as leaks vanish. `_without_ground` takes it away again.
        part = self.layout.connected_parts(self.conductance).flatten(1, -2)
        first = part == torch.arange(n, device=part.device)[:, None]
        edges = [widened(g) for g in self.conductance]
        most = torch.stack([g.detach().flatten(1, -2).amax(1) for g in edges]).amax(0)
        most = torch.where(most > 0, most, 1)[:, None]
        leak = widened(self.leak)
        ground = leak + (first * most).reshape(leak.shape)
        factorization = Factorization(edges, ground, self.layout)
        nodes, at = torch.unique(pairs, return_inverse=True)
        r = factorization._resistances(pairs) if len(pairs) <= _PAIRS * len(nodes) else None
        if r is None:
            r = self._solved_resistances(factorization, pairs, nodes, at)
        sources = torch.stack([first.to(leak.dtype).reshape(leak.shape), leak], 1)
        v, w = factorization.solve(sources).flatten(2, -2).unbind(1)
        r = r + _without_ground(most, part, leak.flatten(1, -2), v, w, pairs)
        return r.to(self.leak.dtype)

    def _solved_resistances(
        self, factorization: Factorization, pairs: Tensor, nodes: Tensor, at: Tensor
    ) -> Tensor:
        """`resistance` from potentials; `at`: which of the `nodes` each pair's are."""
        grid, B, C = self.leak.shape[1:-1], self.leak.shape[0], self.leak.shape[-1]
        (p, q), n = pairs.T, math.prod(grid)
        by_node = len(nodes) < len(pairs)
        count, columns = len(nodes) if by_node else len(pairs), []
        for few in torch.arange(count, device=pairs.device).split(max(1, _SOLVED // (n * B * C))):
            unit = torch.zeros(len(few), n, dtype=factorization.dtype, device=pairs.device)
            each = torch.arange(len(few), device=pairs.device)
            unit[each, nodes[few] if by_node else p[few]] = 1
            if not by_node:
                unit[each, q[few]] -= 1
            source = unit.reshape(1, len(few), *grid, 1).expand(B, -1, *grid, C)
            v = factorization.solve(source).flatten(2, -2)
            if by_node:
                columns.append(v[:, :, nodes])
            else:
                columns.append(v[:, each, p[few]] - v[:, each, q[few]])
        r = torch.cat(columns, 1)
        if by_node:
            i, j = at.T
            scale = r[:, i, i] + r[:, j, j]
            r = scale - r[:, i, j] - r[:, j, i]
            # Differences of much larger numbers have lost digits.
            lost = (r < _CANCELLED * scale).any(0).any(-1).nonzero()[:, 0]
            if len(lost):
                again = self._solved_resistances(
                    factorization, pairs[lost], pairs[lost].flatten(), at
                )
                r = r.index_copy(1, lost, again)
        return r

    def merge(self, labels: Tensor) -> tuple[Circuit, Tensor]:
        """Join groups of nodes, each to one node: terminals, whose potential is unknown and the
        same everywhere, and regions that are short circuits.

        Parameters
        ----------
        labels : Tensor of integers, shape (\\*grid)
            Nodes with the same label above 0 become one; those with 0, as all held nodes, stay what
            they are.

        Returns
        -------
        circuit : Circuit
            On a graph; parallel edges add up. Its sources are currents (V = 1). Make it once: this
            orders its nodes.
        node : Tensor, shape (\\*grid)
            Which node of the new circuit each one is: ``v[:, node]`` are the potentials v on the
            grid or graph.
        """
        grid = tuple(self.leak.shape[1:-1])
        check_tensor("labels", labels)
        if labels.shape != grid or not (is_integer(labels) or labels.dtype == torch.bool):
            expected = f"integers of shape {grid}"
            raise error("labels", expected, f"{labels.dtype}, shape {tuple(labels.shape)}")
        if self.held is not None:
            wrong = (self.held.any(0).any(-1) & (labels > 0)).nonzero().tolist()
            if wrong:
                expected = "0 at held nodes (merge first, then hold the new ones)"
                raise error("labels", expected, f"others at {wrong}")
        old = self.before or self
        edge, ends = self.layout.edge_ends()
        number, first, ends, which = merged_ends(ends, labels)
        if not ends.size:
            raise error("labels", "an edge between two of the new nodes at least", "none")
        positions = self.layout.positions
        graph = Graph(ends.T, len(first), None if positions is None else positions[first])
        node, to, first = (torch.from_numpy(x).to(self.leak.device) for x in (number, which, first))

        def rows(field: Tensor) -> Tensor:
            return field.flatten(field.dim() - 1 - len(grid), -2)

        def total(values: Tensor, into: Tensor, size: int) -> Tensor:
            values = at_least_float32(values)
            sums = values.new_zeros(*values.shape[:-2], size, values.shape[-1])
            return sums.index_add(-2, into, values)

        def of_nodes(field: Tensor | None) -> Any:
            return None if field is None else total(rows(field), node, len(first))

        g = torch.cat([x.flatten(1, -2) for x in old.conductance], 1)
        g = g[:, torch.from_numpy(edge).to(g.device)]
        circuit = Circuit(
            total(g, to, len(ends.T) + 1)[:, :-1],  # the last one has the edges inside groups
            of_nodes(old.leak),
            graph,
            wall=of_nodes(old.wall),
            current=of_nodes(old.current),
        )
        circuit.extents = partial(_joined_extents, old, node, len(first))
        if self.held is not None and self.current is not None:
            circuit = circuit.hold(
                *(rows(x).index_select(-2, first) for x in (self.held, self.current))
            )
        if self.rising is not None:
            circuit.rising = partial(_risen_and_merged, self.rising, labels)
        return circuit, node.reshape(grid)


def solve_checked(
    source: Tensor,
    conductance: Sequence[Tensor],
    leak: Tensor,
    layout: Layout,
    solver: Solver,
    ungrounded: Ungrounded = "error",
    rates: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Solve networks whose arguments have been checked, for the currents `source` into nodes.

    `rates`: as in `chonn_ops.network.solve.ground`. Returns potentials in the dtype of the solve,
    iterations and the residuals that were compared with the tolerance.
    """
    refuse_trace("Circuit.solve")
    check_choice("ungrounded", ungrounded, ("error", "nan"))
    tol, most, method = options_of(solver)
    if method == "multigrid":
        if any_complex(source, leak, *conductance):
            raise error("solver", "Auto() or Direct() for complex numbers", repr(solver))
        if source.dim() > leak.dim():
            expected = "Auto() or Direct() for sources (B, S, *grid, C)"
            raise error("solver", expected, repr(solver))
    network = Networks(conductance, leak, layout, tol, most, forced_backend(), method)
    if ungrounded == "error":
        return solve_network(source, network, rates=rates)
    lost = lost_networks(source, network)
    solved = solve_network(torch.where(lost, 0, source), network, rates=rates)
    # Behind the solve, so that gradients of these networks are 0.
    return torch.where(lost, math.nan, solved[0]), *solved[1:]


def _joined_extents(circuit: Circuit, node: Tensor, count: int) -> Extents:
    """What laws need to know where nodes were merged; edges of other lengths may be one edge."""
    leak = at_least_float32(circuit._extents().leak.flatten(1, -2))
    sums = leak.new_zeros(len(leak), count, leak.shape[-1]).index_add(1, node, leak)
    return Extents(sums, [(1.0, 1.0)] if circuit.extents is None else (), joined=True)


def _risen_and_merged(rising: Callable[[], Circuit], labels: Tensor) -> Circuit:
    return rising().merge(labels)[0]


def _risen_and_held(circuit: Circuit, nodes: Tensor, value: Tensor) -> Circuit:
    """What is added to a circuit with held nodes as conductances of 0 rise."""
    if circuit.rising is not None:
        return circuit.rising().hold(nodes, value)
    ones = circuit.layout.for_circuit([torch.ones_like(g.detach()) for g in circuit.conductance])
    return Circuit(ones, torch.zeros_like(circuit.leak.detach()), circuit.layout).hold(nodes, value)


def _without_ground(
    most: Tensor, part: Tensor, leak: Tensor, v: Tensor, w: Tensor, pairs: Tensor
) -> Tensor:
    r"""What resistances (B, P, C) grow by if the ground g of the first node of each part goes.

    By Sherman and Morrison's formula, with the potentials v of 1 A into that node and the current
    :math:`s = 1 - g v_1 = \sum_p l_p v_p` of it that goes through leaks: in one part it is
    :math:`g (v_p - v_q)^2 / s`, and between parts :math:`g v_p^2 / s_p + g v_q^2 / s_q`, infinite
    if one of them has no leak. The differences are those of :math:`g v` where both are small, and
    else of :math:`w = 1 - g v`, so that nothing cancels: w are the potentials of the sources l.
    """
    s = torch.zeros_like(v).scatter_add(1, part, leak * v).gather(1, part)
    some, (p, q) = s > 0, pairs.T
    s = torch.where(some, s, 1)
    u = most * v
    far = torch.maximum(u[:, p], u[:, q]) < torch.maximum(w[:, p], w[:, q])
    drop = torch.where(far, u[:, p] - u[:, q], w[:, q] - w[:, p])
    within = drop.square() / (most * s[:, p])
    below = torch.where(some, u * v / s, math.inf)
    return torch.where(part[:, p] == part[:, q], within, below[:, p] + below[:, q])
