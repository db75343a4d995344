"""The comparisons behind `make demo` and `make demo-time`, at smoke scale, through PDEBench's real
runner."""

import importlib
import json
import sys
from pathlib import Path

import numpy as np
import pytest
from commands import run

h5py = pytest.importorskip("h5py")

FOLDER = Path(__file__).parents[2] / "examples"


def compare(output, *options, script="darcy", code=0):
    size = ["--n", "20", "--resolution", "16", "--epochs", "1", "--batch-size", "2"]
    command = [sys.executable, FOLDER / f"pdebench_{script}.py", "--output", output, *size]
    return run(*command, "--modes", "4", *options, code=code)


@pytest.mark.slow
@pytest.mark.host
def test_comparison_writes_table_results_and_figure_and_goes_on_where_it_was(tmp_path):
    options = ["cell=scan", "directions=cross", "constrained=False"]
    done = compare(tmp_path, "--models", "Unet", "chonn_fno", "--set", *options)
    record = json.loads((tmp_path / "results.json").read_text())
    assert [result["model"] for result in record["results"]] == ["Unet", "chonn_fno"]
    for result in record["results"]:
        assert result["parameters"] > 0
        assert result["metrics"]["nrmse"] > 0
        assert result["peak_memory_mib"] > 0
        assert len(result["curve"]) == 1
        assert f"{result['metrics']['nrmse']:.4g}" in done.stdout
    assert record["results"][1]["overrides"].count("++args.ckb.directions=cross") == 1
    assert record["results"][1]["options"]["constrained"] is False
    assert (tmp_path / "fields.png").read_bytes().startswith(b"\x89PNG")

    finished = tmp_path / "runs" / "Unet-seed0" / "result.json"
    before = finished.stat().st_mtime_ns
    compare(tmp_path, "--models", "Unet")
    assert finished.stat().st_mtime_ns == before
    assert json.loads((tmp_path / "results.json").read_text())["results"] == record["results"][:1]

    other = compare(tmp_path, "--models", "Unet", "--learning-rate", "0.01", code=1)
    assert "other settings" in other.stderr
    assert finished.stat().st_mtime_ns == before


@pytest.mark.slow
def test_a_folder_that_is_not_ours_stays(tmp_path):
    theirs = tmp_path / "runs" / "Unet-seed0" / "thesis.pt"
    theirs.parent.mkdir(parents=True)
    theirs.write_text("years of work")
    done = compare(tmp_path, "--models", "Unet", code=1)
    assert "not a run of this script" in done.stderr
    assert theirs.read_text() == "years of work"


@pytest.mark.slow
@pytest.mark.host
def test_models_of_circuits_have_rows_and_fields_and_no_setting_is_ignored(tmp_path):
    models = "chonn_network", "chonn_unet"
    done = compare(tmp_path, "--models", *models)
    for model in models:
        assert model in done.stdout
        log = (tmp_path / "runs" / f"{model}-seed0" / "log.txt").read_text()
        assert "testL2" in log
        assert "note:" not in log
    assert (tmp_path / "fields.png").is_file()


@pytest.mark.parametrize(
    ("family", "channels", "axes"),
    [("burgers_0.1", [0], 1), ("compressible", [0, 2, 1], 1), ("compressible_2d", [0, 3, 1, 2], 2)],
)
def test_families_are_written_as_pdebench_reads_them(tmp_path, monkeypatch, family, channels, axes):
    utils = pytest.importorskip("pdebench.models.fno.utils")
    monkeypatch.syspath_prepend(FOLDER)
    example = importlib.import_module("pdebench_time")
    x = np.random.default_rng(0).random((3, 12, len(channels), *[8] * axes), "f4")
    with h5py.File(tmp_path / "series.hdf5", "w") as file:
        file["tensor"] = x
    options = ["--family", family, "--series", str(tmp_path / "series.hdf5"), "--n", "3"]
    monkeypatch.setattr(sys, "argv", ["", *options, "--resolution", "8"])
    path = example.generate(example.parse_arguments(), tmp_path / "data", range(3))
    data = utils.FNODatasetSingle(path.name, 10, f"{path.parent}/", test_ratio=0)
    start, whole, grid = data[1]
    right = np.moveaxis(x[1][:, channels], (0, 1), (-2, -1))
    np.testing.assert_array_equal(whole, right)
    np.testing.assert_array_equal(start, right[..., :10, :])
    low = -1.0 if family == "compressible" else 0.0
    place = low + (1.0 - low) * (np.arange(8) + 0.5) / 8
    np.testing.assert_allclose(grid[(slice(None), *[0] * axes)], place, rtol=1e-6)


@pytest.mark.slow
@pytest.mark.host
def test_time_series(tmp_path):
    done = compare(tmp_path, script="time")
    results = json.loads((tmp_path / "results.json").read_text())["results"]
    errors = {result["model"]: result["metrics"]["nrmse"] for result in results}
    assert all(f"{error:.4g}" in done.stdout for error in errors.values())
    assert 0 < 10 * errors["chonn_network"] < min(errors["Unet"], errors["FNO"])
    log = (tmp_path / "runs" / "chonn_network-seed0" / "log.txt").read_text()
    assert "calibrated by 18 samples" in log
    assert "note:" not in log
