"""What all benchmarks share: options, timing in turns, peak memory, rows, environment, files.

A benchmark is its sections, functions that take a `Run` and return what the result file says of
them; `main_of` makes its program. Every round visits each contender in turn, so that a slow spell
of the machine hits all of them: one call to warm caches and allocator, as inside a training loop,
then timed calls. Reported are the median and the quartiles of all timed calls of all rounds.
"""

import argparse
import contextlib
import ctypes
import dataclasses
import functools
import gc
import importlib.metadata
import json
import multiprocessing
import os
import platform
import statistics
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import pandas as pd
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from chonn_lab.baselines.fields import count_parameters
from chonn_lab.experiments.provenance import code, hardware, peak_memory_mib, reset_peak_memory
from chonn_lab.paths import RESULTS
from chonn_ops.files import write_whole
from chonn_ops.scan import cpu

_M_MMAP_THRESHOLD = -3  # of glibc's mallopt

Call = Callable[[], object]
Row = dict[str, Any]
# Model, inputs, target; a value that another process can call, too.
Make = Callable[[], tuple[nn.Module, tuple[Tensor, ...], Tensor]]


def milliseconds(call: Call, repeats: int = 1) -> float:
    """The median of some calls."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return 1e3 * statistics.median(times)


@dataclasses.dataclass
class Run:
    """Options of a run, and notes of what was left out.

    A contender's visit in a round lasts `visit_ms` at least, in timed calls, or is what `visit`
    says: the milliseconds of some calls.
    """

    rounds: int = 1
    visit_ms: float = 0.0
    smoke: bool = False
    visit: Callable[[Call], list[float]] = lambda call: [milliseconds(call)]
    notes: list[str] = dataclasses.field(default_factory=list)

    def times(self, calls: Mapping[Any, Call]) -> dict[Any, list[float]]:
        """Milliseconds of each timed call."""
        times: dict[Any, list[float]] = {key: [] for key in calls}
        for _ in range(self.rounds):
            for key, call in calls.items():
                call()
                visit = self.visit(call)
                while sum(visit) < self.visit_ms:
                    visit += self.visit(call)
                times[key] += visit
        return times

    def section(self, makes: Mapping[str, Callable[[], Row]], **case: Any) -> Row:
        """A case with a printed row for each contender, timed in turns; one that fails is noted.

        `makes` make the rows. The ``calls`` of a row map columns to what is timed, its ``scale``
        multiplies the times; the rest stays in it beside ``column_ms``, ``column_quartiles_ms``
        and ``column_ratio``, the time over that of the first contender.
        """
        rows: dict[str, Row] = {}
        calls: dict[tuple[str, str], Call] = {}
        scales: dict[str, float] = {}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of what peers import and of what does not converge
            for name, make in makes.items():
                try:
                    row = make()
                except Exception as failure:
                    text = f"{type(failure).__name__}: {str(failure).partition(chr(10))[0]}"
                    missing = isinstance(failure, ImportError) or not case
                    note = f"{name} left out{'' if missing else f' at {case}'}: {text}"
                    if note not in self.notes:
                        self.notes.append(note)
                    continue
                calls |= {(name, column): call for column, call in row.pop("calls").items()}
                scales[name] = row.pop("scale", 1)
                rows[name] = {"name": name, **row}
            times = self.times(calls)
        for (name, column), values in times.items():
            scaled = [value * scales[name] for value in values]
            rows[name][f"{column}_ms"] = statistics.median(scaled)
            if len(scaled) > 1:
                low, _, high = statistics.quantiles(scaled, n=4)
                rows[name][f"{column}_quartiles_ms"] = [low, high]
        first = rows.get(next(iter(makes)), {})
        for name, column in times:
            if f"{column}_ms" in first:
                ratio = rows[name][f"{column}_ms"] / first[f"{column}_ms"]
                rows[name][f"{column}_ratio"] = ratio
        show(list(rows.values()), **case)
        return {**case, "rows": list(rows.values())}

    def steps(self, makes: Mapping[str, Make]) -> list[Row]:
        """Rows of models: forward pass in evaluation mode and training step, parameters and
        memory."""
        calls = {name: functools.partial(_stepped, make) for name, make in makes.items()}
        return self.section(calls)["rows"]


def _stepped(make: Make) -> Row:
    model, inputs, target = make()
    forward = inference(make()[0].eval(), inputs)
    step = training_step(model, inputs, target)
    step()
    # Other numbers may take another time.
    if not all(p.grad is None or p.grad.isfinite().all() for p in model.parameters()):
        raise FloatingPointError("expected finite gradients")
    return {
        "calls": {"forward": forward, "step": step},
        "parameters": count_parameters(model),
        "peak_bytes": fresh_peak(_two_steps, make),
    }


def _two_steps(make: Make) -> Call:
    """Build and train two steps: everything that training holds, the optimizer's state too."""

    def call() -> None:
        step = training_step(*make())
        step()
        step()

    return call


