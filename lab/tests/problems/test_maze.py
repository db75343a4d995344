"""The maze: its law, and what waves do in it."""

import importlib.util

import numpy as np
import pytest
from scipy import ndimage

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
