"""Downloads that resume, with pooch to check the result."""

import os
import re
from pathlib import Path
from typing import Any, cast

import pooch
import requests
from tqdm import tqdm

from chonn_ops.problems._files import publish, refuse_existing

# What a broken connection can lose at most.
CHUNK = 1 << 16
ATTEMPTS = 3
TIMEOUT = (10, 60)


class _RangeRefused(Exception):
    """The bytes kept from an earlier attempt do not fit the file on the server."""


class ResumableDownloader:
    """A pooch downloader that goes on where an interrupted one stopped.

    Bytes are kept in ``part`` and asked for with an HTTP range from there on; a server without
    ranges is read from the start. A broken connection is taken up again a few times before giving
    up, and ``part`` stays for the next call.

    Parameters
    ----------
    part : Path
        Where the bytes are kept, on the file system of the output.
    progress : bool
        Show a progress bar.
    """

    def __init__(self, part: Path, progress: bool = True) -> None:
        self.part = part
        self.progress = progress

    def __call__(
        self, url: str, output_file: "str | os.PathLike[str]", _pooch: "pooch.Pooch | None"
    ) -> None:
        """Download ``url`` to ``output_file``."""
        for attempt in range(1, ATTEMPTS + 1):
            try:
                self._receive(url)
                break
            except _RangeRefused:
                self.part.unlink()
            except requests.HTTPError:
                raise
            except requests.RequestException as error:
                if attempt == ATTEMPTS:
                    kept = self.part.stat().st_size if self.part.exists() else 0
                    raise ConnectionError(
                        f"download of {url} stopped ({error}); {kept:,} bytes are kept in "
                        f"{self.part}: the same command resumes there"
                    ) from error
        else:
            raise ConnectionError(f"{url}: the server refuses every byte range asked for")
        os.replace(self.part, output_file)

    def _receive(self, url: str) -> None:
        have = self.part.stat().st_size if self.part.exists() else 0
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
            with (
                open(self.part, "ab" if resumes else "wb") as file,
                tqdm(
                    total=total,
                    initial=have,
                    unit="B",
                    unit_scale=True,
                    disable=not self.progress,
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
    # Verified by pooch under a name of its own: pooch would replace `output` without asking.
    try:
        staged = pooch.retrieve(
            url,
            known_hash,
            fname=f".{output.name}.verified",
            path=output.parent,
            # pooch's annotation of a downloader contradicts its documentation.
            downloader=cast(Any, ResumableDownloader(part, progress)),
        )
    except requests.HTTPError as error:
        raise ConnectionError(f"download failed: {error}") from error
    publish(Path(staged), output, force)
    return True
