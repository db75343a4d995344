"""The origin of a data file: the record that generators write, and the checksums of any file.

A generated file has the layout of a published one, and may have its name. What tells them apart
are attributes of its root:

===================== ==============================================================================
``generator``         module of `chonn_lab.problems` with the card: "darcy", "poisson", ...
``generator_version`` int; another one makes other data of the same settings
``chonn_ops_version`` of the package
``seed``              int
``settings``          JSON object of everything else that the data depend on
``official``          False
``source``            the same in short, for people
===================== ==============================================================================

`read` gives them; `identify` reads the whole file, too, for its checksums.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import h5py

from chonn_lab.problems.hdf5 import open_hdf5
from chonn_ops import __version__

BLOCK = 1 << 20
# MD5 of published files by name.
CHECKSUMS = {
    "2D_DarcyFlow_beta1.0_Train.hdf5": "81694ed31306ff2e5f6b76349b0b4389",
    "2D_rdb_NA_NA.h5": "75d838c47aa410694bdc912ea7f22282",
}


@dataclasses.dataclass(frozen=True)
class Origin:
    """Origin of a file of this name, the module's table; None for what is unknown.

    `official` is False for every generated file, True for one with a published checksum. `identify`
    alone sets the size in bytes and the hexadecimal digest of the whole file.
    """

    name: str
    official: bool | None = None
    generator: str | None = None
    generator_version: int | None = None
    chonn_ops_version: str | None = None
    seed: int | None = None
    settings: dict[str, Any] | None = None
    source: str | None = None
    size: int | None = None
    sha256: str | None = None

    def record(self) -> dict[str, Any]:
        """All known fields but the name, as JSON values."""
        known = dataclasses.asdict(self)
        del known["name"]
        return {name: value for name, value in known.items() if value is not None}

    def __str__(self) -> str:
        """A line a fact."""
        facts = self.record() | {"official": self._official()}
        if self.settings is not None:
            facts["settings"] = ", ".join(f"{name} {x}" for name, x in self.settings.items())
        return "\n".join([self.name, *(f"  {name}: {value}" for name, value in facts.items())])

    def _official(self) -> str:
        if self.official:
            return "yes, it has the published checksum"
        if self.generator:
            named = " under an official file's name" if self.name in CHECKSUMS else ""
            return "no, made by chonn-ops" + named
        if self.official is False:
            return "no, another checksum than the published file of this name"
        return "unknown, no record in it, and no checksum of a published file"


def stamp(
    file: h5py.File, generator: str, version: int, seed: int, settings: Mapping[str, Any]
) -> None:
    """Write the record of origin into a new file: see the module's table."""
    file.attrs["generator"] = generator
    file.attrs["generator_version"] = version
    file.attrs["chonn_ops_version"] = __version__
    file.attrs["seed"] = seed
    file.attrs["settings"] = json.dumps(dict(settings))
    file.attrs["official"] = False


def read(path: Path | str) -> Origin:
    """The record of origin in a data file of any kind, without reading its data.

    FileNotFoundError if there is no such file, ValueError if it or its record is damaged.
    """
    name = Path(path).name
    # `is_hdf5` is True for a truncated file, too.
    if Path(path).is_file() and not h5py.is_hdf5(path):
        return Origin(name)
    with open_hdf5(path) as file:
        found: dict[str, Any] = dict(file.attrs)
        if "generator" not in found:
            return Origin(name)
        return Origin(
            name,
            False,
            str(found["generator"]),
            int(found["generator_version"]),
            str(found["chonn_ops_version"]),
            int(found["seed"]),
            dict(json.loads(found["settings"])),
            found.get("source"),
        )


def identify(path: Path | str) -> Origin:
    """`read`, with size and SHA-256 of the whole file, and a comparison with published checksums.

    A file is read once in a process, as long as it stays as it is. Errors as `read`.
    """
    origin = read(path)
    state = os.stat(path)
    version = state.st_ino, state.st_size, state.st_mtime_ns, state.st_ctime_ns
    checksum = functools.partial(_checksum, os.path.abspath(path), version)
    origin = dataclasses.replace(origin, size=state.st_size, sha256=checksum("sha256"))
    if origin.generator:
        return origin
    if checksum("md5") in CHECKSUMS.values():
        return dataclasses.replace(origin, official=True)
    # Without a known checksum it cannot be told whether a file is the published one.
    return dataclasses.replace(origin, official=False if origin.name in CHECKSUMS else None)


@functools.lru_cache
def _checksum(path: str, _version: tuple[int, ...], algorithm: str) -> str:
    digest = hashlib.new(algorithm, usedforsecurity=False)
    with open(path, "rb") as file:
        while block := file.read(BLOCK):
            digest.update(block)
    return digest.hexdigest()
