"""Damaged and hostile inputs by the thousand: ``python fuzz.py KIND SEED COUNT FOLDER``.

A kind is a module ``fuzz_KIND`` with ``prepare(folder)``, which makes what is to be damaged, and
``attempt(state, draw, folder)``, which damages it in one way and says what came of it: "right" for
a right answer, "refused" for a clear error. Anything else is a finding; a crash ends the process.
While it reads, nothing may be executed, written or removed: an audit hook watches.

It prints a JSON object: outcomes and their numbers, and the findings.
"""

from __future__ import annotations

import contextlib
import faulthandler
import importlib
import json
import platform
import random
import resource
import struct
import sys
import traceback
import warnings
from collections import Counter
from pathlib import Path

import scipy.io  # noqa: F401 - its first import sets a variable, which is forbidden later

MEMORY = 6 << 30
SECONDS = 300
FORBIDDEN = (
    *(
        "os.system",
        "os.exec",
        "os.posix_spawn",
        "os.spawn",
        "os.fork",
        "os.forkpty",
        "os.startfile",
    ),
    *("subprocess.Popen", "pty.spawn", "socket.connect", "ctypes.dlopen", "webbrowser.open"),
    *("os.remove", "os.rename", "os.rmdir", "os.truncate", "os.chmod", "os.chown", "os.link"),
    *("os.symlink", "shutil.rmtree", "shutil.move", "os.mkdir", "os.putenv", "builtins.input"),
)
EXTREMES = (
    0,
    1,
    2,
    0x7F,
    0xFF,
    0x7FFF,
    0xFFFF,
    0x7FFFFFFF,
    0xFFFFFFFF,
    2**62,
    2**63 - 1,
    2**64 - 1,
)


class Finding(AssertionError):
    """Neither a right answer nor a clear error."""


def damaged(content: bytes, draw: random.Random) -> bytes:
    """The content with one to four faults: of bits, bytes, numbers, blocks, or its end."""
    data = bytearray(content)
    for _ in range(draw.choice((1, 1, 1, 2, 4))):
        if not data:
            break
        at = draw.randrange(len(data))
        # Most of a file is numbers; what says where they are stands near its begin.
        at = at if draw.random() < 0.5 else at % min(len(data), 4096)
        length = draw.choice((1, 2, 8, 64, 512))
        match draw.randrange(8):
            case 0:
                data[at] ^= 1 << draw.randrange(8)
            case 1:
                data[at : at + length] = draw.randbytes(len(data[at : at + length]))
            case 2:
                data[at : at + length] = bytes(len(data[at : at + length]))
            case 3:
                del data[at:]
            case 4:
                del data[at : at + length]
            case 5:
                data[at:at] = draw.randbytes(length)
            case 6:
                data[at:at] = data[at : at + length]
            case _:
                number = struct.pack("<Q", draw.choice(EXTREMES))[: draw.choice((1, 2, 4, 8))]
                data[at : at + len(number)] = number
    return bytes(data)


_watching = False


def _audit(event: str, arguments: tuple) -> None:
    if not _watching:
        return
    writes = event == "open" and isinstance(arguments[1], str) and set(arguments[1]) & set("wax+")
    if writes or event in FORBIDDEN:
        raise Finding(f"{event} {arguments}")


@contextlib.contextmanager
def watched(*folders: Path):
    """Nothing executed, and the folders as they were."""
    global _watching
    before = [contents(folder) for folder in folders]
    _watching = True
    try:
        yield
    finally:
        _watching = False
    if before != [contents(folder) for folder in folders]:
        raise Finding("the files have changed")


def contents(folder: Path) -> dict[str, bytes]:
    return {str(p): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def clear(error: BaseException, name: str) -> str:
    """That an error names its file, and is a sentence; else it is a finding."""
    text = str(error)
    if name not in text or len(text) > 2000 or " " not in text:
        raise Finding(f"unclear {type(error).__name__}: {text[:300]}") from error
    return "refused"


def main(kind: str, seed: str, count: str, folder: str) -> None:
    platform.processor()  # asks a program, once
    module = importlib.import_module(f"fuzz_{kind}")
    place = Path(folder)
    state = module.prepare(place)
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, resource.RLIM_INFINITY))
    warnings.simplefilter("ignore")
    sys.addaudithook(_audit)
    outcomes: Counter[str] = Counter()
    findings = []
    for case in range(int(count)):
        print(f"case {case}", file=sys.stderr, flush=True)  # the last one, where this crashes
        faulthandler.dump_traceback_later(SECONDS, exit=True)
        try:
            outcomes[module.attempt(state, random.Random(f"{seed} {case}"), place)] += 1
        except Exception:
            findings.append([case, traceback.format_exc(limit=-6)])
        finally:
            faulthandler.cancel_dump_traceback_later()
    print(json.dumps({"outcomes": outcomes, "findings": findings}))


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent))
    for helpers in ("experiments", "pdebench"):
        sys.path.insert(0, str(Path(__file__).parents[1] / helpers))
    sys.path.append(str(Path(__file__).parents[2] / "tools"))
    # One module of this name, whoever imports it.
    sys.modules["fuzz"] = sys.modules["__main__"]
    main(*sys.argv[1:])
