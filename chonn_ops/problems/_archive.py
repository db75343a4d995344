"""Files out of a zip archive of a Zenodo record."""

import contextlib
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import pooch

from chonn_ops._files import refuse_existing, whole_file
from chonn_ops.problems._download import download

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
    archive = paths[0].parent / f"{doi.rpartition('.')[2]}_{name}"
    # With the archive there, an earlier call may have been interrupted between two files.
    if not archive.exists():
        for path in paths:
            refuse_existing(path, force)
    url, known_hash = _address(doi, name)
    download(url, known_hash, archive, force, progress=True)
    try:
        for path in paths:
            if force or not _is_extracted(archive, path):
                extract(archive, path, force)
    except OSError as error:
        if error.errno is None:
            raise
        reason = f"{error.strerror}; {archive} is kept: the same command goes on there"
        raise OSError(error.errno, reason, error.filename) from error
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
    with (
        _member(archive, path.name) as (contents, member),
        whole_file(path, force) as staged,
        contents.open(member) as source,
        open(staged, "wb") as target,
    ):
        while block := source.read(BLOCK):
            target.write(block)


def _is_extracted(archive: Path, path: Path) -> bool:
    """Whether ``path`` is what the archive has under its name."""
    if not path.is_file():
        return False
    with _member(archive, path.name) as (_, member), open(path, "rb") as file:
        checksum = 0
        while block := file.read(BLOCK):
            checksum = zlib.crc32(block, checksum)
        return checksum == member.CRC


@contextlib.contextmanager
def _member(archive: Path, name: str) -> Iterator[tuple[zipfile.ZipFile, zipfile.ZipInfo]]:
    try:
        with zipfile.ZipFile(archive) as contents:
            # macOS packs a second, hidden file of the same name.
            members = [
                member
                for member in contents.infolist()
                if Path(member.filename).name == name and not member.filename.startswith("__MACOSX")
            ]
            if len(members) != 1:
                found = [member.filename for member in members]
                raise ValueError(f"{archive}: expected one {name} in it, found {found}")
            yield contents, members[0]
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
