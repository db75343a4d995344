"""Compiles the kernels without a GPU, as a bfloat16 scan with N = 16 would."""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from chonn_ops.scan.triton import kernels

STREAMS = ("u", "delta", "b", "c", "y", "grad_y", "grad_u", "grad_delta")
FLOATS = (
    *("decay", "d", "carry_in", "start", "prior", "ends", "sums", "checkpoints", "scratch"),
    *("grad_decay", "grad_b", "grad_c", "grad_d", "grad_start", "prior_u", "prior_delta"),
)
TILE = {"SHARE": 2, "KIND": (True, False, False), "J": 2, "N": 16, "W": 8}
CONSTANTS = {**TILE, "GROUP": 4, "PERIODIC": True, "BACKWARD": True, "K": 128, "REAL": tl.float32}
KERNELS = {
    "walk_forward": (kernels.walk_forward, {"prior": None, "carry_in": None, "sums": None}, 1),
    "walk_backward": (kernels.walk_backward, {"carry_in": None}, 1),
    "sweep_adjoint": (kernels.sweep_adjoint, {}, 1),
    "join": (kernels.join_segments, {}, 4),
}


def compile_for_hopper(name: str) -> Any:
    kernel, absent, warps = KERNELS[name]
    signature, constants, aligned = {}, {}, {}
    for index, argument in enumerate(kernel.arg_names):
        if argument in absent or argument in CONSTANTS:
            signature[argument] = "constexpr"
            constants[(index,)] = CONSTANTS.get(argument)
        elif argument in STREAMS or argument in FLOATS:
            signature[argument] = "*bf16" if argument in STREAMS else "*fp32"
            aligned[(index,)] = [["tt.divisibility", 16]]
        else:
            signature[argument] = "i32"
            if argument in ("D", "n_states") or argument.endswith("_row"):
                aligned[(index,)] = [["tt.divisibility", 16]]
    source = ASTSource(kernel, signature, constexprs=constants, attrs=aligned)
    options = {"num_warps": warps, "enable_fp_fusion": True}
    return triton.compile(source, target=GPUTarget("cuda", 90, 32), options=options)
