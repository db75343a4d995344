"""The walls of the data's domain, whatever points of the file PDEBench's reader keeps."""

import warnings

import h5py
import numpy as np
import pytest
import torch

from chonn_ops.nn.circuit_head import CircuitHead
from chonn_plugins.pdebench import JobError, registry
from chonn_plugins.pdebench.data import read_layout

LINES = {
    "centres": lambda n: (np.arange(n) + 0.5) / n,
    "left": lambda n: np.arange(n) / n,
    "corners": lambda n: np.arange(n) / (n - 1),
}


@pytest.fixture
def job(make_job, tmp_path):
    """A job on data at the coordinates of two lines, (16, 32) of them by default."""

    def make(*lines, family="fno", name="chonn_network", **args):
        shape = tuple(16 * (axis + 1) if x is None else len(x) for axis, x in enumerate(lines))
        with h5py.File(tmp_path / "2D_Darcy.hdf5", "w") as file:
            file["tensor"] = np.ones((20, 1, *shape), "f4")
            file["nu"] = np.ones((20, *shape), "f4")
            for axis, line in zip("xy", lines, strict=True):
                if line is not None:
                    file[f"{axis}-coordinate"] = line.astype("f4")
        return make_job("darcy", family, model_name=name, data_path=tmp_path, **args)

    return make


def layout_of(job):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return read_layout(job)


def test_square_cells_have_one_length_which_for_a_square_is_the_default(job):
    assert layout_of(job(*(n / 32 * LINES["centres"](n) for n in (32, 64)))).lengths == 0.75


@pytest.mark.parametrize("name", ["chonn_network", "chonn_fno", "chonn_unet"])
@pytest.mark.parametrize("every", [1, 2, 4])
@pytest.mark.parametrize("nodes", LINES)
@pytest.mark.parametrize(("low", "high"), [(0, 1), (-2.5, 2.5), (0, 2 * np.pi)])
def test_distances_of_the_points_that_the_reader_keeps(job, name, every, nodes, low, high):
    n = 64
    line = low + (high - low) * LINES[nodes](n)
    flat = LINES["centres"](32)
    layout = layout_of(job(line, flat, name=name, reduced_resolution=every))
    assert layout.box == [pytest.approx((low, high), abs=1e-5), pytest.approx((0, 1), abs=1e-6)]
    kept = line[::every]
    step = kept[1] - kept[0]
    right = (kept[0] - low) / step, (high - kept[-1]) / step
    assert layout.nodes[0] == pytest.approx(right, abs=2e-3)
    assert layout.nodes[1] == pytest.approx((0.5 / every, 1 - 0.5 / every))
    assert layout.lengths == pytest.approx([1, 1 / (high - low)])
    assert layout.walls_note == ""


@pytest.mark.parametrize("name", ["chonn_network", "chonn_unet"])
def test_what_a_file_leaves_open_is_a_note_until_a_word_says_it(job, name):
    """3 to 4 is neither from 0 nor around it."""
    line = 3 + LINES["left"](32)
    for ckb, count, walls in (
        ({}, 1, (3 - 1 / 64, 4 - 1 / 64)),
        ({"nodes": "left"}, 0, (3, 4)),
        ({"nodes": [0, 1]}, 0, (3, 4)),
        ({"nodes": "corners"}, 0, (3, 4 - 1 / 32)),
    ):
        given = job(line, line, name=name, ckb=ckb, reduced_resolution=2, ar_mode=False)
        layout = layout_of(given)
        assert layout.box == [pytest.approx(walls, rel=1e-5)] * 2
        lines = [layout.walls_note] if layout.walls_note else []
        assert len(lines) == count
        assert all("does not say where the walls are: assumed x from 2.98" in x for x in lines)
        assert all("++args.ckb.nodes=left, corners or centres" in x for x in lines)
    with pytest.raises(JobError, match=r"nodes: expected one of .* one pair or one an axis"):
        layout_of(job(line, line, ckb={"nodes": [[0, 1]] * 3}))


