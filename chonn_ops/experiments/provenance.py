"""What a result was made of: data, model code, commit, machine; and where results differ in it."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import importlib.metadata
import os
import platform
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

import chonn_ops
from chonn_ops.experiments.fingerprint import digest, package, parts
from chonn_ops.problems import origin

if TYPE_CHECKING:
    from chonn_ops.experiments.base import Data
    from chonn_ops.experiments.jobs import Job
    from chonn_ops.experiments.records import Run

ANYWAY = "--mixed"
SHOWN = 12
NAMED = 3
_models: dict[tuple[str, str, str], dict[str, str]] = {}


@dataclasses.dataclass(frozen=True)
class Provenance:
    """What a run was made of; empty where an old file does not say.

    Parameters
    ----------
    data : mapping
        By file what `chonn_ops.problems.origin.Origin` knows, the SHA-256 among it.
    model, sources : str, mapping
        Digest of the model's code, and of its parts.
    commit, dirty : str, bool
        Of the checkout that holds the package, None if it is none.
    """

    data: Mapping[str, Mapping[str, Any]] = dataclasses.field(default_factory=dict)
    model: str = ""
    sources: Mapping[str, str] = dataclasses.field(default_factory=dict)
    commit: str | None = None
    dirty: bool | None = None

    @classmethod
    def parse(cls, record: Mapping[str, Any]) -> Provenance:
        """From a record of `record`, or of anything that has the same entries among others."""
        names = [field.name for field in dataclasses.fields(cls)]
        return cls(**{name: record[name] for name in names if name in record})

    def record(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    @property
    def known(self) -> bool:
        """Whether data and model code are recorded."""
        return bool(self.data and self.model)

    @property
    def state(self) -> str:
        """The commit for people, with "-dirty" if files were changed."""
        return f"{(self.commit or 'none')[:SHOWN]}{'-dirty' if self.dirty else ''}"

    def differences(self, now: Provenance) -> str:
        """In which data and which parts of the model's code two differ; empty if in none."""
        found = [
            f"data {name}: SHA-256 {_sha256(self.data[name])} there, {_sha256(now.data[name])} here"
            for name in sorted(self.data.keys() & now.data.keys())
            if self.data[name].get("sha256") != now.data[name].get("sha256")
        ]
        code = [
            name
            for name in sorted(self.sources.keys() | now.sources.keys())
            if self.sources.get(name) != now.sources.get(name)
        ]
        return ", ".join([*found, *([f"model code: {', '.join(code)}"] if code else [])])

    def note(self, now: Provenance) -> str:
        """What is said of an earlier part that is taken all the same; empty if nothing differs."""
        if not self.known:
            return "without a record of data and model code"
        found = [self.differences(now)]
        if self.state != now.state:
            found.append(f"commit {self.state} there, {now.state} here")
        return ", ".join(filter(None, found))


def of(job: Job, model: torch.nn.Module, data: Data) -> Provenance:
    """Of a run that starts now."""
    return _made(_files(job) or _loaded(job, data), parts(model, job.variant.name))


def here(job: Job) -> Provenance:
    """The same of a run that has finished, without the data that are no files or not there."""
    key = (job.experiment.name, job.variant.name, repr(job.config))
    if key not in _models:
        _models[key] = parts(job.variant.build(job.config), job.variant.name)
    return _made(_files(job), _models[key])


def _made(data: Mapping[str, Mapping[str, Any]], sources: Mapping[str, str]) -> Provenance:
    return Provenance(data, digest(sources), sources, *commit())


def _files(job: Job) -> dict[str, dict[str, Any]]:
    return files(filter(Path.is_file, job.data_files))


def files(paths: Iterable[Path]) -> dict[str, dict[str, Any]]:
    """What is known of data files, their SHA-256 among it, by name."""
    return {path.name: origin.identify(path).record() for path in paths}


def _loaded(job: Job, data: Data) -> dict[str, dict[str, Any]]:
    """Of data that are no files; models that change settings may load other data by right."""
    changes = [f", {name}={value}" for name, value in sorted(job.variant.changes.items())]
    found = hashlib.sha256()
    for name, split in {"train": data.train, "validation": data.validation, **data.tests}.items():
        for tensor in split.tensors:
            found.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
            values = tensor.detach().cpu().contiguous().flatten().view(torch.uint8)
            found.update(memoryview(values.numpy()))  # pyright: ignore[reportArgumentType]
    return {"".join(["as loaded", *changes]): {"sha256": found.hexdigest()}}


