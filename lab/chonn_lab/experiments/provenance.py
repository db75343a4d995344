"""Where a result comes from: data, code, commit and machine."""

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
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

import chonn_lab
import chonn_ops

SHOWN = 12
# The parts of the laboratory that numbers depend on; reports do not count.
LAB_FOLDERS = ("baselines", "conf", "experiments", "problems")
SOURCES = (".py", ".c", ".h", ".yaml")


@dataclasses.dataclass(frozen=True)
class Provenance:
    """Data and code behind a run; empty where an old file does not record them.

    `data` has for each file the record of `chonn_lab.problems.origin.identify`, with its
    SHA-256, and is empty for data that the code makes; the others are what `code` returns.
    """

    data: Mapping[str, Mapping[str, Any]] = dataclasses.field(default_factory=dict)
    code: str = ""
    commit: str | None = None
    dirty: bool | None = None

    @property
    def known(self) -> bool:
        """Whether the code is recorded."""
        return bool(self.code or self.commit)

    @property
    def state(self) -> str:
        """The commit for people, with "-dirty" if files were changed."""
        return f"{(self.commit or 'none')[:SHOWN]}{'-dirty' if self.dirty else ''}"

    def differences(self, now: Provenance) -> str:
        """Data files whose content differs; empty if there are none."""
        return ", ".join(
            f"data {name}: SHA-256 {_sha256(self.data[name])} there, {_sha256(now.data[name])} here"
            for name in sorted(self.data.keys() & now.data.keys())
            if self.data[name].get("sha256") != now.data[name].get("sha256")
        )

    def note(self, now: Provenance) -> str:
        """A remark for a checkpoint of other code that is used all the same; empty if equal."""
        if self.state != now.state:
            return f"commit {self.state} there, {now.state} here"
        return "" if self.code == now.code else f"code {self.code} there, {now.code} here"


def _sha256(file: Mapping[str, Any]) -> str:
    return str(file.get("sha256"))[:SHOWN]


@functools.cache
def digest() -> str:
    """SHA-256, shortened, of the sources that numbers depend on, as this process found them.

    These are all files of `chonn_ops`, C sources included, and `LAB_FOLDERS` of `chonn_lab`.
    """
    product, lab = (Path(str(package.__file__)).parent for package in (chonn_ops, chonn_lab))
    folders = (product, *(lab / name for name in LAB_FOLDERS))
    digest = hashlib.sha256()
    for path in sorted(path for folder in folders for path in folder.rglob("*")):
        if path.suffix in SOURCES:
            digest.update(path.read_bytes())
    return digest.hexdigest()[:SHOWN]


@functools.cache
def commit() -> tuple[str | None, bool | None]:
    """Commit of the checkout that holds the package, and whether files in it are changed, as this
    process found it; None and None where there is no checkout."""
    root = Path(chonn_ops.__file__).parent.parent
    if not (root / ".git").exists():
        return None, None
    command = ["git", "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    try:
        done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None, None
    revision, dirty, _ = done.stdout.strip().partition("-dirty")
    return revision, bool(dirty)


def versions() -> dict[str, str]:
    """Versions of Python and of the packages that a number depends on."""
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
    """``code``, the `digest` of the sources, with ``commit`` and ``dirty`` of the checkout."""
    revision, dirty = commit()
    return {"code": digest(), "commit": revision, "dirty": dirty}
