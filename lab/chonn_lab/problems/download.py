"""Files of PDEBench's repository: whole or not at all, and checked by their checksum."""

from __future__ import annotations

from pathlib import Path

import pooch

from chonn_lab.problems.origin import CHECKSUMS
from chonn_ops.files import refuse_existing

# Seconds to connect, and between two packets.
TIMEOUT = (10, 60)
DARUS = "https://darus.uni-stuttgart.de/api/access/datafile"


def download(number: int, name: str, folder: Path | str, force: bool, progress: bool) -> bool:
    """Download a data file of DaRUS under its own name; False if it was there already.

    A FileExistsError if another file has the name and `force` is not set, an OSError if the
    download failed, a ValueError for a wrong checksum. Nothing is left of a failed download.
    """
    path = Path(folder) / name
    if path.is_file() and pooch.file_hash(str(path), alg="md5") == CHECKSUMS[name]:
        return False
    refuse_existing(path, force)
    get = pooch.HTTPDownloader(progressbar=progress, timeout=TIMEOUT)
    pooch.retrieve(f"{DARUS}/{number}", f"md5:{CHECKSUMS[name]}", name, folder, downloader=get)
    return True
