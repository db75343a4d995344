"""The origin of a data file: the record that generators write, and the checksums of any file.

A generated file has the layout of a published one, and may have its name. What tells them apart
are attributes of its root:

===================== ==============================================================================
``generator``         module of `chonn_lab.problems` with the card: "darcy", "poisson", ...
``generator_version`` 1; another one would make other data of the same settings
``chonn_ops_version`` of the package
``seed``              int
``settings``          JSON object of everything else that the data depend on
``official``          False
``source``            the same in short, for people
===================== ==============================================================================

`read` gives them; `identify` reads the whole file, too, for its checksums; `download` gets files of
PDEBench.
"""

import functools
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import h5py
import pooch

from chonn_lab.problems.hdf5 import open_hdf5
from chonn_ops import __version__
from chonn_ops.files import refuse_existing

# MD5 of published files by name, of PDEBench's pdebench/data_download/pdebench_data_urls.csv.
PUBLISHED = Path(__file__).with_name("published.txt").read_text("utf-8")
CHECKSUMS = dict(line.split() for line in PUBLISHED.splitlines())
DARUS = "https://darus.uni-stuttgart.de/api/access/datafile"
# Seconds to connect, and between two packets, of downloads.
TIMEOUT = (10, 60)


def stamp(file: h5py.File, generator: str, seed: int, settings: Mapping[str, Any]) -> None:
    """Write the record of origin into a new file: see the module's table."""
    file.attrs.update(
        source=f"chonn-ops {__version__} {generator} generator, seed {seed}",
        generator=generator,
        generator_version=1,
        chonn_ops_version=__version__,
        seed=seed,
        settings=json.dumps(dict(settings)),
        official=False,
    )


def read(path: Path | str) -> dict[str, Any]:
    """The record of origin in a data file of any kind, without reading its data; empty if another
    program made it.

    FileNotFoundError if there is no such file, ValueError if it or its record is damaged.
    """
    # `is_hdf5` is True for a truncated file, too.
    if Path(path).is_file() and not h5py.is_hdf5(path):
        return {}
    with open_hdf5(path) as file:
        attributes: Any = file.attrs
        if "generator" not in attributes:
            return {}
        return {
            "official": False,
            **{name: str(attributes[name]) for name in ("generator", "chonn_ops_version")},
            **{name: int(attributes[name]) for name in ("generator_version", "seed")},
            "settings": dict(json.loads(attributes["settings"])),
            "source": attributes.get("source"),
        }


def identify(path: Path | str) -> dict[str, Any]:
    """`read`, with ``size`` and ``sha256`` of the whole file; of a file of another program it is
    ``official`` if the checksum is a published one, not so if another one is published for its
    name, and else nobody knows.

    A file is read once in a process, as long as it stays as it is. Errors as `read`.
    """
    record, state = read(path), os.stat(path)
    version = state.st_ino, state.st_size, state.st_mtime_ns, state.st_ctime_ns
    checksum = functools.partial(_checksum, os.path.abspath(path), version)
    if not record:
        known = checksum("md5") in CHECKSUMS.values()
        record = {"official": known} if known or Path(path).name in CHECKSUMS else {}
    return {**record, "size": state.st_size, "sha256": checksum("sha256")}


@functools.lru_cache
def _checksum(path: str, _version: tuple[int, ...], algorithm: str) -> str:
    return pooch.file_hash(path, alg=algorithm)


def download(number: int, name: str, folder: Path | str, force: bool, progress: bool) -> bool:
    """Download a data file of DaRUS under its own name; False if it was there already.

    A FileExistsError if another file has the name and `force` is not set, an OSError if the
    download failed, a ValueError for a wrong checksum. Nothing is left of a failed download.
    """
    path = Path(folder) / name
    if path.is_file() and pooch.file_hash(str(path), alg="md5") == CHECKSUMS[name]:
        return False
    refuse_existing(path, force)
    get: Any = pooch.HTTPDownloader(progressbar=progress, timeout=TIMEOUT)
    pooch.retrieve(f"{DARUS}/{number}", f"md5:{CHECKSUMS[name]}", name, folder, downloader=get)
    return True
