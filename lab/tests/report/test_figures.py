"""Figures show the numbers of the result files and come out the same every time."""

import json
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest
import result_files

from chonn_lab.report import figures
from chonn_lab.report.results import read_study

STEADY = ["metrics.svg", "fields.png", "learning.svg"]
IN_TIME = ["metrics.svg", "steps.svg", "fields.png", "learning.svg"]
EXPECTED = {
    "order1d": STEADY,
    "darcy": STEADY,
    "poisson": STEADY,
    "shallow_water": IN_TIME,
    "navier_stokes": IN_TIME,
}


def draw(folder, output):
    return [path for _, path in figures.draw_study(read_study(folder), output)]


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    return result_files.everything(tmp_path_factory.mktemp("runs"), seeds=2)


@pytest.mark.parametrize("experiment", EXPECTED)
def test_every_panel_is_drawn_and_small(runs, tmp_path, experiment):
    drawn = draw(runs / experiment / "small", tmp_path)
    assert [path.name for path in drawn] == EXPECTED[experiment]
    assert set(drawn) == set(tmp_path.iterdir())
    for path in drawn:
        content = path.read_bytes()
        assert len(content) < 300_000
        if path.suffix == ".svg":
            assert ElementTree.fromstring(content).tag.endswith("svg")
        else:
            assert content.startswith(b"\x89PNG")


def test_the_same_numbers_give_the_same_files(runs, tmp_path):
    folder = runs / "shallow_water" / "small"
    first, second = (draw(folder, tmp_path / name) for name in "ab")
    for one, other in zip(first, second, strict=True):
        assert one.read_bytes() == other.read_bytes()


@pytest.mark.parametrize("experiment", ["darcy", "shallow_water"])
def test_every_model_is_in_the_figure_of_every_model(runs, experiment):
    study = read_study(runs / experiment / "small")
    figure = figures.metrics(study)
    assert figure is not None
    panels = [axis for axis in figure.axes if axis.get_visible()]
    assert len(panels) == len(study.metrics())
    labels = [label.get_text() for label in panels[0].get_yticklabels()]
    assert labels == [group.label for group in study.groups]
    for axis, name in zip(panels, study.metrics(), strict=True):
        drawn = [container.lines[0].get_xdata()[0] for container in axis.containers]
        assert drawn == [group.metric(name).mean for group in study.groups]
        low, high = axis.get_xlim()
        assert any(low <= tick <= high for tick in axis.get_xticks())


@pytest.mark.parametrize("epochs", [1, 2, 3, 5, 1000])
def test_epochs_have_whole_ticks(tmp_path, epochs):
    runs = list(result_files.shallow_water(seeds=1))
    for run in runs:
        run["curve"] = {
            "epoch": list(range(1, epochs + 1)),
            **dict.fromkeys(("train_loss", "validation_error"), [0.5] * epochs),
        }
    study = read_study(result_files.write(tmp_path, runs) / "shallow_water" / "small")
    figure = figures.learning(study)
    assert figure is not None
    for axis in figure.axes[:2]:
        low, high = axis.get_xlim()
        shown = [tick for tick in axis.get_xticks() if low <= tick <= high]
        assert shown
        assert all(tick == round(tick) for tick in shown)
        # A single epoch is a mark, since a line needs two.
        assert {line.get_marker() != "None" for line in axis.lines} == {epochs == 1}


def test_damaged_fields_give_one_clear_error(tmp_path):
    result_files.write(tmp_path, result_files.shallow_water(seeds=1))
    folder = tmp_path / "shallow_water" / "small"
    (folder / "fno-seed0.npz").write_bytes(b"PK\x03\x04 no archive")
    with pytest.raises(ValueError, match=r"fno-seed0\.npz: not a file of fields"):
        draw(folder, tmp_path / "figures")


def test_picture_of_a_sequence_is_its_last_frame():
    frames = np.arange(2 * 3 * 4 * 4.0).reshape(2, 3, 4, 4)
    np.testing.assert_array_equal(figures.picture(frames), frames[0, -1])
    np.testing.assert_array_equal(figures.picture(frames[:, 0]), frames[0, 0])
    np.testing.assert_array_equal(figures.picture(frames[:, 0, 0]), frames[0, 0, 0])


@pytest.mark.parametrize("experiment", ["darcy", "navier_stokes"])
def test_one_seed_with_failures_is_drawn(tmp_path, experiment):
    result_files.everything(tmp_path, seeds=1)
    folder = tmp_path / experiment / "small"
    for path in sorted(folder.glob("*.json"))[::3]:
        record = json.loads(path.read_text())
        record["metrics"] = {"test": {}}
        record["curve"]["validation_error"][-1] = None
        path.write_text(json.dumps(record))
        path.with_suffix(".npz").unlink()
    assert draw(folder, tmp_path / "figures")
