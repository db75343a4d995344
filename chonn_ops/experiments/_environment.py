"""What a result depends on beside its settings: versions, hardware, commit; and peak memory."""

from __future__ import annotations

import contextlib
import functools
import importlib.metadata
import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch

import chonn_ops

_PACKAGES = ("torch", "lightning", "numpy")


def versions() -> dict[str, str]:
    packages = {name: importlib.metadata.version(name) for name in _PACKAGES}
    return {"python": platform.python_version(), "chonn-ops": chonn_ops.__version__, **packages}


def hardware(device: torch.device) -> dict[str, Any]:
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
