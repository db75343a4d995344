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
# MD5 of published files by name, of PDEBench's pdebench/data_download/pdebench_data_urls.csv.
CHECKSUMS = {
    "1D_Advection_Sols_beta0.1.hdf5": "b4be2fc3383f737c76033073e6d2ccfb",
    "1D_Advection_Sols_beta0.2.hdf5": "d47b52c1be4b6bcaa8748a8df2f5fbb8",
    "1D_Advection_Sols_beta0.4.hdf5": "d595bbfd2c659df995a93cd40d6ea568",
    "1D_Advection_Sols_beta0.7.hdf5": "f89030c240a1e90b55649776854a84c2",
    "1D_Advection_Sols_beta1.0.hdf5": "1fe41923a4123db55bf4e89bea32e142",
    "1D_Advection_Sols_beta2.0.hdf5": "0e9beff98693089c38e213a1f2b9ac43",
    "1D_Advection_Sols_beta4.0.hdf5": "a87b03ff425496360e2732921805f47d",
    "1D_Advection_Sols_beta7.0.hdf5": "72a286ad2fcba574bd20bc045ba82d58",
    "1D_Burgers_Sols_Nu0.001.hdf5": "44cb784d5a07aa2b1c864cabdcf625f9",
    "1D_Burgers_Sols_Nu0.002.hdf5": "edf1cd13622d151dfde3e4e5af7a95b4",
    "1D_Burgers_Sols_Nu0.004.hdf5": "435e1fecb8a64a0b4563bb8d09f81c33",
    "1D_Burgers_Sols_Nu0.01.hdf5": "e6d9a4f62baf9a29121a816b919e2770",
    "1D_Burgers_Sols_Nu0.02.hdf5": "7c8c717a3a7818145877baa57106b090",
    "1D_Burgers_Sols_Nu0.04.hdf5": "16f4c7afaf8c16238be157e54c9297c7",
    "1D_Burgers_Sols_Nu0.1.hdf5": "660ba1008d3843bf4e28d2895eb607ce",
    "1D_Burgers_Sols_Nu0.2.hdf5": "01d9333254dff2f3cad090b61f5cf695",
    "1D_Burgers_Sols_Nu0.4.hdf5": "58327a6107e8f9defb5075677cc42533",
    "1D_Burgers_Sols_Nu1.0.hdf5": "9021eba35332d127306f11ef84c1a60f",
    "1D_Burgers_Sols_Nu2.0.hdf5": "70fe0c24d9313e70f6059e5212bdb3d7",
    "1D_Burgers_Sols_Nu4.0.hdf5": "8af7f70166c00ffad377c80fa477d81f",
    "2D_DarcyFlow_beta0.01_Train.hdf5": "d05c287d4c0b7d3178b0097084238251",
    "2D_DarcyFlow_beta0.1_Train.hdf5": "294f9a03a4aa16b0e386469ca8b471be",
    "2D_DarcyFlow_beta1.0_Train.hdf5": "81694ed31306ff2e5f6b76349b0b4389",
    "2D_DarcyFlow_beta10.0_Train.hdf5": "a7f23cf8011fc211b180828af39b7d1a",
    "2D_DarcyFlow_beta100.0_Train.hdf5": "7c09f3b1bb097737d3fd52ffb0c6f1c8",
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
