"""Downloads that resume, with pooch to check the result."""

import errno
import os
import re
import shutil
from pathlib import Path

import pooch
import requests

from chonn_ops._files import publish, refuse_existing
from chonn_ops.problems._progress import ProgressBar

# What a broken connection can lose at most.
CHUNK = 1 << 16
ATTEMPTS = 3
TIMEOUT = (10, 60)


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
    """Download a file of known checksum; whole or not at all.

    Parameters
    ----------
    url : str
        Where it is.
    known_hash : str
        ``algorithm:hexdigest``.
    output : Path
        File to write.
    force : bool
        Replace an existing file that has another checksum.
    progress : bool
        Show a progress bar.

    Returns
    -------
    bool
        False if the right file was there already.

    Raises
    ------
    FileExistsError, ConnectionError, ValueError
        Another file is there; the download failed; the checksum is wrong.
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
