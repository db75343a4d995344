"""The kernels of chonn_ops/scan/cuda/scan.cu, compiled by g++ and run on the CPU."""

import ctypes
import hashlib
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

from chonn_ops.scan import cuda
from chonn_ops.scan.cuda.driver import Card

COMPILER = shutil.which("g++")
_SOURCE = Path(__file__).with_name("emulation.cpp")
_FOLDER = tempfile.TemporaryDirectory(prefix="chonn-emulation-")


def card(shared: int = 232448) -> Card:
    """A GPU, with the shared memory of an H100 by default."""
    return Card(0, shared, (9, 0))


@cache
def _library(macros: tuple[tuple[str, int], ...]) -> ctypes.CDLL:
    """The kernels with some macros."""
    assert COMPILER is not None
    words = [f"-D{name}={value}" for name, value in macros]
    path = Path(_FOLDER.name) / f"{hashlib.sha256(repr(words).encode()).hexdigest()[:16]}.so"
    flags = ["-O1", "-std=c++17", "-fPIC", "-shared", "-Wall", "-Werror", "-Wno-unknown-pragmas"]
    command = [COMPILER, *flags, *words, f"-I{Path(cuda.__file__).parent}", "-o", path, _SOURCE]
    subprocess.run(command, check=True)
    return ctypes.CDLL(str(path))


class Kernels:
    """As `chonn_ops.scan.cuda.driver.Kernels`, on the CPU. `launched` counts launches."""

    launched: list[str]

    def __init__(self, macros: tuple[tuple[str, int], ...], on: Card) -> None:
        self.library, self.threads = _library(macros), 32 * dict(macros)["GROUPS"]
        self.shared = on.shared
        assert self.library.arguments_size() == cuda.LAYOUT.size

    def launch(self, which: int, blocks: int, threads: int, shared: int, values: tuple) -> None:
        assert threads == (self.threads if which < 2 else 256)
        assert shared <= self.shared
        Kernels.launched.append(cuda.NAMES[which])
        arguments = ctypes.create_string_buffer(cuda.LAYOUT.pack(*values))
        self.library.launch(which, arguments, blocks, threads, shared)


def install(monkeypatch, on: Card) -> list[str]:
    """Run the backend "cuda" on CPU tensors; returns the names of kernels as they are launched."""
    from chonn_ops.scan import operator

    Kernels.launched = []
    cuda.plan_of.cache_clear()
    monkeypatch.setattr(cuda, "_kernels", Kernels)
    monkeypatch.setattr(cuda, "_card", lambda _: on)
    name_for = operator.BACKENDS.name_for
    with_ours = lambda name, device: name if name == "cuda" else name_for(name, device)  # noqa: E731
    monkeypatch.setattr(operator.BACKENDS, "name_for", with_ours)
    # Checkpoints as on a GPU.
    monkeypatch.setattr(operator, "checkpoint_steps", lambda *_: cuda.CUDA_CHECKPOINT)
    monkeypatch.setattr(operator, "walks_whole_lines", lambda *_: False)
    return Kernels.launched
