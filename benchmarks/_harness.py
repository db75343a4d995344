"""What all benchmarks share: timing in turns, peak memory, profiles, environment, files.

Every round visits each contender in turn, so that a slow spell of the machine hits all of them:
one call to warm caches and allocator, as inside a training loop, then timed calls. Reported are
the median and the quartiles of all timed calls of all rounds.
"""

from __future__ import annotations

import argparse
import ctypes
import dataclasses
import gc
import importlib.metadata
import json
import multiprocessing
import os
import platform
import statistics
import subprocess
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import torch

FOLDER = Path(__file__).parent
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # of glibc's mallopt

_RECORDED = ("rounds", "visit_ms", "keep_freed", "smoke")  # of a program's options

Call = Callable[[], object]
Key = TypeVar("Key", bound=Hashable)

# The profiler's log is no result. Read when the profiler starts.
os.environ.setdefault("KINETO_LOG_LEVEL", "9")


def milliseconds(call: Call) -> float:
    start = time.perf_counter()
    call()
    return (time.perf_counter() - start) * 1e3


@dataclasses.dataclass(frozen=True)
class Turns:
    """How long each contender's visits are: `least` calls and `visit_ms` at least."""

    rounds: int
    visit_ms: float
    least: int = 3

    def times(self, calls: Mapping[Key, Call]) -> dict[Key, list[float]]:
        """Milliseconds of each timed call."""
        times: dict[Key, list[float]] = {key: [] for key in calls}
        for _ in range(self.rounds):
            for key, call in calls.items():
                call()
                visit = [milliseconds(call) for _ in range(self.least)]
                while sum(visit) < self.visit_ms:
                    visit.append(milliseconds(call))
                times[key] += visit
        return times


def fill(rows: Mapping[str, dict[str, Any]], times: Mapping[tuple[str, str], list[float]]) -> None:
    """Medians and quartiles of (row, column) into ``column_ms`` and ``column_quartiles_ms``."""
    for (name, column), values in times.items():
        rows[name][f"{column}_ms"] = statistics.median(values)
        if len(values) > 1:
            low, _, high = statistics.quantiles(values, n=4)
            rows[name][f"{column}_quartiles_ms"] = [low, high]


def add_ratios(rows: Mapping[str, dict[str, Any]], base: str, columns: Sequence[str]) -> None:
    """``column_ratio``: each row's median over that of row `base`, where both have one."""
    ours = rows.get(base, {})
    for row in rows.values():
        for column in columns:
            key = f"{column}_ms"
            if key in row and key in ours:
                row[f"{column}_ratio"] = row[key] / ours[key]


def slope(sizes: Sequence[float], values: Sequence[float]) -> float:
    """Exponent p of the power law ``values ~ sizes^p`` that fits best on logarithmic axes."""
    x, y = (torch.tensor(list(v), dtype=torch.float64).log() for v in (sizes, values))
    x = x - x.mean()
    return float((x * y).sum() / (x * x).sum())


def fresh_peak(prepare: Callable[..., Call], *arguments: object) -> int | None:
    """Highest resident memory during ``prepare(*arguments)()`` above that before it, in bytes.

    Runs in a process of its own: the history of an allocator distorts the mark. One call goes
    before the measured one, so that lazily loaded code does not count. What `prepare` makes does
    not count either, what the call makes does. Linux only, elsewhere None.
    """
    if not Path("/proc/self/clear_refs").exists():
        return None
    context = multiprocessing.get_context("forkserver")
    # Seconds to import; chonn_ops is left to the child, which looks where this process does.
    context.set_forkserver_preload(["torch", "torch._dynamo"])
    with ProcessPoolExecutor(1, mp_context=context) as pool:
        return pool.submit(_peak, torch.get_num_threads(), prepare, arguments).result()


def _peak(threads: int, prepare: Callable[..., Call], arguments: tuple[Any, ...]) -> int:
    torch.set_num_threads(threads)
    libc = ctypes.CDLL(None)
    if hasattr(libc, "mallopt"):
        # Tensors come from the system one by one and go back when freed: no fragments, no reuse.
        libc.mallopt(_M_MMAP_THRESHOLD, 65536)
    call = prepare(*arguments)
    call()
    gc.collect()
    if hasattr(libc, "malloc_trim"):
        libc.malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")  # restart the high-water mark
    before = _status_bytes("VmRSS")
    call()
    return max(0, _status_bytes("VmHWM") - before)


def _status_bytes(field: str) -> int:
    text = Path("/proc/self/status").read_text()
    (line,) = (line for line in text.splitlines() if line.startswith(field))
    return int(line.split()[1]) * 1024


