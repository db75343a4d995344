"""The study of finer grids and other domains at smoke scale, and its tables."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("filelock")
pytest.importorskip("h5py")

from chonn_lab.pages import blocks

EXAMPLES = Path(__file__).parents[2] / "chonn_lab" / "studies"


def study(folder, *options):
    command = [sys.executable, str(EXAMPLES / "resolution.py"), "--scale", "smoke"]
    command += ["--problems", "darcy", "--trained", "16", "--evaluated", "16", "32", "48"]
    command += ["--domains", "l-shape", "--seeds", "0", *options]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)


@pytest.mark.slow
def test_study_evaluates_finer_grids_and_domains_and_continues(tmp_path):
    run = study(tmp_path)
    assert run.returncode == 0, run.stderr
    folder = tmp_path / "runs" / "resolution"
    record = json.loads((folder / "resolution.json").read_text())
    results = record["results"]
    assert [(r["domain"], r["model"]) for r in results] == [
        (domain, name) for domain in ("square", "l-shape") for name in ("unet", "fno", "network")
    ]
    for result in results:
        square = result["domain"] == "square"
        assert list(result["errors"]["test"]) == (["16", "32", "48"] if square else ["16"])
        settings = f"smoke+problem.domain={result['domain']},problem.resolution=16"
        saved = folder / "darcy" / settings / f"{result['model']}-seed0.json"
        scores = json.loads(saved.read_text())["metrics"]
        for points, split in (("16", "test"), ("48", "at_48"))[: 1 + square]:
            assert result["errors"]["test"][points] == scores[split]["relative_l1"]
    (exact,) = record["interpolated"]
    # The same problem on the finer grids: nearly the same solutions.
    assert 0 < exact["errors"]["32"] < 0.2
    assert (folder / "resolution.png").read_bytes().startswith(b"\x89PNG")
    assert f"{results[0]['errors']['test']['48']:.4f}" in run.stdout

    # The same command only reads; one more seed is added.
    times = {path: path.stat().st_mtime_ns for path in folder.rglob("*-seed0.json")}
    assert len(times) == 6
    assert study(tmp_path).returncode == 0
    assert json.loads((folder / "resolution.json").read_text()) == record
    assert {path: path.stat().st_mtime_ns for path in times} == times


def test_tables():
    def run(model, domain, seed, **errors):
        return {
            "problem": "darcy",
            "domain": domain,
            "trained": 64,
            "label": model,
            "seed": seed,
            "parameters": 1234,
            "diverged": None,
            "errors": {"test": {name[2:]: error for name, error in errors.items()}},
        }

    results = [
        run("network", "square", 0, at64=0.010, at128=0.008),
        run("network", "square", 1, at64=0.010, at128=0.010),
        run("network", "l-shape", 0, at64=0.016),
        {**run("network", "square", 2, at64=9.0, at128=9.0), "diverged": "in epoch 2"},
    ]
    exact = {"problem": "darcy", "trained": 64, "errors": {"128": 0.0125}}
    record = {"results": results, "interpolated": [exact]}
    assert blocks.build("grids", record).splitlines()[2:] == [
        "| Darcy flow | network | 64 | 1,234 | 0.0100 ± 0.0000 | 0.0090 ± 0.0014 | 2 |",
        "| Darcy flow | the true solution, interpolated | 64 | - | - | 0.0125 | - |",
    ]
    assert blocks.build("domains", record).splitlines()[2:] == [
        "| Darcy flow | network | 64 | 0.0100 ± 0.0000 | 0.0160 | 1.60 | - | - |",
    ]
