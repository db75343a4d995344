"""The options of a Cascaded Kirchhoff Block, as one value that models and hosts pass around."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from chonn_ops.checks import check_choice, check_integer, error, json_value
from chonn_ops.nn.kirchhoff_cell import Scan
from chonn_ops.nn.layers import NORMS
from chonn_ops.nn.network_cell import Network

CELLS: Mapping[str, type[Network] | type[Scan]] = {"network": Network, "scan": Scan}
TOPOLOGIES = ("series", "parallel")
STAGE_INPUTS = ("chain", "inject")


_OF_CELL: Any = None  # stands for the default that the cell has


@dataclasses.dataclass(frozen=True)
class CKBOptions:
    """Options of a `CKB`: those of its cells, and those of the block around them.

    Parameters
    ----------
    cell : Network, Scan, "network" or "scan"
        The cells and their own options: resistor networks on the grid (`Network`, the default,
        which had the lowest errors on Darcy flow in every host) or RC circuits along lines (`Scan`,
        the paper's). A word stands for the cell's defaults.
    order : int, optional
        Number of cells N. 0 means "no block": models are then their plain selves. Default: 1 for
        networks, 2 for scans.
    expand : int
        Channels inside the block over channels outside.
    norm : {"group", "layer", "none"}, optional
        Norm in front of the block: over channels and positions ("group", which keeps the relative
        amplitudes of a field), over channels alone ("layer") or none. Default: "none" for
        networks, "group" for scans.
    boundary : str, sequence of str or mapping, optional
        The boundary of the domain, one word or, for networks, one an axis or a named wall; see
        `NetworkCell` and `KirchhoffCell`. The convolution in front of scans pads accordingly:
        periodically, with the edge value ("neumann"), otherwise with zeros. Default: "robin" for
        networks, "matched" for scans.
    topology : {"series", "parallel"}
        Cells one after the other, or side by side on the same input (ablation).
    stage_input : {"chain", "inject"}
        What later cells of a series receive: the previous output (the paper's PDE text) or the
        block input plus the previous output (its vision text).

    Raises
    ------
    ValueError
        For values outside these sets; the message states expected and actual.

    Examples
    --------
    >>> from chonn_ops import CKBOptions, Network
    >>> CKBOptions(cell=Network(num_networks=4), boundary="periodic").order
    1
    """

    cell: Any = Network.name
    order: int = _OF_CELL
    expand: int = 1
    norm: str = _OF_CELL
    boundary: Any = _OF_CELL
    topology: str = "series"
    stage_input: str = "chain"

    def __post_init__(self) -> None:
        cell = self.cell
        if isinstance(cell, str) and cell in CELLS:
            cell = CELLS[cell]()
        if not isinstance(cell, (Network, Scan)):
            known = ", ".join(map(repr, CELLS))
            raise error("cell", f"one of {known}, Network(...) or Scan(...)", repr(cell))
        values = {n: x for n, x in cell.block_defaults.items() if getattr(self, n) is _OF_CELL}
        boundary = cell.check_boundary(values.get("boundary", self.boundary))
        for name, value in {**values, "cell": cell, "boundary": boundary}.items():
            object.__setattr__(self, name, value)
        check_integer(0, order=self.order)
        check_integer(1, expand=self.expand)
        check_choice("norm", self.norm, tuple(NORMS))
        check_choice("topology", self.topology, TOPOLOGIES)
        check_choice("stage_input", self.stage_input, STAGE_INPUTS)

    @classmethod
    def from_mapping(cls, options: Mapping[str, Any]) -> CKBOptions:
        """Options out of one flat mapping, as hosts and files have them.

        Parameters
        ----------
        options : mapping
            Names and values of the block's options and of its cell's; ``cell`` is "network" or
            "scan". Missing options have their defaults.

        Raises
        ------
        ValueError
            For an unknown name, with the known ones, and for values that do not fit.

        Examples
        --------
        >>> from chonn_ops import CKBOptions
        >>> CKBOptions.from_mapping({"cell": "scan", "order": 3, "d_state": 4}).cell.d_state
        4
        """
        if not isinstance(options, Mapping):
            raise error("options", "a mapping", repr(options))
        name = options.get("cell", Network.name)
        check_choice("cell", name, tuple(CELLS))
        cell = CELLS[name]
        of_cell = [field.name for field in dataclasses.fields(cell)]
        of_block = [field.name for field in dataclasses.fields(cls)]
        unknown = [name for name in options if name not in (*of_block, *of_cell)]
        if unknown:
            raise ValueError(
                f"{', '.join(map(str, unknown))}: expected options of a block with "
                f"cell={cell.name!r}, which are {', '.join((*of_block, *of_cell))}"
            )
        built = cell(**{name: options[name] for name in of_cell if name in options})
        block = {name: options[name] for name in of_block if name in options}
        return cls(**{**block, "cell": built})

    def to_mapping(self) -> dict[str, Any]:
        """All options as one flat mapping of plain values, for `from_mapping`."""
        block = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        options = {**block, "cell": self.cell.name, **dataclasses.asdict(self.cell)}
        return {name: json_value(name, value) for name, value in options.items()}


def block_options(options: Mapping[str, Any]) -> CKBOptions:
    """The options that a block's keywords stand for; TypeError for a keyword that is none."""
    of_block = [field.name for field in dataclasses.fields(CKBOptions)]
    if unknown := [name for name in options if name not in of_block]:
        raise TypeError(
            f"{', '.join(unknown)}: expected options of the block, which are "
            f"{', '.join(of_block)}; those of its cell go into cell=Network(...) or cell=Scan(...)"
        )
    return CKBOptions(**options)
