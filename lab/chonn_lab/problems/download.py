"""Downloads that resume, with pooch to check the result; files out of a zip archive of Zenodo."""

import contextlib
import errno
import os
import re
import shutil
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import pooch
import requests

from chonn_lab.problems.generation import ProgressBar
from chonn_ops.files import publish, refuse_existing, whole_file

# Bytes written at a time: a broken connection loses at most so many.
CHUNK = 1 << 16
ATTEMPTS = 3
TIMEOUT = (10, 60)
BLOCK = 1 << 20


class _RangeRefused(Exception):
    """The bytes kept from an earlier attempt do not fit the file on the server."""


def receive(url: str, part: Path, progress: bool) -> None:
    """Download a file into ``part``, from where an interrupted call stopped.

    What ``part`` has is not asked for again; a server without ranges is read from the start. A
    broken connection is taken up again a few times before giving up, and ``part`` stays for the
    next call.

    Parameters
    ----------
    url : str
        Where it is.
    part : Path
        File to go on with, or to write.
    progress : bool
        Show a progress bar.

    Raises
    ------
    ConnectionError
        If the download fails.
    OSError
        If the file cannot be written.
    """
    for attempt in range(1, ATTEMPTS + 1):
        try:
            _receive(url, part, progress)
            return
        except _RangeRefused:
            part.unlink()
        except requests.HTTPError as error:
            raise ConnectionError(f"download failed: {error}") from error
        except requests.RequestException as error:
            if attempt == ATTEMPTS:
                raise ConnectionError(
                    f"download of {url} stopped ({error}); {_kept(part)}"
                ) from error
        except OSError as error:
            reason = f"{error.strerror}: {part.parent}; {_kept(part)}"
            raise OSError(error.errno, reason) from error
    raise ConnectionError(f"{url}: the server refuses every byte range asked for")


def _kept(part: Path) -> str:
    """What is there for the next call, in words."""
    size = part.stat().st_size if part.exists() else 0
    if not size:
        part.unlink(missing_ok=True)
        return "nothing has arrived"
    return f"{size:,} bytes are kept in {part}: the same command resumes there"


def _receive(url: str, part: Path, progress: bool) -> None:
    have = part.stat().st_size if part.exists() else 0
    # Ranges count encoded bytes, so nothing may compress them on the way.
    headers = {"Accept-Encoding": "identity"}
    if have:
        headers["Range"] = f"bytes={have}-"
    with requests.get(url, headers=headers, stream=True, timeout=TIMEOUT) as response:
        content_range = response.headers.get("Content-Range", "")
        if response.status_code == requests.codes.requested_range_not_satisfiable and have:
            if content_range == f"bytes */{have}":
                return
            raise _RangeRefused
        response.raise_for_status()
        resumes = response.status_code == requests.codes.partial_content
        if resumes:
            offset = re.match(r"bytes (\d+)-", content_range)
            if offset is None or int(offset[1]) != have:
                raise _RangeRefused
        else:
            have = 0
        length = response.headers.get("Content-Length")
        total = None if length is None else have + int(length)
        missing, free = (total or have) - have, shutil.disk_usage(part.parent).free
        if missing > free:
            reason = f"{os.strerror(errno.ENOSPC)}, {missing:,} bytes are needed and {free:,} free"
            raise OSError(errno.ENOSPC, reason)
        with (
            open(part, "ab" if resumes else "wb") as file,
            ProgressBar(
                total=total, initial=have, unit="B", unit_scale=True, disable=not progress
            ) as bar,
        ):
            for chunk in response.iter_content(CHUNK):
                file.write(chunk)
                bar.update(len(chunk))
                have += len(chunk)
        # Older urllib3 takes a connection that closes early for the end of the file.
        if total is not None and have < total:
            raise requests.ConnectionError(f"{have:,} of {total:,} bytes received")


def download(url: str, known_hash: str, output: Path, force: bool, progress: bool) -> bool:
    """Download a file of known checksum, ``algorithm:hexdigest``; whole or not at all.

    The rest is as for `chonn_lab.problems.darcy.fetch`.
    """
    algorithm, digest = known_hash.split(":")
    if output.is_file():
        found = pooch.file_hash(str(output), alg=algorithm)
        if found == digest:
            return False
        if not force:
            raise FileExistsError(
                f"output file exists and is another one: {output} ({algorithm} {found}, expected "
                f"{digest}; replace it with --force / force=True)"
            )
    refuse_existing(output, force)
    part = output.with_name(f"{output.name}.part")
    receive(url, part, progress)
    found = pooch.file_hash(str(part), alg=algorithm)
    if found != digest:
        part.unlink()
        raise ValueError(
            f"{algorithm} of the file downloaded from {url} does not match the known hash: "
            f"expected {digest}, got {found}"
        )
    publish(part, output, force)
    return True


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
