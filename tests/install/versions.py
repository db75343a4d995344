"""The wheel in clean environments of the supported versions.

    python versions.py [--quick] [--wheel FILE] [NAME...]

An environment is a Python version with the newest packages that it takes, such as ``3.12``, or
with the oldest that pyproject.toml names, ``3.10-oldest``. Each is made by uv (``pip install uv``)
of an interpreter on the path, in a temporary folder of 3 to 6 GB for PyTorch's CUDA packages; it
gets the wheel and the hosts, runs the tests of operators, blocks, models and hosts that are not
slow, or with ``--quick`` one file of each area, and is removed.
Without names, all of them run that this machine has an interpreter for; without a wheel of this
checkout's files, ``python -m build`` makes one.

What came of each is kept in ``lab/results/versions.json``, which docs/start.md shows.
"""

import argparse
import datetime
import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from pathlib import Path
from typing import Any

from chonn_lab.experiments.provenance import code
from chonn_ops.files import whole_file

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "lab" / "results" / "versions.json"
OLDEST = "-oldest"
NAMES = (f"3.10{OLDEST}", "3.10", "3.11", "3.12", "3.13", "3.14")
EXTRAS = ("neuralop", "timm", "circuit")
TESTS = ("test_operators.py", "scan", "network", "nn", "models", "inspect", "neuralop")
TESTS += ("timm", "autoload")
QUICK = (
    *("test_operators.py", "scan/test_scan_operator.py", "network/test_network_operator.py"),
    *("nn/test_network_cell.py", "models/test_factories.py", "inspect/test_reading.py"),
    *("neuralop/test_neuralop_network.py", "timm/test_timm_networks.py"),
    "autoload/test_autoload_finder.py",
)
PACKAGES = ("torch", "numpy", "neuraloperator", "timm")


def run(*command: Any, check: bool = True, **options: Any) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [str(part) for part in command], capture_output=True, text=True, check=False, **options
    )
    if check and done.returncode:
        raise SystemExit(f"{' '.join(map(str, command))}:\n{done.stdout}{done.stderr}")
    return done


def version(name: str) -> str:
    """The version of Python in an environment of this name."""
    return name.removesuffix(OLDEST)


def tested(name: str, wheel: Path, folder: Path, quick: bool) -> dict[str, Any]:
    """What an environment has, and what came of the tests in it."""
    environment = folder / "environment"
    run("uv", "venv", "--quiet", "--python", version(name), environment)
    python = environment / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    requirements = folder / "requirements.txt"
    # uv takes no requirement of a wheel for a direct one.
    run(
        *("uv", "pip", "compile", "--quiet", "--python", python, "--output-file", requirements),
        *("--resolution", "lowest-direct" if name.endswith(OLDEST) else "highest"),
        *(f"--extra={extra}" for extra in EXTRAS),
        "--group=test",
        ROOT / "pyproject.toml",
    )
    install = ("uv", "pip", "install", "--quiet", "--python", python)
    run(*install, "--requirement", requirements)
    run(*install, "--no-deps", wheel)
    backend = "torch" if wheel.name.endswith("-none-any.whl") else "cpu"
    # Outside of the checkout, whose package would be imported instead.
    place = folder / "place"
    place.mkdir()
    run(python, "-I", ROOT / "tests" / "install" / "solve.py", backend, cwd=place)
    ask = "import importlib.metadata as m, platform, sys; print(platform.python_version(), "
    ask += "*map(m.version, sys.argv[1:]))"
    found, *versions = run(python, "-c", ask, *PACKAGES, cwd=place).stdout.split()
    start = time.monotonic()
    done = run(
        *(python, "-m", "pytest", "-q", "-m", "not slow", "-p", "no:cacheprovider"),
        *("--rootdir", ROOT, "-c", ROOT / "pyproject.toml"),
        *(ROOT / "tests" / part for part in (QUICK if quick else TESTS)),
        cwd=place,
        check=False,
    )
    seconds = time.monotonic() - start
    print(done.stdout[-20_000:], done.stderr[-2000:], flush=True)
    return {
        "name": name,
        "python": found,
        "versions": dict(zip(PACKAGES, versions, strict=True)),
        "backend": backend,
        "tests": "one file an area" if quick else "all areas",
        "system": f"{platform.system()} {platform.machine()}, {' '.join(platform.libc_ver())}",
        "date": datetime.date.today().isoformat(),
        **counts(done.stdout.splitlines()[-1]),
        "seconds": round(seconds),
        "data": {wheel.name: {"sha256": hashlib.sha256(wheel.read_bytes()).hexdigest()}},
        **code(),
    }


def counts(summary: str) -> dict[str, int]:
    """``passed``, ``failed`` and ``skipped`` of pytest's last line; an error is a failure."""
    found = {kind: int(count) for count, kind in re.findall(r"(\d+) ([a-z]+)", summary)}
    if "passed" not in found:
        raise SystemExit(f"expected pytest's counts, got {summary!r}")
    failed = sum(found.get(kind, 0) for kind in ("failed", "error", "errors"))
    return {"passed": found["passed"], "failed": failed, "skipped": found.get("skipped", 0)}


def keep(row: dict[str, Any]) -> None:
    """In place of the row of the same environment."""
    known = json.loads(RESULTS.read_text())["results"] if RESULTS.exists() else []
    rows = {found["name"]: found for found in [*known, row]}
    text = json.dumps({"results": [rows[name] for name in NAMES if name in rows]}, indent=1)
    with whole_file(RESULTS, force=True) as staged:
        staged.write_text(text + "\n")


def check_wheel(wheel: Path) -> None:
    """Refuse a wheel whose Python files are not this checkout's."""
    with zipfile.ZipFile(wheel) as archive:
        there = {n: archive.read(n) for n in archive.namelist() if n.startswith("chonn_ops/")}
    for path in (ROOT / "chonn_ops").rglob("*.py"):
        name = path.relative_to(ROOT).as_posix()
        if there.get(name) != path.read_bytes():
            raise SystemExit(f"{wheel}: expected {name} of this checkout")


def main() -> int:
    parser = argparse.ArgumentParser(description="The wheel in clean environments.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(NAMES))
    parser.add_argument("--quick", action="store_true", help="one file of each area")
    parser.add_argument("--wheel", type=Path)
    options = parser.parse_args()
    if unknown := set(options.names) - set(NAMES):
        parser.error(f"expected names out of {', '.join(NAMES)}, got {', '.join(unknown)}")
    if shutil.which("uv") is None:
        parser.error("expected uv on the path: pip install uv")
    failed = 0
    with tempfile.TemporaryDirectory() as temporary:
        wheel = options.wheel
        if wheel is None:
            run(sys.executable, "-m", "build", "--outdir", temporary, ROOT)
            (wheel,) = Path(temporary).glob("*.whl")
        check_wheel(wheel)
        for name in options.names or NAMES:
            found = run("uv", "python", "find", version(name), check=False)
            if found.returncode and not options.names:
                print(f"{name}: no interpreter here, left out")
                continue
            with tempfile.TemporaryDirectory(dir=temporary) as folder:
                row = tested(name, wheel, Path(folder), options.quick)
            print(json.dumps(row, indent=1), flush=True)
            keep(row)
            failed += row["failed"]
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
