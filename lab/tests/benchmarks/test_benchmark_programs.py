"""Every program runs at a tiny scale and writes a whole file; the tables come from it."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from chonn_lab.pages import blocks, files

PROGRAMS = ("scan", "direct", "volumes", "block", "models", "rollouts", "vision")


pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Folder of the results, and what each program printed."""
    folder = tmp_path_factory.mktemp("runs") / "results"
    printed = {}
    for name in PROGRAMS:
        output = str(folder / f"{name}.json")
        arguments = ["--smoke", "--rounds", "2", "--visit-ms", "1", "--output", output]
        printed[name] = run(name, *arguments)
    return folder, printed


def run(program, *arguments):
    command = [sys.executable, "-m", "chonn_lab.cli", "bench", program, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def load(runs, name):
    return json.loads((runs[0] / f"{name}.json").read_text())


def test_each_program_writes_one_whole_file(runs):
    folder, _ = runs
    assert sorted(path.name for path in folder.iterdir()) == sorted(f"{n}.json" for n in PROGRAMS)
    for name in PROGRAMS:
        environment = load(runs, name)["environment"]
        assert (environment["rounds"], environment["smoke"]) == (2, True)
        assert environment["threads"] > 0
        assert environment["versions"]["torch"]
        assert {"commit", "changed", "processor", "kernel", "python", "cores"} <= environment.keys()


def test_scan_compares_every_contender_with_the_floor(runs):
    result = load(runs, "scan")
    rows = {row["name"]: row for row in result["rows"]}
    assert {"torch", "loop", "exp alone"} <= rows.keys()
    assert all(row["forward_ms"] > 0 for row in rows.values())
    assert all(row["forward_floors"] > 0 for row in rows.values())
    assert rows["torch"]["both_ms"] > 0
    assert all(name in runs[1]["scan"] for name in rows)
    (limits,) = result["floors"]
    for column in ("forward", "both"):
        parts = (limits[column]["bytes_ms"], limits[column]["exponentials_ms"])
        assert limits[column]["floor_ms"] == max(parts) > 0
    # A compiler takes longer than all the rest; what is left out is said.
    assert "compiled loop left out" in result["notes"][0]


def test_scan_measures_precision_directions_and_growth(runs):
    result = load(runs, "scan")
    assert [row["name"] for row in result["precision"]] == ["float32", "bfloat16"]
    fields = {row["name"]: row for row in result["fields"]["rows"]}
    assert len(fields) == 16
    for name in ("raster periodic", "bidirectional matched", "cross matched", "axial periodic"):
        assert fields[name]["both_ms"] > 0
    # One direction has no second scan that a mirror image could feed.
    assert "refused" in fields["raster neumann"]
    (series,) = result["growth"]
    assert len(series["points"]) == 2
    assert 0.8 < series["slopes"]["both_bytes"] < 1.2


def test_block_measures_orders_directions_and_peers(runs):
    rows = {row["name"]: row for row in load(runs, "block")["rows"]}
    assert {
        "order 1 raster",
        "order 2 axial",
        "convolutions",
        "Fourier",
        "attention",
    } <= rows.keys()
    assert rows["convolutions"]["scan_share"] == 0
    assert 0 < rows["order 2 cross"]["scan_share"] < 1
    assert all(row["step_ms"] > 0 for row in rows.values())


def test_models_compares_with_the_plain_models(runs):
    rows = {row["name"]: row for row in load(runs, "models")["rows"]}
    assert list(rows) == ["Unet", "chonn_unet", "FNO", "chonn_fno", "chonn_network"]
    assert rows["FNO"]["step_ratio"] == 1
    ours, plain = rows["chonn_unet"], rows["Unet"]
    assert ours["step_ratio"] == ours["step_ms"] / plain["step_ms"]
    assert ours["parameters"] > plain["parameters"]
    assert plain["scan_share"] == 0 < ours["scan_share"] < 1
    network = rows["chonn_network"]
    assert network["step_ratio"] == network["step_ms"] / rows["FNO"]["step_ms"]
    assert 0 < network["scan_share"] < 1


def test_rollouts_compare_with_the_fno_of_the_same_batch(runs):
    rows = load(runs, "rollouts")["rows"]
    assert [row["batch"] for row in rows] == [1] * 5 + [4] * 5 + [20] * 5
    for row in rows:
        (fno,) = [x for x in rows if x["model"] == "FNO" and x["batch"] == row["batch"]]
        assert row["forward_ratio"] == pytest.approx(row["forward_ms"] / fno["forward_ms"])


def test_vision_compares_with_the_first_model(runs):
    rows = {row["name"]: row for row in load(runs, "vision")["rows"]}
    assert list(rows) == ["test_vit", "test_chonn"]
    peer, ours = rows.values()
    assert peer["step_speed"] == 1
    assert ours["step_speed"] == pytest.approx(peer["step_ms"] / ours["step_ms"])
    assert ours["forward_images_per_second"] == pytest.approx(2e3 / ours["forward_ms"])
    assert peer["scan_share"] == 0 < ours["scan_share"] < 1


def test_tables_are_made_from_the_results(runs, monkeypatch):
    monkeypatch.setattr(files, "RESULTS", runs[0])
    there = {path.stem for path in runs[0].glob("*.json")}
    tables = [name for name, table in blocks.TABLES.items() if table["file"] in [*there]]
    assert len(tables) > 10
    for name in tables:
        header, *rows = blocks.build(name).splitlines()
        assert rows, name
        assert all(row.count("|") == header.count("|") for row in rows), name


def test_a_part_of_the_run_does_not_replace_the_results():
    with pytest.raises(subprocess.CalledProcessError) as failure:
        run("scan", "--smoke")
    assert "expected another --output" in failure.value.stderr
