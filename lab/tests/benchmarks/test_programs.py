"""Every program runs whole at a tiny scale, and what it times is right; tables come from it."""

import importlib
import itertools
import json
import re
import subprocess
import sys

import numpy as np
import pytest
import torch

from chonn_lab.benchmarks import heat_slab as heat_slabs
from chonn_lab.benchmarks import peers
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


def heat_slab(found):
    """Circuits and finite elements have the same matrix; packages that are missing are noted."""
    ours, single, *_ = found["slab"][0]["rows"]
    assert ours["both_ms"] > ours["forward_ms"] > 0
    assert ours["gradient_error"] == 0 < single["gradient_error"] < 1e-5
    noted = {note.split(" left out")[0] for note in found["notes"]}
    assert noted | by_name(found["slab"][0]["rows"]).keys() == heat_slabs.SLAB.keys()


def laws(found):
    for row in found["table"]["rows"]:
        assert row["error"] < 1e-9 > row["gradient"], row
        assert row["hessian"] < 1e-7, row
        assert 1 < row["many_steps"] <= row["many_most"], row
    assert len(found["table"]["rows"]) == 9
    assert [part["rows"][0]["name"] for part in found["cubic"]] == ["chonn-ops, cubic"] * 2


def inverse(found):
    assert all(row["ratio"] < 1 and row["converged"] for row in found["wells"]["rows"])
    assert 0.75 < found["wells"]["coverage"] < 1


def models(found):
    rows = by_name(found["rows"])
    for name, base in (("chonn_unet", "Unet"), ("chonn_network", "FNO")):
        assert rows[name]["step_ratio"] == rows[name]["step_ms"] / rows[base]["step_ms"]


def vision(found):
    peer, ours = found["rows"]
    assert ours["step_ratio"] == pytest.approx(ours["step_ms"] / peer["step_ms"])
    assert ours["batch"] == 2


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


def test_the_slabs_circuit_is_the_galerkin_matrix_of_trilinear_cubes():
    """Value and gradient beside finite elements: integrals of the products of gradients."""
    s = peers.slab(6)
    corners, matrix = 2.0 * peers.CUBE - 1, np.zeros((8, 8))
    for point in itertools.product((-(3**-0.5), 3**-0.5), repeat=3):
        factors = (1 + corners * point) / 2
        others = np.stack([np.delete(factors, axis, 1).prod(1) for axis in range(3)], 1)
        gradient = corners * others / s.h
        matrix += gradient @ gradient.T * (s.h / 2) ** 3
    stiffness = np.zeros(2 * [len(s.points)])
    for cell, k in zip(s.cells, peers.simp(s.rho), strict=True):
        stiffness[np.ix_(cell, cell)] += k * matrix
    u = np.zeros(len(s.points))
    u[s.held :] = np.linalg.solve(stiffness[s.held :, s.held :], s.load[s.held :])
    slope = 3 * (1 - 1e-3) * s.rho**2
    expected = -slope * np.einsum("ci,ij,cj->c", u[s.cells], matrix, u[s.cells])
    assert s.load.sum() == pytest.approx(1)
    value, back = peers.chonn_slab(6, "float64")()
    assert value == pytest.approx(s.load @ u, rel=1e-12)
    np.testing.assert_allclose(back(), expected, rtol=1e-10)


@pytest.mark.skipif(torch.cuda.is_available(), reason="CUDA is available")
def test_the_gpus_program_says_what_it_needs():
    with pytest.raises(SystemExit, match="expected a CUDA GPU, found none"):
        importlib.import_module("chonn_lab.benchmarks.gpu").main([])
