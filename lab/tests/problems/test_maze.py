"""The maze: its law, what waves do in it, file, reader, refusals."""
# ruff: noqa: E402 - skipped before the imports where the extra is missing

import importlib.util
import sys

import numpy as np
import pytest

h5py = pytest.importorskip("h5py")
ndimage = pytest.importorskip("scipy.ndimage")
pytest.importorskip("tqdm")

from chonn_lab.problems import maze

needs_pyclaw = pytest.mark.skipif(
    importlib.util.find_spec("clawpack") is None, reason="PyClaw missing: make setup-pyclaw"
)
PATH, WALL = 3.0, 1e6 + 3


@pytest.mark.parametrize("rooms", [1, 3, 6])
def test_one_path_leads_from_any_room_to_any_other(rooms):
    for seed in range(5):
        walls = maze.maze(np.random.default_rng(seed), rooms)
        assert walls.shape == (2 * rooms + 1,) * 2
        assert not walls[1::2, 1::2].any()
        assert walls[0::2, 0::2].all()
        # As many doors as a tree of the rooms has edges, and all is one piece.
        assert (~walls[1:-1, 1:-1]).sum() == rooms**2 + rooms**2 - 1
        assert ndimage.label(~walls)[1] == 1
        outer = np.ones_like(walls)
        outer[1:-1, 1:-1] = False
        assert np.argwhere(outer & ~walls).tolist() == sorted([[1, 0], [2 * rooms - 1, 2 * rooms]])


def test_samples_have_the_cards_law():
    counts, highest = [], []
    for sample in range(40):
        density, pressure = maze.draw(0, sample)
        assert density.shape == pressure.shape == (48, 48)
        assert set(np.unique(density)) == {PATH, WALL}
        assert (pressure[density == WALL] == 0).all()
        # The door is one square wide: 7 or 9 of them make an axis.
        counts.append((density[:, 0] == PATH).sum())
        highest.append(pressure.max())
        assert (density[0] == WALL).all()
        assert (density[-1] == WALL).all()
    assert set(counts) == {6, 7}
    # A ring alone is as high as its intensity and 1 more.
    assert 4 < min(highest) <= max(highest) < 5 * 6
    once, again, other = maze.draw(3, 1), maze.draw(3, 1), maze.draw(4, 1)
    assert all(np.array_equal(a, b) for a, b in zip(once, again, strict=True))
    assert not np.array_equal(once[1], other[1])


def test_rings_have_as_many_cells_on_every_grid():
    """A ring's area in cells, of samples whose maze is the same."""
    areas = [[(maze.draw(0, sample, n)[1] > 0).sum() for sample in range(30)] for n in (48, 96)]
    assert np.mean(areas[0]) == pytest.approx(np.mean(areas[1]), rel=0.35)


@needs_pyclaw
def test_a_front_travels_three_cells_a_frame_and_is_reflected():
    """In a straight channel between walls: arrival at the published speed, then its return."""
    n = 60
    density = np.full((n, n), WALL)
    density[10:50, 20:40] = PATH
    pressure = np.zeros((n, n))
    pressure[10:20, 20:40] = 1.0
    frames = maze.simulate(density, pressure, 20)[:, :, 30]
    # From rest, half of the step runs right from cell 20: the middle of its front.
    for step in (3, 6):
        front = 20 + step * 5.12 / 2 * (4 / 3) ** 0.5
        cells = frames[step, 20:50]
        found = 20 + np.interp(-0.25, -cells, np.arange(30) + 0.5)
        assert found == pytest.approx(front, abs=0.6)
    assert frames[:, :9].max() < 0.02
    # Nothing is lost between walls.
    total = frames.sum(1)
    np.testing.assert_allclose(total, total[0], rtol=0.02)
    # The front has arrived at the far wall, where a pulse and its reflection add up.
    assert frames[7, 45:50].max() < 0.1
    assert frames[13, 45:50].mean() == pytest.approx(1.0, abs=0.05)


@needs_pyclaw
def test_waves_leave_at_the_upper_faces_alone():
    """A pulse in a channel that is open at both ends."""
    n = 48
    for axis in (0, 1):
        density = np.full((n, n), WALL)
        density[:, 20:28] = PATH
        pressure = np.zeros((n, n))
        pressure[20:28, 20:28] = 1.0
        if axis:
            density, pressure = density.T, pressure.T
        total = maze.simulate(density, pressure, 23).sum((1, 2))
        assert total[6] == pytest.approx(total[0], rel=0.02)
        # The left half comes back from the rigid face, and the right half is gone.
        assert total[14] == pytest.approx(total[0] / 2, rel=0.06)


@needs_pyclaw
def test_file_and_reader(tmp_path):
    path = maze.generate(tmp_path / "data", 18, 12, seed=5, progress=False)
    again = maze.generate(tmp_path / "again", 18, 12, seed=5, workers=2, progress=False)
    assert path.read_bytes() == again.read_bytes()
    density, pressure = maze.read(path)
    assert (density.shape, density.dtype) == ((18, 12, 12), np.float32)
    assert (pressure.shape, pressure.dtype) == ((18, 24, 12, 12), np.float32)
    medium, start = maze.draw(5, 17, 12)
    np.testing.assert_array_equal(density[17], medium.astype("f4"))
    np.testing.assert_array_equal(pressure[17], maze.simulate(medium, start).astype("f4"))
    few = maze.read(maze.generate(tmp_path / "few", 2, 12, seed=5, progress=False))
    for some, part, all_ in zip(few, maze.read(path, 1, 3), (density, pressure), strict=True):
        np.testing.assert_array_equal(some, all_[:2])
        np.testing.assert_array_equal(part, all_[1:3])
    with pytest.raises(ValueError, match="expected samples 1 to 19, got a file of 18"):
        maze.read(path, 1, 19)


def test_reader_refuses_other_files(tmp_path):
    with h5py.File(tmp_path / "other", "w") as file:
        file["density"], file["pressure"] = np.ones((2, 4, 4)), np.ones((2, 9, 4, 4))
    with pytest.raises(ValueError, match="expected 24 frames, got 9"):
        maze.read(tmp_path / "other")
    with pytest.raises(FileNotFoundError, match="no such file"):
        maze.read(tmp_path / "none")


def test_missing_pyclaw_is_explained(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "clawpack", None)
    with pytest.raises(ImportError, match=r"PyClaw, which is not installed: `make setup-pyclaw`"):
        maze.generate(tmp_path / "x", 1)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ({"n_samples": 0}, "n_samples: expected at least 1, got 0"),
        ({"resolution": 8}, "resolution: expected at least 9, got 8"),
        ({"seed": -1}, "seed: expected at least 0, got -1"),
        ({"workers": 0}, "workers: expected at least 1, got 0"),
    ],
)
def test_bad_arguments(tmp_path, argument, message):
    with pytest.raises(ValueError, match=message):
        maze.generate(tmp_path / "out", **argument)
    assert list(tmp_path.iterdir()) == []
