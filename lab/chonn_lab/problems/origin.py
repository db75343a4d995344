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

import dataclasses
import functools
import hashlib
import json
import os
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from chonn_lab.problems.hdf5 import attributes
from chonn_lab.problems.published import CHECKSUMS
from chonn_ops import __version__

BLOCK = 1 << 20


@dataclasses.dataclass(frozen=True)
class Origin:
    """Origin of a data file; None for what is unknown.

    Parameters
    ----------
    name : str
        File name.
    official : bool or None
        Whether it is a published file: False for every generated one, True if its checksum is a
        published one.
    generator : str or None
        Generator, of a generated file.
    generator_version, chonn_ops_version, seed, settings, source
        As in the file.
    size : int or None
        Bytes.
    sha256 : str or None
        Digest of the whole file, in hexadecimal; `identify` alone sets it and the size.
    """

    name: str
    official: bool | None = None
    generator: str | None = None
    generator_version: int | None = None
    chonn_ops_version: str | None = None
    seed: int | None = None
    settings: "dict[str, Any] | None" = None
    source: str | None = None
    size: int | None = None
    sha256: str | None = None

    def record(self) -> dict[str, Any]:
        """All known fields but the name, as JSON values."""
        known = dataclasses.asdict(self)
        del known["name"]
        return {name: value for name, value in known.items() if value is not None}

    def recipe(self) -> dict[str, Any]:
        """Settings that the data of a generated file depend on, by name."""
        made = {"generator": self.generator, "generator_version": self.generator_version}
        return {**made, "seed": self.seed, **(self.settings or {})}

    def __str__(self) -> str:
        """A line a fact."""
        lines = [self.name, f"  official: {self._official()}"]
        if self.generator:
            version = f", version {self.generator_version}"
            package = f", chonn-ops {self.chonn_ops_version}"
            lines.append(f"  generator: {self.generator}{version}{package}")
        for name in ("seed", "source", "size", "sha256"):
            if (value := getattr(self, name)) is not None:
                lines.append(f"  {name}: {f'{value:,} bytes' if name == 'size' else value}")
        if self.settings is not None:
            texts = (f"{name} {value}" for name, value in self.settings.items())
            lines.append(f"  settings: {', '.join(texts)}")
        return "\n".join(lines)

    def _official(self) -> str:
        named = self.name in CHECKSUMS
        if self.official:
            return "yes, it has the published checksum"
        if self.generator:
            return "no, made by chonn-ops" + (" under an official file's name" if named else "")
        if self.official is False:
            return "no, another checksum than the published file of this name"
        return "unknown, no record in it" + (
            " and no published checksum of this name known" if named else ""
        )


def stamp(
    file: h5py.File, generator: str, version: int, seed: "int | None", **settings: Any
) -> None:
    """Write the record of origin into a generated file.

    Parameters
    ----------
    file : h5py.File
        Open for writing.
    generator, version, seed
        See the module's table.
    settings
        JSON values.
    """
    file.attrs["generator"] = generator
    file.attrs["generator_version"] = version
    file.attrs["chonn_ops_version"] = __version__
    if seed is not None:
        file.attrs["seed"] = seed
    file.attrs["settings"] = json.dumps(settings)
    file.attrs["official"] = False


def read(path: "str | os.PathLike[str]") -> Origin:
    """The record of origin in a file, without reading its data.

    Parameters
    ----------
    path : path
        Data file of any kind.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    ValueError
        If it is a damaged HDF5 file, or its record is.
    """
    name = Path(path).name
    if not Path(path).is_file():
        raise FileNotFoundError(f"no such file: {path}")
    # `is_hdf5` is True for a truncated file, too.
    if not h5py.is_hdf5(path):
        return Origin(name)
    found = {key: _plain(value) for key, value in attributes(path).items()}
    try:
        if "generator" not in found:
            return Origin(name)
        settings = json.loads(found["settings"])
        kinds = {"generator": str, "generator_version": int, "chonn_ops_version": str}
        kinds |= {key: kind for key, kind in (("seed", int), ("source", str)) if key in found}
        for key, kind in kinds.items():
            if not isinstance(found[key], kind):
                raise ValueError(f"{key}: expected {kind.__name__}, got {found[key]!r:.80}")
        if not isinstance(settings, dict):
            raise ValueError(f"settings: expected an object, got {settings!r:.80}")
        return Origin(
            name,
            False,
            found["generator"],
            found["generator_version"],
            found["chonn_ops_version"],
            found.get("seed"),
            settings,
            found.get("source"),
        )
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"{path}: damaged, or its record of origin is ({error})") from error


def identify(path: "str | os.PathLike[str]") -> Origin:
    """`read`, with size and SHA-256 of the whole file, and a comparison with published checksums.

    A file is read once in a process, as long as it stays as it is.

    Raises
    ------
    FileNotFoundError, ValueError
        As `read`.
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
    known = CHECKSUMS.get(origin.name) is not None
    return dataclasses.replace(origin, official=False if known else None)


@functools.lru_cache
def _checksum(path: str, _version: tuple[int, ...], algorithm: str) -> str:
    digest = hashlib.new(algorithm, usedforsecurity=False)
    with open(path, "rb") as file:
        while block := file.read(BLOCK):
            digest.update(block)
    return digest.hexdigest()


def _plain(value: Any) -> Any:
    """An attribute as a Python number or text."""
    if isinstance(value, (np.generic, np.ndarray)) and value.size == 1:
        return value.item()
    return value
