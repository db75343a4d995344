"""What no scan on this machine can beat: moving its tensors once, and one exponential a state.

Both floors of a shape are measured in the same rounds as the contenders. The larger is the floor.

bytes           A copy that reads and writes as many bytes in all as the operator has to, with the
                same threads, warm, so on the same level of cache.
exponentials    B L D N of them forward; twice that for forward and backward, because a backward
                that stores no states has to form them again. The rate is the better of
                `torch.exp` and ``exp_rate.c``, both in cache, on all threads. (`torch.exp` alone
                is no floor: it takes more care of special values than a scan needs.)
"""

from __future__ import annotations

import contextlib
import ctypes
import math
import shutil
import statistics
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch
from _harness import FOLDER
from torch import Tensor

IN_CACHE = 8192  # elements a thread: with the results 64 KiB
REPEATS = 500
PASSES = {"forward": 1, "both": 2}


def unavoidable_bytes(shape: tuple[int, ...], itemsize: int = 4) -> dict[str, int]:
    """Bytes read and written once, of the operator forward and of forward and backward."""
    B, L, D, N = shape
    stream, coefficients = B * L * D, B * L * N
    forward = 3 * stream + 2 * coefficients  # u, delta, y; b, c
    backward = 5 * stream + 4 * coefficients  # grad_y, u, delta, two gradients; b, c, theirs
    return {"forward": forward * itemsize, "both": (forward + backward) * itemsize}


class TightExponentials:
    """``exp_rate.c`` on several threads, `IN_CACHE * REPEATS` exponentials each.

    Raises
    ------
    OSError
        Without a C compiler that makes it.
    """

    def __init__(self) -> None:
        compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
        if compiler is None:
            raise FileNotFoundError("expected a C compiler cc, gcc or clang on the path, got none")
        with tempfile.TemporaryDirectory() as folder:
            path = str(Path(folder) / "exp_rate.so")
            source = str(FOLDER / "exp_rate.c")
            command = [compiler, "-O3", "-march=native", "-shared", "-fPIC", "-o", path, source]
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode:
                raise OSError(done.stderr)
            self.function = ctypes.CDLL(path).exponentials
        self.function.argtypes = (*[ctypes.c_void_p] * 2, *[ctypes.c_int64] * 2)
        self.function.restype = None
        threads = torch.get_num_threads()
        self.pool = ThreadPoolExecutor(threads)
        self.x = -10 * torch.rand(threads, IN_CACHE)
        self.y = torch.empty_like(self.x)

    def __call__(self) -> None:
        rows = zip(self.x, self.y, strict=True)
        for job in [self.pool.submit(self._one, x, y) for x, y in rows]:
            job.result()

    def _one(self, x: Tensor, y: Tensor) -> None:
        self.function(x.data_ptr(), y.data_ptr(), IN_CACHE, REPEATS)


def floor_calls(shape: tuple[int, ...]) -> dict[tuple[str, str], Callable[[], object]]:
    """Calls to time in turns with the contenders, for `floors`."""
    calls: dict[tuple[str, str], Callable[[], object]] = {}
    for column, count in unavoidable_bytes(shape).items():
        source = torch.ones(count // 8)  # half of the bytes are read, half are written
        target = torch.empty_like(source)
        calls["copy", column] = lambda target=target, source=source: target.copy_(source)
    threads = torch.get_num_threads()
    # One chunk of at::parallel_for a thread.
    x = -10 * torch.rand(max(IN_CACHE, 32768) * threads)
    y = torch.empty_like(x)
    calls["exp", "torch"] = lambda: torch.exp(x, out=y)
    with contextlib.suppress(OSError):  # no compiler: `torch.exp` has to do
        calls["exp", "exp_rate.c"] = TightExponentials()
    return calls


def floors(shape: tuple[int, ...], times: Mapping[tuple[str, str], list[float]]) -> dict[str, Any]:
    """Both floors of a shape in milliseconds from the times of `floor_calls`."""
    threads = torch.get_num_threads()
    counts = {"torch": max(IN_CACHE, 32768) * threads, "exp_rate.c": IN_CACHE * REPEATS * threads}
    rates = {
        name: count / statistics.median(times["exp", name]) * 1e3
        for name, count in counts.items()
        if ("exp", name) in times
    }
    result: dict[str, Any] = {"shape": list(shape), "exponentials_per_second": rates}
    for column, count in unavoidable_bytes(shape).items():
        copy_ms = statistics.median(times["copy", column])
        exponentials = PASSES[column] * math.prod(shape)
        exponentials_ms = exponentials / max(rates.values()) * 1e3
        result[column] = {
            "bytes": count,
            "bytes_per_second": count / copy_ms * 1e3,
            "bytes_ms": copy_ms,
            "exponentials": exponentials,
            "exponentials_ms": exponentials_ms,
            "floor_ms": max(copy_ms, exponentials_ms),
            "larger": "bytes" if copy_ms > exponentials_ms else "exponentials",
        }
    return result
