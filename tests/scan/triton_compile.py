"""The kernels as a bfloat16 scan with N = 16 compiles them."""

from __future__ import annotations

from typing import Any

import triton.language as tl

from chonn_ops.scan.triton import kernels

STREAMS = ("u", "delta", "b", "c", "y", "grad_y", "grad_u", "grad_delta")
FLOATS = (
    *("decay", "d", "carry_in", "start", "prior", "ends", "sums", "checkpoints", "scratch"),
    *("grad_decay", "grad_b", "grad_c", "grad_d", "grad_start", "prior_u", "prior_delta"),
)
TILE = {"SHARE": 2, "KIND": 1, "J": 2, "N": 16, "W": 8}
CONSTANTS = {**TILE, "GROUP": 4, "PERIODIC": True, "BACKWARD": True, "K": 128, "REAL": tl.float32}
KERNELS = {
    "walk_forward": (kernels.walk_forward, {"prior": None, "carry_in": None, "sums": None}, 1),
    "walk_backward": (kernels.walk_backward, {"carry_in": None}, 1),
    "sweep_adjoint": (kernels.sweep_adjoint, {}, 1),
    "join": (kernels.join_segments, {}, 4),
}


def arguments_of(name: str) -> tuple[Any, ...]:
    """What `compile_triton` takes, up to the capability."""
    kernel, absent, warps = KERNELS[name]
    constants = {x: CONSTANTS.get(x) for x in kernel.arg_names if x in absent or x in CONSTANTS}
    kinds = dict.fromkeys(STREAMS, "*bf16") | dict.fromkeys(FLOATS, "*fp32")
    types = {x: kinds.get(x, "i32") for x in kernel.arg_names if x not in constants}
    sizes = ("D", "n_states")
    aligned = [x for x in types if x in kinds or x in sizes or x.endswith("_row")]
    return kernel, types, aligned, constants, warps
