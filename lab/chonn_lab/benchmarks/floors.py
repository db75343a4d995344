"""What no scan on this machine can beat: moving its tensors once, and one exponential a state.

Both floors of a shape are measured in the same rounds as the contenders. The larger is the floor.

bytes           As many bytes in all as the operator has to read and write, moved by the faster of
                a copy (writes half of them) and a sum of two tensors (a third, as the scan
                itself: 20 to 40 %; writes cost more than reads), with the same threads, warm, so
                on the same level of cache.
exponentials    B L D N of them forward; twice that for forward and backward, because a backward
                that stores no states has to form them again. The rate is that of ``exp_rate.c``
                in cache, on all threads; `torch.exp` is slower, since it takes more care of
                special values than a scan needs. A call lasts milliseconds, so that waking the
                threads does not lower the rate. Without a C compiler bytes alone are the floor.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
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
from torch import Tensor

from chonn_lab.benchmarks.harness import FOLDER

IN_CACHE = 2048  # elements a thread: with the results 16 KiB, half of a small L1 cache
REPEATS = 20_000
MOVERS = {"copy": 2, "add": 3}  # tensors of which one is written
PASSES = {"forward": 1, "both": 2}


def unavoidable_bytes(shape: tuple[int, ...]) -> dict[str, int]:
    """Bytes of float32 read and written once, forward and with backward."""
    B, L, D, N = shape
    stream, coefficients = B * L * D, B * L * N
    forward = 3 * stream + 2 * coefficients  # u, delta, y; b, c
    backward = 5 * stream + 4 * coefficients  # grad_y, u, delta, two gradients; b, c, theirs
    return {"forward": 4 * forward, "both": 4 * (forward + backward)}


@functools.cache
def compiled(source: str, flags: tuple[str, ...], link: tuple[str, ...] = ()) -> ctypes.CDLL:
    """A C file of this folder as a library.

    Linked apart: where gcc's linker sees -ffast-math, loading the library makes the whole process
    flush its denormal numbers.

    Raises
    ------
    OSError
        Without a C compiler that makes it.
    """
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        raise FileNotFoundError("expected a C compiler cc, gcc or clang on the path, got none")
    with tempfile.TemporaryDirectory() as folder:
        code, path = (str(Path(folder) / name) for name in ("code.o", "library.so"))
        for command in (
            [compiler, *flags, "-fPIC", "-c", "-o", code, str(FOLDER / source)],
            [compiler, "-shared", "-o", path, code, *link],
        ):
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode:
                raise OSError(done.stderr)
        return ctypes.CDLL(path)


class TightExponentials:
    """``exp_rate.c`` on several threads, `IN_CACHE * REPEATS` exponentials each.

    Raises
    ------
    OSError
        Without a C compiler that makes it.
    """

    def __init__(self) -> None:
        self.function = compiled("exp_rate.c", ("-O3", "-march=native")).exponentials
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


def moving_calls(counts: Mapping[str, int]) -> dict[tuple[str, str], Callable[[], object]]:
    """Calls that move so many bytes a column, to time in turns with the contenders."""
    calls: dict[tuple[str, str], Callable[[], object]] = {}
    for column, count in counts.items():
        source, target = torch.ones(2, count // 4 // MOVERS["copy"])
        calls["copy", column] = functools.partial(target.copy_, source)
        left, right, total = torch.ones(3, count // 4 // MOVERS["add"])
        calls["add", column] = functools.partial(torch.add, left, right, out=total)
    return calls


def moving_floor(
    column: str, count: int, times: Mapping[tuple[str, str], list[float]]
) -> dict[str, Any]:
    """The time of the quicker mover of `count` bytes."""
    moves = {name: statistics.median(times[name, column]) for name in MOVERS}
    mover = min(moves, key=lambda name: moves[name])
    return {
        "bytes": count,
        "bytes_by": mover,
        "bytes_per_second": count / moves[mover] * 1e3,
        "bytes_ms": moves[mover],
    }


def floor_calls(shape: tuple[int, ...]) -> dict[tuple[str, str], Callable[[], object]]:
    """Calls to time in turns with the contenders, for `floors`."""
    calls = moving_calls(unavoidable_bytes(shape))
    with contextlib.suppress(OSError):  # no compiler
        calls["exp", ""] = TightExponentials()
    return calls


def floors(shape: tuple[int, ...], times: Mapping[tuple[str, str], list[float]]) -> dict[str, Any]:
    """Both floors of a shape in milliseconds from the times of `floor_calls`."""
    result: dict[str, Any] = {"shape": list(shape)}
    rate = math.inf  # exponentials a millisecond
    if ("exp", "") in times:
        count = IN_CACHE * REPEATS * torch.get_num_threads()
        rate = count / statistics.median(times["exp", ""])
        result["exponentials_per_second"] = rate * 1e3
    for column, count in unavoidable_bytes(shape).items():
        moved = moving_floor(column, count, times)
        bytes_ms = moved["bytes_ms"]
        exponentials = PASSES[column] * math.prod(shape)
        exponentials_ms = exponentials / rate
        result[column] = {
            **moved,
            "exponentials": exponentials,
            "exponentials_ms": exponentials_ms,
            "floor_ms": max(bytes_ms, exponentials_ms),
            "larger": "bytes" if bytes_ms > exponentials_ms else "exponentials",
        }
    return result
