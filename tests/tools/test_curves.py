"""Curves: settings of their points, a small study that goes on, results with their origin."""
# ruff: noqa: E402 - skipped before the imports where the extra is missing

import dataclasses
import json
import sys
from pathlib import Path

import pytest

pytest.importorskip("filelock")
pytest.importorskip("matplotlib")
pytest.importorskip("scipy")
EXAMPLES = Path(__file__).parent.parent.parent / "tools"
sys.path.insert(0, str(EXAMPLES))

import curves
from results_file import has_origin

from chonn_ops.experiments import get

SMALL = get("darcy").scales["small"]


def config(variant):
    found = next(v for v in get("darcy").variants(SMALL) if v.name == variant)
    return dataclasses.replace(SMALL, **found.changes)


def test_few_samples_are_trained_on_for_as_many_steps():
    for value in (32, 256, 1024):
        settings = curves.samples(SMALL, "unet", value)
        assert settings["n_train"] == value
        assert settings["epochs"] * value == pytest.approx(SMALL.epochs * SMALL.n_train, rel=0.1)


@pytest.mark.parametrize(
    ("variant", "field"),
    [("network", "network_width"), ("unet", "unet_features"), ("transolver", "width")],
)
def test_parameters_are_about_those_of_the_factor(variant, field):
    own = config(variant)
    (found,) = curves.parameters(own, variant, 4.0).items()
    assert found == (field, 2 * getattr(own, field))
    assert curves.parameters(own, variant, 1.0) == {field: getattr(own, field)}
    # Heads share the width.
    width = curves.parameters(own, variant, 0.3)[field]
    assert width % max(1, own.heads) == 0


def test_modes_fit_the_grid():
    found = curves.resolution(config("ffno"), "ffno", 16)
    assert found == {"resolution": 16, "modes": 8, "fno_modes": 8}


def test_a_study_goes_on_and_says_where_its_numbers_come_from(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(curves.torch, "set_num_threads", lambda _: None)
    arguments = ["darcy", "--over", "seconds", "--values", "1", "2", "--scale", "smoke"]
    arguments += ["--models", "network", "direct", "--jobs", "1"]
    monkeypatch.setattr(sys, "argv", ["curves.py", *arguments])
    curves.main()
    folder = tmp_path / "runs" / "curves"
    record = json.loads((folder / "curves-darcy-seconds.json").read_text())
    assert has_origin(record)
    points = {(r["model"], r["value"]): r for r in record["results"]}
    assert points.keys() == {(m, v) for m in ("network", "direct") for v in (1.0, 2.0)}
    assert [points["network", v]["epochs"] for v in (1.0, 2.0)] == [2, 4]
    assert all(r["metric"] == "relative_l1" and r["errors"]["test"] > 0 for r in points.values())
    assert all(r["place"] > 0 for r in points.values())
    picture = (folder / "curves-darcy-seconds.svg").read_text()
    assert "CHONN network" in picture
    assert "seconds of training" in picture
    times = {path: path.stat().st_mtime_ns for path in folder.glob("darcy/*/*.json")}
    assert len(times) == 4
    curves.main()
    assert {path: path.stat().st_mtime_ns for path in times} == times
    again = json.loads((folder / "curves-darcy-seconds.json").read_text())
    assert again["results"] == record["results"]
