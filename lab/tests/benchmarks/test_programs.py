"""Every program runs whole at a tiny scale, and what it times is right; tables come from it."""

import importlib
import json
import re
import subprocess
import sys

import pytest
import torch

from chonn_lab.cli import modules
from chonn_lab.report import tables
from chonn_ops.network import available_backends
from chonn_ops.scan import DIRECTIONS

pytestmark = pytest.mark.skipif("cpu" not in available_backends(), reason="no compiled kernel")


def by_name(rows):
    return {row["name"]: row for row in rows}


def scan(found):
    assert by_name(found["rows"]).keys() >= {"chonn-ops", "torch", "loop", "exp alone"}
    assert {row["directions"] for row in found["fields"]["rows"]} == set(DIRECTIONS)


def network(found):
    for section in (*found["peers"], *found["methods"]):
        assert len(rows := by_name(section["rows"])) > 1
        assert all(row["error"] < 1e-4 and row["both_ms"] > 0 for row in rows.values())
    line = by_name(found["peers"][-1]["rows"])
    assert {"solve_banded", "torch", "Jacobi-CG", "spsolve"} <= line.keys()


def graphs(found):
    for section in ("circuits", "single"):
        rows = by_name(found[section]["rows"])
        assert rows.keys() >= {"chonn-ops", "chonn-ops, float64", "splu"}
        assert all(row["both_ms"] > 0 and row["error"] < 2e-5 for row in rows.values())
    assert [row["name"] for row in found["large"]] == ["path", "Delaunay", "grid"]


def inverse(found):
    assert all(row["ratio"] < 1 and row["converged"] for row in found["wells"]["rows"])
    assert 0.75 < found["wells"]["coverage"] < 1


def models(found):
    rows = by_name(found["rows"])
    for name, base in (("chonn_unet", "Unet"), ("chonn_network", "FNO")):
        assert rows[name]["step_ratio"] == rows[name]["step_ms"] / rows[base]["step_ms"]


def vision(found):
    peer, ours = found["rows"]
    assert ours["step_speed"] == pytest.approx(peer["step_ms"] / ours["step_ms"])
    assert ours["forward_images_per_second"] == pytest.approx(2e3 / ours["forward_ms"])


def gpu(found):
    """A mistake in the script must not be found on a machine that is lent for minutes."""
    allowed = r"left out: ModuleNotFoundError|cuDSS left out .*Found no NVIDIA driver"
    assert all(re.search(allowed, note) for note in found["notes"])
    steps, scan, *networks = found["sections"]
    assert all(row["step_ms"] > 0 for row in steps["rows"])
    for section in (scan, *networks):
        ours = section["rows"][0]
        assert ours["name"] == "chonn-ops"
        assert min(ours["forward_ms"], ours["both_ms"]) > 0


@pytest.mark.slow
@pytest.mark.parametrize("name", modules("benchmarks", "main"))
def test_a_program_runs_and_its_tables_are_made(name, tmp_path, monkeypatch):
    pytest.importorskip({"models": "pdebench", "vision": "timm"}.get(name, "scipy"))
    pytest.importorskip("triton" if name == "gpu" else "scipy")
    output = tmp_path / f"{name}.json"
    given = ["--smoke", "--threads", "1", "--rounds", "2", "--visit-ms", "1"]
    given += ["--output", str(output)]
    if name == "gpu":  # Triton's interpreter is on for the whole process
        subprocess.run([sys.executable, "-m", "chonn_lab.cli", "bench", name, *given], check=True)
    else:
        importlib.import_module(f"chonn_lab.benchmarks.{name}").main(given)
    found = json.loads(output.read_text())
    globals()[name](found)
    monkeypatch.setattr(tables, "RESULTS", tmp_path)
    keys = [key for key, table in tables.TABLES.items() if table["file"] == name]
    for key in sorted({*keys} - {"gpu steps"}):  # of a size that this run does not have
        rows = [row for row in tables.build(key).splitlines() if row.startswith("|")]
        assert rows, key
        assert len({row.count("|") for row in rows}) <= 1, key


@pytest.mark.skipif(torch.cuda.is_available(), reason="CUDA is available")
def test_the_gpus_program_says_what_it_needs():
    with pytest.raises(SystemExit, match="expected a CUDA GPU, found none"):
        importlib.import_module("chonn_lab.benchmarks.gpu").main([])
