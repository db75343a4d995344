"""What U-Nets and FNOs of hosts share: a circuit head by default, the paper's blocks with `ckb`."""

from __future__ import annotations

from typing import Any

from chonn_ops.checks import error
from chonn_ops.models.network import CHONNNetwork1d, CHONNNetwork2d, CHONNNetwork3d
from chonn_ops.nn import CKBOptions, Network

# By the number of axes.
NETWORKS = {1: CHONNNetwork1d, 2: CHONNNetwork2d, 3: CHONNNetwork3d}
# Arguments that have no effect without a circuit head, and those that have none without blocks.
OF_HEAD = {"lengths": 1.0, "boundary": "robin", "inner": "robin", "nodes": "centres"}
OF_BLOCKS = {"stages": ("encoder4", "bottleneck", "decoder4"), "downsample": 1}


def check_ckb(ckb: CKBOptions | None, **arguments: Any) -> None:
    """Check `ckb` and the arguments beside; ValueError for another type, for blocks of networks and
    for what has no effect."""
    if ckb is not None:
        if not isinstance(ckb, CKBOptions):
            raise error("ckb", "CKBOptions(...) or None", repr(ckb))
        if ckb.order and ckb.cell.name == Network.name:
            expected = "CKBOptions('scan'), CKBOptions(order=0), or None for a circuit head"
            raise error("ckb", expected, repr(ckb))
    unused = OF_BLOCKS if ckb is None else OF_HEAD
    for name, value in arguments.items():
        if name in unused and value != unused[name]:
            how = "without" if ckb is None else "with"
            raise error(name, f"{unused[name]!r} {how} `ckb`", repr(value))
