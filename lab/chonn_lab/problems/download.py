"""Published files: whole or not at all, and checked by their checksum."""

from __future__ import annotations

import contextlib
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path

import pooch

from chonn_lab.problems.origin import CHECKSUMS
from chonn_ops.files import refuse_existing, whole_file

# Seconds to connect, and between two packets.
TIMEOUT = (10, 60)
DARUS = "https://darus.uni-stuttgart.de/api/access/datafile"


def fetch_darus(
    number: int, name: str, folder: Path | str, force: bool, progress: bool = True
) -> bool:
    """Download a file of PDEBench under its own name; see `download`."""
    known_hash = f"md5:{CHECKSUMS[name]}"
    return download(f"{DARUS}/{number}", known_hash, Path(folder) / name, force, progress)


def download(url: str, known_hash: str, path: Path, force: bool, progress: bool = True) -> bool:
    """Download a file, whose checksum is ``algorithm:hexdigest``; False if it was there already.

    A FileExistsError if another file has the name and `force` is not set, an OSError if the
    download failed, a ValueError for a wrong checksum. Nothing is left of a failed download.
    """
    algorithm, digest = known_hash.split(":")
    if path.is_file() and pooch.file_hash(str(path), alg=algorithm) == digest:
        return False
    with whole_file(path, force) as staged:
        pooch.HTTPDownloader(progressbar=progress, timeout=TIMEOUT)(url, str(staged), None)
        found = pooch.file_hash(str(staged), alg=algorithm)
        if found != digest:
            raise ValueError(f"{url}: expected {algorithm} {digest}, got {found}")
    return True


def fetch_members(doi: str, name: str, paths: Sequence[Path], force: bool) -> None:
    """Download an archive of Zenodo, keep the files named like `paths`, remove the archive.

    The record states the archive's md5. FileExistsError, OSError or ValueError as `download`, and
    if the archive is damaged or lacks a file; then none is written.
    """
    for path in paths:
        refuse_existing(path, force)
    record = pooch.create(path="", base_url=f"doi:{doi}/")
    record.load_registry_from_doi()
    number = doi.rpartition(".")[2]
    archive = paths[0].with_name(f"{number}_{name}")
    url = f"https://zenodo.org/records/{number}/files/{name}?download=1"
    download(url, record.registry[name], archive, force)
    try:
        with zipfile.ZipFile(archive) as contents, contextlib.ExitStack() as outputs:
            for path in paths:
                # macOS packs a second, hidden file of the same name.
                named = [m for m in contents.namelist() if Path(m).name == path.name]
                members = [member for member in named if not member.startswith("__MACOSX")]
                if len(members) != 1:
                    raise ValueError(f"{archive}: expected one {path.name} in it, found {members}")
                staged = outputs.enter_context(whole_file(path, force))
                staged.write_bytes(contents.read(members[0]))
    except (zipfile.BadZipFile, zlib.error, EOFError) as error:
        raise ValueError(f"{archive}: damaged archive ({error})") from error
    archive.unlink()
