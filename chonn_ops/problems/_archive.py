"""Files out of a zip archive of a Zenodo record."""

import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path

import pooch

from chonn_ops.problems._download import download
from chonn_ops.problems._files import refuse_existing, whole_file

BLOCK = 1 << 20


def fetch_members(doi: str, name: str, paths: Sequence[Path], force: bool) -> None:
    """Download an archive, keep some of its files, remove the archive.

    Parameters
    ----------
    doi : str
        Of the record; it states address and md5 of the archive.
    name : str
        The archive's name in the record.
    paths : sequence of Path
        Files to write, in one folder; each is looked up in the archive by its name.
    force : bool
        Replace existing files.

    Raises
    ------
    FileExistsError, ConnectionError, ValueError
        A file exists; the download failed; the archive is damaged or lacks a file.
    """
    for path in paths:
        refuse_existing(path, force)
    url, known_hash = _address(doi, name)
    archive = paths[0].parent / f"{doi.rpartition('.')[2]}_{name}"
    download(url, known_hash, archive, force, progress=True)
    for path in paths:
        extract(archive, path, force)
    archive.unlink()


def extract(archive: Path, path: Path, force: bool) -> None:
    """Take the file named like ``path`` out of an archive, from whichever folder in it.

    Raises
    ------
    ValueError
        If the archive is damaged or has no such file.
    FileExistsError
        If ``path`` exists and `force` is not set.
    """
    try:
        with zipfile.ZipFile(archive) as contents:
            # macOS packs a second, hidden file of the same name.
            members = [
                name
                for name in contents.namelist()
                if Path(name).name == path.name and not name.startswith("__MACOSX")
            ]
            if len(members) != 1:
                raise ValueError(f"{archive}: expected one {path.name} in it, found {members}")
            with (
                whole_file(path, force) as staged,
                contents.open(members[0]) as source,
                open(staged, "xb") as target,
            ):
                while block := source.read(BLOCK):
                    target.write(block)
    except (zipfile.BadZipFile, zlib.error, EOFError) as error:
        raise ValueError(f"{archive}: damaged archive ({error})") from error


def _address(doi: str, name: str) -> tuple[str, str]:
    """Address and md5 of a file, as its record states them."""
    record = pooch.create(path="", base_url=f"doi:{doi}/")
    record.load_registry_from_doi()
    if name not in record.registry:
        raise ValueError(f"record {doi} has no {name}, but {sorted(record.registry)}")
    number = doi.rpartition(".")[2]
    return f"https://zenodo.org/records/{number}/files/{name}?download=1", record.registry[name]
