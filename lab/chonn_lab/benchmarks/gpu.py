"""Scan, networks and training steps on a CUDA GPU, beside their peers.

    chonn-lab bench gpu               needs CUDA; writes lab/results/gpu.json
    chonn-lab bench gpu --smoke       everything at tiny sizes on the CPU: networks by Triton's
                                      interpreter, scans by PyTorch; needs another --output

Contenders
    chonn-ops   backend "cuda" for scans, "triton" for networks
    mamba-ssm   `selective_scan_fn`, in its own layout (B, D, L)
    torch-sla   conjugate gradients for a batch of matrices

Columns
    forward, both   _ms: median of CUDA events; without autograd, and with gradients of all inputs
    peak_MiB        on the card during forward and backward, above those before

Training steps of models come first: forward, backward and Adam, on 16 samples of 64 x 64 points.
The model named FNO is `CHONNFNO2d` without cells, which is the FNO of PDEBench. What fails is
noted, and does not stop the others. Values and gradients are checked on CUDA by
tests/scan/test_scan_cuda.py and tests/network/test_direct_triton.py.
"""

from __future__ import annotations

import functools
import itertools
import os
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from chonn_lab.benchmarks.harness import (
    Call,
    Row,
    Run,
    gradients,
    inference,
    main_of,
    training_step,
)
from chonn_lab.benchmarks.models import step_parts
from chonn_lab.benchmarks.network import Case, Solver, make, ours, torch_sla
from chonn_lab.benchmarks.scan import make_inputs
from chonn_ops import kirchhoff_scan

SHAPES = (
    ((8, 4096, 1536, 16), torch.bfloat16),
    ((8, 1024, 64, 16), torch.float32),
    ((2, 3136, 192, 1), torch.float32),
    ((1, 1_000_000, 16, 16), torch.float32),
)
CASES = (
    Case((64, 64), 400),
    Case((256, 256), 32),
    Case((512, 512), 8),
    Case((32, 32, 32), 32),
    Case((1_000_000,), 4),
)
TINY_SHAPES = (((1, 5, 3, 2), torch.float32),)
TINY_CASES = (Case((5, 4), 2), Case((7,), 2))


def timed(call: Call) -> list[float]:
    """Milliseconds of three calls by CUDA events."""
    marks = [torch.cuda.Event(enable_timing=True) for _ in range(4)]
    marks[0].record()
    for mark in marks[1:]:
        call()
        mark.record()
    torch.cuda.synchronize()
    return [a.elapsed_time(b) for a, b in itertools.pairwise(marks)]


def peak_of(call: Call) -> int:
    """Bytes on the card during a second call, above those before."""
    call()
    if not torch.cuda.is_available():
        return 0
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    call()
    return torch.cuda.max_memory_allocated() - before


def timed_passes(forward: Call, both: Call) -> Row:
    return {"peak_bytes": peak_of(both), "calls": {"forward": forward, "both": both}}


def scans(run: Run, device: str, shape: tuple[int, ...], dtype: torch.dtype) -> Row:
    inputs = [t.to(device) for t in make_inputs(shape, dtype)]

    def contender(function: Callable[..., Tensor], given: list[Tensor] = inputs) -> Row:
        return timed_passes(inference(function, given), gradients(function, given))

    def mamba() -> Row:
        """mamba-ssm's scan with inputs in its own layout."""
        from mamba_ssm.ops.selective_scan_interface import selective_scan_fn

        u, delta, decay, b, c, d = inputs
        turned = [t.transpose(1, 2).contiguous() for t in (u, delta, b, c)]
        return contender(selective_scan_fn, [*turned[:2], -decay, *turned[2:], d])

    # On the CPU, where the kernels do not run, PyTorch stands in for them.
    ours = functools.partial(kirchhoff_scan, backend="torch" if device == "cpu" else "cuda")
    makes = {"chonn-ops": lambda: contender(ours), "mamba-ssm": mamba}
    return run.section(makes, shape=[*shape], dtype=str(dtype)[6:])


def networks(run: Run, device: str, case: Case) -> Row:
    given = make(case, device)

    def contender(build: Callable[..., Solver]) -> Row:
        return timed_passes(*build(given)[:2])

    builds = {"chonn-ops": functools.partial(ours, backend="triton"), "torch-sla": torch_sla}
    makes = {name: functools.partial(contender, build) for name, build in builds.items()}
    return run.section(makes, **case.label())


def models() -> dict[str, Callable[[], torch.nn.Module]]:
    from chonn_ops import CHONNFNO2d, CHONNNetwork2d, CHONNRollout2d, CHONNUNet2d, CKBOptions

    fno: dict[str, Any] = {"modes1": 12, "modes2": 12, "width": 20, "initial_step": 1}
    return {
        "FNO": lambda: CHONNFNO2d(1, **fno, ckb=CKBOptions(order=0)),
        "CHONNFNO2d": lambda: CHONNFNO2d(1, **fno),
        "CHONNNetwork2d": lambda: CHONNNetwork2d(1, 1),
        "CHONNUNet2d": lambda: CHONNUNet2d(1, 1),
        "CHONNRollout2d": lambda: CHONNRollout2d(1, 1),
    }


def steps(run: Run, device: str) -> Row:
    """Training steps of models."""
    samples, n = (1, 32) if device == "cpu" else (16, 64)

    def make(name: str) -> Row:
        step = training_step(*step_parts(models()[name], samples, n, device))
        return {"peak_bytes": peak_of(step), "calls": {"step": step}}

    makes = {name: functools.partial(make, name) for name in models()}
    return run.section(makes, steps=f"{samples} samples of {n} x {n}")


def sections(run: Run) -> Iterator[Row]:
    if run.smoke:
        os.environ["TRITON_INTERPRET"] = "1"  # read when Triton is first imported
    elif torch.cuda.is_available():
        run.visit = timed
    else:
        raise SystemExit("expected a CUDA GPU, found none (--smoke runs without)")
    device = "cpu" if run.smoke else "cuda"
    yield steps(run, device)
    for shape, dtype in TINY_SHAPES if run.smoke else SHAPES:
        yield scans(run, device, shape, dtype)
    for case in TINY_CASES if run.smoke else CASES:
        yield networks(run, device, case)


main = main_of(
    __doc__,
    "gpu",
    {"sections": sections},
    ["triton", "mamba-ssm", "torch-sla"],
    rounds=5,
    visit_ms=0.0,
)

if __name__ == "__main__":
    main()
