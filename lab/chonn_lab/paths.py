"""Folders of a checkout: benchmarks and the docs' tables read and write there.

An installed copy, which is beside no checkout, takes the working directory for it.
"""

from pathlib import Path

_ABOVE = Path(__file__).resolve().parents[2]
ROOT = _ABOVE if (_ABOVE / "lab" / "pyproject.toml").exists() else Path()
DOCS = ROOT / "docs"
# What benchmarks and earlier studies measured; kept runs of experiments.
RESULTS = ROOT / "lab" / "results"
RUNS = RESULTS / "runs"