def training_step(
    model: nn.Module,
    inputs: tuple[Tensor, ...],
    target: Tensor,
    forward: Callable[..., Tensor] | None = None,
) -> Call:
    """Forward, mean squared error, backward, Adam; one call is one step.

    The learning rate is 0: Adam does all its work, and every step is one on the same numbers.
    `forward` calls the model in another way.
    """
    # A CUDA graph needs numbers of steps on the GPU.
    optimizer = torch.optim.Adam(model.parameters(), lr=0.0, capturable=target.is_cuda)
    called = model if forward is None else forward

    def step() -> None:
        optimizer.zero_grad()
        F.mse_loss(called(*inputs), target).backward()
        optimizer.step()

    return step


def inference(model: Callable[..., Any], inputs: Sequence[Tensor] = ()) -> Callable[[], Any]:
    """Forward without autograd."""
    return torch.no_grad()(lambda: model(*inputs))


def gradients(function: Callable[..., Tensor], inputs: Sequence[Tensor]) -> Call:
    """Both passes, for the gradients of all inputs with fixed random weights."""
    leaves = [tensor.detach().clone().requires_grad_() for tensor in inputs]
    like = function(*leaves).detach()
    weight = torch.randn(like.shape, generator=torch.Generator().manual_seed(1)).to(like)
    return lambda: torch.autograd.grad(function(*leaves), leaves, weight)


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
    with contextlib.suppress(AttributeError):  # of other libraries than glibc
        # Tensors come from the system one by one and go back when freed: no fragments, no reuse.
        ctypes.CDLL(None).mallopt(_M_MMAP_THRESHOLD, 65536)
    call = prepare(*arguments)
    call()
    gc.collect()
    reset_peak_memory()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    before = pages * os.sysconf("SC_PAGESIZE")
    call()
    return max(0, int(2**20 * (peak_memory_mib(torch.device("cpu")) or 0)) - before)


def version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def environment(options: Mapping[str, Any], packages: Sequence[str] = ()) -> dict[str, Any]:
    """What the numbers depend on besides the code, and which code it was."""
    compiled, record = cpu.kernel(), code()
    machine = hardware(torch.device("cpu"))
    return {
        **options,
        **{name: machine[name] for name in ("threads", "cores", "processor")},
        "gpu": torch.cuda.get_device_name(0) if torch.cuda.is_available() else None,
        "kernel": os.environ.get("CHONN_SCAN_ISA") or (compiled.isas[-1] if compiled else None),
        "python": platform.python_version(),
        "versions": {name: version(name) for name in ("torch", "numpy", *packages)},
        "code": record["code"],
        "commit": record["commit"],
        "changed": bool(record["dirty"]),
    }


def main_of(
    description: str | None,
    results: str,
    sections: Mapping[str, Callable[[Run], Any]],
    packages: Sequence[str] = (),
    **defaults: Any,
) -> Callable[..., None]:
    """The program of a benchmark, whose results go to ``lab/results/<results>.json``.

    It calls the `sections` in their order, unless ``--only`` names some, and records the versions
    of `packages`. A section may be an iterator. `defaults` are those of the options.
    """

    def main(arguments: list[str] | None = None) -> None:
        parser = argparse.ArgumentParser(description=(description or "").partition("\n")[0])
        parser.add_argument("--rounds", type=int, default=7)
        parser.add_argument("--visit-ms", type=float, default=100.0, help="of each in a round")
        parser.add_argument("--threads", type=int, default=torch.get_num_threads())
        parser.add_argument("--smoke", action="store_true", help="tiny sizes, to see that it runs")
        only = {"choices": tuple(sections), "action": "append"}
        parser.add_argument("--only", **only, help="sections; needs another --output")
        parser.add_argument("--output", type=Path, default=RESULTS / f"{results}.json")
        parser.set_defaults(**defaults)
        options = parser.parse_args(arguments)
        whole = parser.get_default("output")
        if options.output == whole and (options.smoke or options.only):
            parser.error(f"expected another --output than {whole} for a part of the run")
        torch.set_num_threads(options.threads)
        run = Run(options.rounds, options.visit_ms, options.smoke)
        chosen = {name: getattr(run, name) for name in ("rounds", "visit_ms", "smoke")}
        result = {"environment": environment(chosen, packages), "notes": run.notes}
        # What is there when a run stops lies beside the results of the last whole one.
        unfinished = options.output.with_suffix(".unfinished.json")
        for name in options.only or sections:
            content = sections[name](run)
            result[name] = [] if isinstance(content, Iterator) else content
            for part in content if isinstance(content, Iterator) else ():
                result[name].append(part)
                write_whole(unfinished, json.dumps(result, indent=1) + "\n")
            write_whole(unfinished, json.dumps(result, indent=1) + "\n")
        for note in run.notes:
            print(f"note: {note}")
        unfinished.replace(options.output)
        print(f"wrote {options.output}")

    return main


def show(rows: Sequence[Mapping[str, Any]], **case: Any) -> None:
    """Print a case and its rows: a line a row, bytes as MiB, "-" where there is no number."""
    if case:
        print(", ".join(f"{name} {value}" for name, value in case.items()))
    frame = pd.DataFrame(rows).filter(regex="^(?!.*quartiles)")
    for name in frame.filter(like="_bytes"):
        frame[name.replace("_bytes", "_MiB")] = frame.pop(name) / 2**20
    options = {"index": False, "na_rep": "-", "float_format": "{:.4g}".format}
    print(frame.to_string(**options) + "\n", flush=True)
