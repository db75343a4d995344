"""The study of finer grids and other domains at smoke scale, and its tables."""

import json
import sys

import pytest

from chonn_lab.pages import blocks
from chonn_lab.studies import resolution

OPTIONS = "--scale smoke --problems darcy --trained 16 --evaluated 16 32 --seeds 0"


@pytest.mark.slow
def test_study_evaluates_finer_grids_and_domains_and_continues(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["resolution", *OPTIONS.split(), "--domains", "l-shape"])
    monkeypatch.chdir(tmp_path)
    resolution.main()
    folder = tmp_path / "runs" / "resolution"
    record = json.loads((folder / "resolution.json").read_text())
    assert [(r["domain"], r["model"]) for r in record["results"]] == [
        (domain, name) for domain in ("square", "l-shape") for name in ("unet", "fno", "network")
    ]
    for result in record["results"]:
        settings = f"smoke+problem.domain={result['domain']},problem.resolution=16"
        saved = folder / "darcy" / settings / f"{result['model']}-seed0.json"
        scores = json.loads(saved.read_text())["metrics"]
        expected = {"16": scores["test"]["relative_l1"]}
        if result["domain"] == "square":
            expected["32"] = scores["at_32"]["relative_l1"]
        assert result["errors"] == {"test": expected}
    # The same problem on the finer grid: nearly the same solutions.
    assert 0 < record["interpolated"][0]["errors"]["32"] < 0.2
    assert (folder / "resolution.png").read_bytes().startswith(b"\x89PNG")
    assert f"{record['results'][0]['errors']['test']['32']:.4f}" in capsys.readouterr().out

    times = {path: path.stat().st_mtime_ns for path in folder.rglob("*-seed0.json")}
    resolution.main()  # only reads
    assert json.loads((folder / "resolution.json").read_text()) == record
    assert {path: path.stat().st_mtime_ns for path in times} == times
    assert len(times) == 6


def test_tables():
    def run(domain, seed, diverged=None, **errors):
        about = {"problem": "darcy", "trained": 64, "label": "network", "parameters": 1234}
        about |= {"domain": domain, "seed": seed, "diverged": diverged}
        return about | {"errors": {"test": {name[2:]: error for name, error in errors.items()}}}

    results = [
        run("square", 0, at64=0.010, at128=0.008),
        run("square", 1, at64=0.010, at128=0.010),
        run("l-shape", 0, at64=0.016),
        run("square", 2, "in epoch 2", at64=9.0, at128=9.0),
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
