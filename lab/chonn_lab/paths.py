"""Folders of a checkout: benchmarks, studies and the docs' tables read and write there."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
# What benchmarks and studies measured; kept runs of experiments.
RESULTS = ROOT / "lab" / "results"
RUNS = RESULTS / "runs"
