"""The options of a Cascaded Kirchhoff Block, as one value that backbones and hosts pass around."""

from __future__ import annotations

import dataclasses
from typing import Any, cast

from chonn_ops import _ends
from chonn_ops.nn._checks import check_choice
from chonn_ops.nn._geometry import CELL_ENDS, NODES
from chonn_ops.nn.gates import ADAPTIVE
from chonn_ops.scan import DIRECTIONS
from chonn_ops.scan._checks import check_modes

CELLS = ("scan", "network")
NORMS = ("group", "layer", "rms", "none")
TOPOLOGIES = ("series", "parallel")
STAGE_INPUTS = ("chain", "inject")
_BY_CELL: Any = None
_DEFAULTS = {
    "scan": {"order": 2, "norm": "group", "termination": "matched", "kernel_size": 3},
    "network": {"order": 1, "norm": "none", "termination": "wall", "kernel_size": 1},
}
# Options that only one kind of cell has.
_OWN = {
    "scan": (
        *("d_state", "directions", "constrained", "selective_norm"),
        *("dt_rank", "dt_min", "dt_max"),
    ),
    "network": ("networks", "nodes", "selective"),
}


@dataclasses.dataclass(frozen=True)
class CKBOptions:
    """Options of a `CKB`; the fields are its keywords, with the same defaults.

    Parameters
    ----------
    order : int or "adaptive"
        Number of cells N; 2 by default, 1 for networks. 0 means "no block": backbones then are
        their plain selves. "adaptive": `max_order` cells, whose outputs have gates with a sparsity
        prior; `chonn_ops.prune` takes away what they close.
    d_state : int
        States a channel in every scan cell.
    expand : int
        Width of the evolution branch over the width of the block.
    norm : {"group", "layer", "rms", "none"}
        Norm before the branches: over channels and positions ("group": keeps the relative
        amplitudes of a field), over channels alone ("layer", "rms") or none. "group" by default,
        none for networks.
    directions : {"raster", "bidirectional", "cross", "axial"}
        How a field becomes scan paths, see `chonn_ops.scan_field`. "axial" by default, other than
        there: a block is for fields, and one way along one line cannot be a symmetric operator.
    termination : {"matched", "ring", "open", "short"}, for networks also "wall" and tuples
        "periodic", "neumann" and "dirichlet" are other words for ring, open and short.
        For networks, the ends of the grid, see `NetworkCell`; "wall" by default. For scans,
        "matched" by default, what lines do at their ends: silence outside, periodic, even wall
        (Neumann), odd wall (Dirichlet); see `chonn_ops.scan_field`. The ends are the field's
        walls for "axial" and for fields with one axis; the other modes have one line from corner
        to corner. "open" and "short" need both ways of a line: any directions but "raster". The
        local convolution pads accordingly: zeros, circular, replicate (the even mirror image at
        `kernel_size` 3), zeros (the value at an odd wall).
    topology : {"series", "parallel"}
        Cells one after the other, or side by side on the same input (ablation).
    stage_input : {"chain", "inject"}
        What later cells of a series receive: the previous output (the paper's PDE text) or the
        block input plus the previous output (its vision text).
    constrained : bool
        Stable, dissipative circuits by construction, see `KirchhoffCell`.
    selective_norm : bool, optional
        Bound b and c of the cells, see `KirchhoffCell`. Default: for orders above 2, which
        overflow without it.
    kernel_size : int
        Points along each axis of the depthwise convolution; odd. 3 by default; 1 for networks,
        which then mean the same on every grid: without DSConv, so u = W_u X~.
    dt_rank : int, optional
        Rank of the step projection; default ``ceil(expand * dim / 16)``.
    dt_min, dt_max : float
        Range of the initial step Delta.
    cell : {"scan", "network"}
        The circuit: RC stages along lines (`KirchhoffCell`, the paper's) or resistor networks on
        the grid (`NetworkCell`). Options of the other kind of cell must keep their defaults.
    networks : int
        Networks of every network cell.
    nodes : {"centres", "left", "corners"}
        Where the nodes lie between the walls, for network cells, see `NetworkCell`.
    selective : bool
        Whether conductivities and leaks of network cells depend on the features (ablation).
    max_order : int
        Cells of ``order="adaptive"``.
    sparsity : float
        Strength of the prior, see `chonn_ops.nn.StageGates`.

    Raises
    ------
    ValueError
        For values outside these sets; the message states expected and actual.
    """

    order: int | str = _BY_CELL
    d_state: int = 16
    expand: int = 1
    norm: str = _BY_CELL
    directions: str = "axial"
    termination: str | tuple[str, ...] = _BY_CELL
    topology: str = "series"
    stage_input: str = "chain"
    constrained: bool = True
    selective_norm: bool | None = None
    kernel_size: int = _BY_CELL
    dt_rank: int | None = None
    dt_min: float = 1e-2
    dt_max: float = 1.0
    cell: str = "scan"
    networks: int = 8
    nodes: str = "centres"
    selective: bool = True
    max_order: int = 4
    sparsity: float = 0.005

    @property
    def stages(self) -> int:
        """Number of cells."""
        return self.max_order if isinstance(self.order, str) else self.order

    def __post_init__(self) -> None:
        check_choice("cell", self.cell, CELLS)
        for name, default in _DEFAULTS[self.cell].items():
            if getattr(self, name) is None:
                object.__setattr__(self, name, default)
        self._check_cell()
        choices = {
            "norm": NORMS,
            "directions": DIRECTIONS,
            "topology": TOPOLOGIES,
            "stage_input": STAGE_INPUTS,
            "nodes": NODES,
        }
        for name, known in choices.items():
            check_choice(name, getattr(self, name), known)
        least = {"networks": 1, "d_state": 1, "expand": 1, "kernel_size": 1, "max_order": 1}
        if isinstance(self.order, str):
            if self.order != ADAPTIVE:
                raise ValueError(
                    f"order: expected an integer of at least 0 or {ADAPTIVE!r}, got {self.order!r}"
                )
        else:
            least["order"] = 0
            if self.max_order != CKBOptions.max_order:
                raise ValueError(
                    f"max_order: expected its default {CKBOptions.max_order} without "
                    f"order={ADAPTIVE!r}, got {self.max_order!r}"
                )
        if self.dt_rank is not None:
            least["dt_rank"] = 1
        for name, bound in least.items():
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < bound:
                raise ValueError(f"{name}: expected an integer of at least {bound}, got {value!r}")
        if self.kernel_size % 2 == 0:
            raise ValueError(f"kernel_size: expected an odd number, got {self.kernel_size}")
        for name in ("constrained", "selective"):
            if not isinstance(getattr(self, name), bool):
                raise ValueError(f"{name}: expected a bool, got {getattr(self, name)!r}")
        if not isinstance(self.selective_norm, bool | None):
            raise ValueError(
                f"selective_norm: expected a bool or None, got {self.selective_norm!r}"
            )
        for name in ("dt_min", "dt_max", "sparsity"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, (int, float)):
                raise ValueError(f"{name}: expected a number, got {value!r}")
        if not 0 < self.dt_min <= self.dt_max:
            raise ValueError(
                f"dt_min, dt_max: expected 0 < dt_min <= dt_max, got {self.dt_min}, {self.dt_max}"
            )
        if not 0 <= self.sparsity < 1:
            raise ValueError(f"sparsity: expected at least 0 and below 1, got {self.sparsity}")

    def _check_cell(self) -> None:
        """No option of the other kind of cell, and ends that this kind has."""
        (other,) = set(CELLS) - {self.cell}
        defaults = {field.name: field.default for field in dataclasses.fields(self)}
        for name in _OWN[other]:
            value = getattr(self, name)
            if value != defaults[name]:
                raise ValueError(
                    f"{name}: expected its default {defaults[name]!r} with cell={self.cell!r}, "
                    f"whose cells have none, got {value!r}"
                )
        if self.cell == "network":
            ends = _ends.of_axes(self.termination, None, CELL_ENDS, "termination")
            # Several may come as a list, as files of settings have them.
            ends = ends[0] if isinstance(self.termination, str) else ends
        else:
            ends = check_modes(self.directions, cast("str", self.termination))
        object.__setattr__(self, "termination", ends)


def options_or_defaults(ckb: CKBOptions | None) -> CKBOptions:
    """What a backbone's argument `ckb` means.

    Raises
    ------
    ValueError
        For anything but `CKBOptions` or None.
    """
    if ckb is None:
        return CKBOptions()
    if not isinstance(ckb, CKBOptions):
        raise ValueError(f"ckb: expected CKBOptions(order=2, ...) or None, got {ckb!r}")
    return ckb