def test_a_file_without_coordinates_is_one_of_centres(job):
    given = job(None, None, name="chonn_unet", reduced_resolution=2)
    layout = layout_of(given)
    assert layout.nodes == [(0.25, 0.75)] * 2
    assert layout.walls_note
    own = job(None, None, family="unet", name="Unet")
    assert not layout_of(own).walls_note


def test_nodes_that_the_coordinates_contradict_are_a_note(job):
    """The models take those of the data, whether its walls are inside or outside of the word's."""
    for lie, nodes, count in (
        *(("centres", "left", 1), ("centres", "centres", 0), ("centres", [0.5, 0.5], 0)),
        *(("corners", "left", 1), ("corners", "centres", 1), ("left", "corners", 1)),
    ):
        line = LINES[lie](17)
        given = job(line, line, ckb={"nodes": nodes})
        layout = layout_of(given)
        assert layout.nodes == layout_of(job(line, line)).nodes
        lines = [layout.walls_note] if layout.walls_note else []
        assert len(lines) == count
        assert all(f"args.ckb.nodes={nodes} is ignored: by the coordinates" in x for x in lines)


@pytest.mark.parametrize("nodes", [None, *LINES])
@pytest.mark.parametrize("place", [0.5, 3.0])
def test_an_axis_of_one_point_has_length_1(job, nodes, place):
    """Its walls were both on the point, with which no model can be built."""
    given = job(LINES["left"](16), np.array([place]), ckb={"nodes": nodes} if nodes else {})
    layout = layout_of(given)
    low, high = layout.box[1]
    assert high - low == 1
    assert low <= place <= high
    assert sum(layout.nodes[1]) == 1
    model = registry.load("chonn_network").build(
        2, {"num_channels": 1, "initial_step": 1, "box": layout.box}, given.options
    )
    places = torch.stack(
        torch.meshgrid(torch.arange(16) / 16, torch.tensor([place]), indexing="ij"), -1
    )
    assert model(torch.rand(1, 16, 1, 1), places[None]).isfinite().all()


@pytest.mark.parametrize("name", ["chonn_network", "chonn_unet"])
def test_an_axis_whose_coordinates_are_all_the_same_says_nothing(job, name):
    given = job(LINES["left"](16), np.ones(32), name=name)
    if name == "chonn_network":
        with pytest.raises(JobError, match="expected equally spaced coordinates"):
            layout_of(given)
        return
    layout = layout_of(given)
    assert layout.box[1] == (0, 1)
    assert layout.nodes[1] == (0.5, 0.5)
    assert "does not say where the walls are" in layout.walls_note


BOX, NODES = [(0.0, 2.0), (0.0, 1.0)], [(0.25, 0.75), (0.125, 0.875)]
SPACING, LENGTHS = [1 / 16, 1 / 32], [1.0, 0.5]


@pytest.mark.parametrize("name", ["chonn_network", "chonn_fno", "chonn_unet"])
def test_every_model_solves_circuits_between_these_walls(name):
    host = {"num_channels": 1, "initial_step": 1, "width": 4, "modes1": 3, "modes2": 3}
    host |= {"box": BOX}
    if name == "chonn_unet":
        host = {"in_channels": 1, "out_channels": 1, "lengths": LENGTHS, "nodes": NODES}
    model = registry.load(name).build(2, host, {}).eval()
    seen = []
    for head in (m for m in model.modules() if isinstance(m, CircuitHead)):
        head.register_forward_pre_hook(lambda _, args: seen.append((args[1], args[3])))
    lines = [low + (np.arange(32)[::2] + 0.5) * (high - low) / 32 for low, high in BOX]
    lines[1] = (np.arange(64)[::4] + 0.5) / 64
    grid = torch.tensor(np.stack(np.meshgrid(*lines, indexing="ij"), -1)).float()[None]
    x = torch.rand(1, 16, 16, 1)
    with torch.no_grad():
        model(x.movedim(-1, 1)) if name == "chonn_unet" else model(x, grid)
    [(spacing, nodes)] = seen
    assert spacing == pytest.approx(SPACING)
    assert [pytest.approx(pair) for pair in nodes] == NODES
