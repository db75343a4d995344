"""Compiles the kernels of networks without a GPU, as 32 x 32 nodes in float32 would."""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from chonn_ops.network.triton import cycle, shared

POINTERS = {
    **dict.fromkeys(
        ("fields", "factors", "p", "Ap", "deviation", "sums", "rule", "whole"), "*fp32"
    ),
    **dict.fromkeys(("iterations", "schedule", "running"), "*i32"),
    "v": "*fp64",
    "table": "*i64",
    "tol": "fp32",
}


def compile_for_hopper(name: str, **shape: int) -> Any:
    kernel = getattr(shared if name in vars(shared) else cycle, name)
    constants = {"BLOCK": 1024, "ROWS": 32, "COLUMNS": 128, "REAL": tl.float32, **shape}
    signature, values, aligned = {}, {}, {}
    for index, argument in enumerate(kernel.arg_names):
        if argument in constants:
            signature[argument] = "constexpr"
            values[(index,)] = constants[argument]
        else:
            signature[argument] = POINTERS.get(argument, "i32")
            if signature[argument].startswith("*"):
                aligned[(index,)] = [["tt.divisibility", 16]]
    source = ASTSource(kernel, signature, constexprs=values, attrs=aligned)
    return triton.compile(
        source, target=GPUTarget("cuda", 90, 32), options={"num_warps": 8, "enable_fp_fusion": True}
    )
