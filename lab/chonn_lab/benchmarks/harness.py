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
import multiprocessing
import os
import platform
import statistics
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import torch

from chonn_lab.paths import RESULTS
from chonn_ops.files import write_json

FOLDER = Path(__file__).parent
_M_MMAP_THRESHOLD = -3  # of glibc's mallopt

_RECORDED = ("rounds", "visit_ms", "smoke")  # of a program's options

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
    """Exponent p of the power law ``values ~ sizes^p``, fitted on logarithmic axes."""
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


def scan_share(call: Call) -> float:
    """Share of the main thread's time in the scan and network operators, with all they call."""
    call()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
        call()
    total = sum(event.self_cpu_time_total for event in profiler.key_averages())
    scans = sum(e.cpu_time_total for e in profiler.events() or () if _is_outermost_scan(e))
    return scans / total


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


def environment(options: argparse.Namespace, packages: Sequence[str] = ()) -> dict[str, Any]:
    """What the numbers depend on besides the code, and which code it was."""
    from chonn_lab.experiments.provenance import code, hardware
    from chonn_ops.scan.cpu import available_isas

    isas, found = available_isas(), code()
    machine = hardware(torch.device("cpu"))
    return {
        **{name: value for name, value in vars(options).items() if name in _RECORDED},
        **{name: machine[name] for name in ("threads", "cores", "processor")},
        "kernel": os.environ.get("CHONN_SCAN_ISA") or (isas[-1] if isas else None),
        "python": platform.python_version(),
        "versions": {name: version(name) for name in ("torch", "numpy", *packages)},
        "code": found["code"],
        "commit": found["commit"],
        "changed": bool(found["dirty"]),
    }


def arguments(
    description: str | None, results: str, sections: Sequence[str] = ()
) -> argparse.ArgumentParser:
    """The options of every program; their results go to ``lab/results/<results>.json``."""
    parser = argparse.ArgumentParser(description=(description or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--visit-ms", type=float, default=100.0, help="of a contender in a round")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--smoke", action="store_true", help="tiny sizes, to see that it runs")
    if sections:
        parser.add_argument(
            "--only", choices=sections, action="append", help="sections; needs another --output"
        )
    output = RESULTS / f"{results}.json"
    parser.add_argument("--output", type=Path, default=output)
    return parser


def start(parser: argparse.ArgumentParser, given: list[str] | None) -> argparse.Namespace:
    """Parse, and apply the options that hold for the whole process.

    With ``--only`` or ``--smoke`` the results are not those of a whole run, which they must not
    replace.
    """
    options = parser.parse_args(given)
    whole: Path = parser.get_default("output")
    if options.output == whole and (options.smoke or getattr(options, "only", None)):
        parser.error(f"expected another --output than {whole} for a part of the run")
    torch.set_num_threads(options.threads)
    return options


def show(rows: Sequence[Mapping[str, Any]], *keys: str) -> None:
    """Print the rows' values of `keys`: a line a row, bytes as MiB, "-" where there is none."""
    lines = [[key.replace("_bytes", "_MiB") for key in keys], ["---"] * len(keys)]
    lines += [[_shown(key, row.get(key)) for key in keys] for row in rows]
    print("\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n", flush=True)


def show_growth(series: Sequence[Mapping[str, Any]], size: str, *keys: str) -> None:
    """Print the points of every series, then the exponents of their growth."""
    for found in series:
        slopes = {key: f"{value:.3f}" for key, value in found["slopes"].items()}
        show([*found["points"], {size: f"slope, {found['name']}", **slopes}], size, *keys)


def _shown(key: str, value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, (list, tuple)):
        return "x".join(map(str, value))
    if key.endswith("_bytes") and not isinstance(value, str):
        value *= 2**-20
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def write_result(path: Path, result: Mapping[str, Any]) -> None:
    write_json(path, result)
    print(f"wrote {path}")