def allocated_peak(call: Call) -> int:
    """Most bytes of tensors alive at once during the call, above those before: exact, any size."""
    call()
    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True
    ) as profiler:
        call()
    recorded: Any = profiler.profiler  # typed as if it had nothing to read
    events = (e for e in recorded.kineto_results.events() if e.name() == "[memory]")
    alive = most = 0
    for event in sorted(events, key=lambda event: event.start_ns()):
        alive += event.nbytes()
        most = max(most, alive)
    return most


def profile(call: Call, top: int = 10) -> dict[str, Any]:
    """Where the main thread's time goes in one call.

    Returns
    -------
    dict
        ``scan_share``, of the scan operators with all they call; ``ops``, the `top` operators by
        self time: name, calls, milliseconds, share.
    """
    call()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
        call()
    averages = list(profiler.key_averages())
    total = sum(event.self_cpu_time_total for event in averages)
    scans = sum(e.cpu_time_total for e in profiler.events() or () if _is_outermost_scan(e))
    averages.sort(key=lambda event: -event.self_cpu_time_total)
    ops = [
        {
            "op": event.key,
            "calls": event.count,
            "self_ms": event.self_cpu_time_total / 1e3,
            "share": event.self_cpu_time_total / total,
        }
        for event in averages[:top]
    ]
    return {"scan_share": scans / total, "ops": ops}


def _is_outermost_scan(event: Any) -> bool:
    """Whether this is a scan operator, or autograd's wrapper of one, and not inside another."""
    if "chonn_ops" not in event.key:
        return False
    while event.cpu_parent is not None:
        event = event.cpu_parent
        if "chonn_ops" in event.key:
            return False
    return True


def version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    names = info.read_text().splitlines() if info.exists() else []
    models = (x.split(":")[1].strip() for x in names if x.startswith("model name"))
    return next(models, platform.processor())


def _git(*arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", *arguments], cwd=FOLDER, capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip()


def environment(options: argparse.Namespace, packages: Sequence[str] = ()) -> dict[str, Any]:
    """What the numbers depend on besides the code, and which code it was."""
    from chonn_ops.experiments import fingerprint
    from chonn_ops.scan.cpu import available_isas

    isas = available_isas()
    changed = _git("status", "--porcelain", "--untracked-files=no", "--", "chonn_ops", "benchmarks")
    return {
        **{name: value for name, value in vars(options).items() if name in _RECORDED},
        "threads": torch.get_num_threads(),
        "cores": os.cpu_count(),
        "processor": _processor(),
        "kernel": os.environ.get("CHONN_SCAN_ISA") or (isas[-1] if isas else None),
        "python": platform.python_version(),
        "versions": {name: version(name) for name in ("torch", "numpy", *packages)},
        "code": fingerprint.package(),
        "commit": _git("rev-parse", "HEAD"),
        "changed": bool(changed),
    }


def arguments(description: str, results: str) -> argparse.ArgumentParser:
    """The options of every program; their results go to ``benchmarks/results/<results>.json``."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--visit-ms", type=float, default=100.0, help="of a contender in a round")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument(
        "--keep-freed",
        action="store_true",
        help="glibc only: keep freed memory instead of returning tensors above 32 MiB to the "
        "system, whose next use then costs a page fault every 4 KiB",
    )
    parser.add_argument("--smoke", action="store_true", help="tiny sizes, to see that it runs")
    output = FOLDER / "results" / f"{results}.json"
    parser.add_argument("--output", type=Path, default=output)
    return parser


def start(options: argparse.Namespace) -> None:
    """Apply the options that hold for the whole process."""
    torch.set_num_threads(options.threads)
    if options.keep_freed:
        libc = ctypes.CDLL(None)
        libc.mallopt(_M_MMAP_THRESHOLD, 2**30)
        libc.mallopt(_M_TRIM_THRESHOLD, 2**31 - 1)


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [header, ["---", *["---:"] * (len(header) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def cell(row: Mapping[str, Any], key: str, form: str = "{:.2f}", scale: float = 1) -> str:
    value = row.get(key)
    return "-" if value is None else form.format(value * scale)


def write_result(path: Path, result: Mapping[str, Any]) -> None:
    write_whole(path, result)
    print(f"wrote {path}")


def write_whole(path: Path, result: Mapping[str, Any]) -> None:
    """All of the file or none of it, whenever the run stops."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(path.name + ".tmp")
    temporary.write_text(json.dumps(result, indent=1) + "\n")
    temporary.replace(path)
