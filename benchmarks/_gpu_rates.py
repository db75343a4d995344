"""What this GPU does at best: bytes copied a second, and exponentials."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Callable, Mapping
from typing import Any

import torch

EXPONENTIALS_EACH = 512
_PROGRAM = 1024


def milliseconds(calls: Mapping[Any, Callable[[], object]], rounds: int) -> dict[Any, list[float]]:
    """CUDA events around each call: one to warm up and three timed ones a round, in turns."""
    times: dict[Any, list[float]] = {key: [] for key in calls}
    for _ in range(rounds):
        for key, call in calls.items():
            call()
            marks = [torch.cuda.Event(enable_timing=True) for _ in range(4)]
            marks[0].record()
            for mark in marks[1:]:
                call()
                mark.record()
            torch.cuda.synchronize()
            times[key] += [a.elapsed_time(b) for a, b in itertools.pairwise(marks)]
    return times


def _exponential_kernel() -> Any:
    import _gpu_kernels  # only where Triton is

    return _gpu_kernels.exponentials


def measure_rates(rounds: int) -> dict[str, float]:
    """Bytes (read and written) and exponentials (2^x in float32 registers) a second."""
    source = torch.empty(1 << 28, dtype=torch.float32, device="cuda")  # 1 GiB: far beyond L2
    target = torch.empty_like(source)
    programs = 64 * torch.cuda.get_device_properties(0).multi_processor_count
    out = torch.empty(programs * _PROGRAM, device="cuda")
    kernel = _exponential_kernel()
    calls = {
        "copy": lambda: target.copy_(source),
        "exp": lambda: kernel[(programs,)](out, EXPONENTIALS_EACH, _PROGRAM, num_warps=4),
    }
    seconds = {k: statistics.median(v) / 1e3 for k, v in milliseconds(calls, rounds).items()}
    return {
        "bytes_per_s": 2 * source.numel() * source.element_size() / seconds["copy"],
        "exp_per_s": out.numel() * EXPONENTIALS_EACH / seconds["exp"],
    }