def _sha256(file: Mapping[str, Any]) -> str:
    return str(file.get("sha256"))[:SHOWN]


def conflicts(runs: Iterable[Run]) -> list[str]:
    """In which data, settings or model code the results of one table differ, and which they are.

    Settings that a model changes by design may differ between models. Old results, which do not
    say what they were made of, are compared where they can be.
    """
    values: dict[str, dict[str, list[str]]] = {}
    for run in runs:
        for what, value in _facts(run):
            values.setdefault(what, {}).setdefault(value, []).append(
                f"{run.variant} seed {run.seed}"
            )
    split: dict[tuple[tuple[str, ...], ...], list[str]] = {}
    for what, found in values.items():
        if len(found) > 1:
            by_size = sorted(found.items(), key=lambda item: len(item[1]))
            against = " / ".join(value for value, _ in by_size)
            shown = f"{what} ({against})" if what.startswith(("setting", "data")) else what
            split.setdefault(tuple(tuple(names) for _, names in by_size), []).append(shown)
    return [
        f"{', '.join(whats)}: {' differ from '.join(map(_titles, groups))}"
        for groups, whats in split.items()
    ]


def mixture(source: object, runs: Sequence[Run], allowed: bool) -> tuple[str, ...]:
    """`conflicts`, refused with a ValueError that names them unless `allowed`."""
    found = tuple(conflicts(runs))
    if found and not allowed:
        raise ValueError(
            f"{source}: results of different data, settings or model code are not for one table: "
            f"{'; '.join(found)} (run them again, move some away, or mix them all the same with "
            f"{ANYWAY} / mixed=True)"
        )
    return found


def _facts(run: Run) -> Iterator[tuple[str, str]]:
    yield "setting precision", run.precision
    for name, value in run.config.items():
        if name != "seed":
            own = run.changes is None or name in run.changes
            yield f"setting {name}{f' of {run.variant}' if own else ''}", str(value)
    for name, file in run.data.items():
        yield f"data {name}", _sha256(file)
    for name, part in run.sources.items():
        yield f"model code {name}", part


def _titles(names: tuple[str, ...]) -> str:
    more = len(names) - NAMED
    return ", ".join(names[:NAMED]) + (f" and {more} more" if more > 0 else "")


def flags(runs: Sequence[Run]) -> dict[str, list[str]]:
    """What must be said of results in one table, and the variants it is said of."""
    found: dict[str, dict[str, None]] = {}
    for run in runs:
        unknown = [] if run.provenance.known else ["no record of data and model code"]
        for text in (*unknown, *run.notes):
            found.setdefault(text, {})[run.variant] = None
    return {text: list(variants) for text, variants in found.items()}


@functools.cache
def commit() -> tuple[str | None, bool | None]:
    """Commit of the checkout that holds the package, and whether files in it are changed.

    As this process found it; None and None where there is no checkout.
    """
    root = Path(chonn_ops.__file__).parent.parent
    if not (root / ".git").exists():
        return None, None
    command = ["git", "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    try:
        done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None, None
    found, dirty, _ = done.stdout.strip().partition("-dirty")
    return found, bool(dirty)


def versions() -> dict[str, str]:
    """Of Python and the packages that a number depends on."""
    packages = {name: importlib.metadata.version(name) for name in ("torch", "numpy")}
    return {"python": platform.python_version(), "chonn-ops": chonn_ops.__version__, **packages}


def hardware(device: torch.device) -> dict[str, Any]:
    """The machine, and the device of a training."""
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
    return {
        "machine": platform.machine(),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "device": name,
        "processes": int(os.environ.get("WORLD_SIZE", "1")),
    }


def _processor() -> str:
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor()


def reset_peak_memory() -> None:
    """Start to measure anew. Where the system cannot, the process's earlier peak counts too."""
    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def peak_memory_mib(device: torch.device) -> float | None:
    """Allocated on a GPU, or resident in this process; None where the system does not tell."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / 2**20
    try:
        import resource
    except ImportError:
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (2**20 if sys.platform == "darwin" else 2**10)


def code() -> dict[str, Any]:
    """Which code numbers are of that no experiment gave: ``code``, ``commit`` and ``dirty``.

    ``code`` is a digest of all files of the package; the others are those of `Provenance`.
    """
    found, dirty = commit()
    return {"code": package(), "commit": found, "dirty": dirty}
