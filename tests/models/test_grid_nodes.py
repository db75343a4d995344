"""Coordinates tell where the nodes and the walls lie, and the models of hosts listen."""

import math
import warnings

import pytest
import torch

from chonn_ops import CKB, CHONNFNO2d, CHONNNetwork2d, CHONNUNet2d, Network
from chonn_ops.models.geometry import grid_geometry, node_positions, read_box
from chonn_ops.nn.geometry import NODES

LINES = {
    "centres": lambda n: (torch.arange(n) + 0.5) / n,
    "left": lambda n: torch.arange(n) / n,
    "corners": lambda n: torch.arange(n) / (n - 1),
}


def grid_of(*lines):
    return torch.stack(torch.meshgrid(*lines, indexing="ij"), -1)[None]


def nodes_of(*lines, **options):
    return grid_geometry(grid_of(*lines), **options)[0]["nodes"]


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("nodes", LINES)
@pytest.mark.parametrize("sizes", [(9,), (16, 12), (4, 5, 6)])
def test_coordinates_tell_the_nodes(nodes, sizes):
    assert nodes_of(*(LINES[nodes](n) for n in sizes)) == [NODES[nodes]] * len(sizes)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("nodes", LINES)
@pytest.mark.parametrize("low", [0, -1])
@pytest.mark.parametrize("length", [1, 2, 2.5, 10, 1000, 2 * math.pi])
def test_domains_of_usual_lengths_need_no_box(nodes, low, length):
    for n in (16, 33, 1024):
        line = length * (low + (1 - low) * LINES[nodes](n))
        geometry, longest = grid_geometry(grid_of(line))
        assert geometry["nodes"] == [NODES[nodes]]
        steps = n - 1 if nodes == "corners" else n
        assert geometry["spacing"] == pytest.approx([1 / steps], rel=1e-6)
        assert longest.item() == pytest.approx(length * (1 - low), rel=1e-6)


@pytest.mark.filterwarnings("error")
def test_axes_may_differ():
    lines = LINES["left"](8), 3 * LINES["centres"](12) - 1.5, LINES["corners"](9).flip(0)
    geometry, length = grid_geometry(grid_of(*lines))
    assert geometry["nodes"] == [NODES["left"], NODES["centres"], NODES["corners"]]
    assert geometry["spacing"] == pytest.approx([1 / 24, 1 / 12, 1 / 24])
    assert length.item() == pytest.approx(3)
    # In the other direction the first node is the one beside the high wall.
    assert nodes_of(lines[0].flip(0)) == [NODES["left"][::-1]]


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("nodes", LINES)
@pytest.mark.parametrize(("n", "every"), [(64, 2), (64, 4), (30, 4), (63, 2)])
@pytest.mark.parametrize("domain", [(0.0, 1.0), (-1.0, 1.0), (3.0, 3.7)])
def test_every_few_points_of_a_box(nodes, n, every, domain):
    """The wall is where it is, whatever points a reader leaves out."""
    low, high = domain
    line = (low + (high - low) * LINES[nodes](n).double())[::every]
    step = every * (high - low) / (n - 1 if nodes == "corners" else n)
    right = ((line[0] - low).item() / step, (high - line[-1]).item() / step)
    geometry, length = grid_geometry(grid_of(line), box=[domain])
    back = nodes_of(line.flip(0), box=[domain])
    assert geometry["nodes"] == [pytest.approx(right, abs=1e-5)]
    assert back == [pytest.approx(right[::-1], abs=1e-5)]
    assert geometry["spacing"] == pytest.approx([step / (high - low)])
    assert length.item() == pytest.approx(high - low)


@pytest.mark.filterwarnings("error")
def test_every_second_centre_of_the_unit_box_is_read_with_a_warning():
    lines = [LINES["centres"](n)[::2] for n in (68, 36)]
    with pytest.warns(UserWarning, match="34 coordinates from .* along axis 1, assumed 0.25 steps"):
        nodes = nodes_of(*lines)
    assert nodes == [pytest.approx((0.25, 0.75), rel=1e-4)] * 2
    assert nodes_of(*lines) == nodes  # once for each grid


@pytest.mark.parametrize("n", [16, 31, 41])
@pytest.mark.parametrize("step", [1.0, 2.0, 0.1])
def test_numbers_of_nodes_and_16_nodes_at_left_are_not_read_as_corners(n, step):
    """They end at 15, 30 or 40, of which the last two are lengths of domains."""
    if step != 1 and n != 16:
        pytest.skip("corners of a usual domain")
    _, [sure] = read_box([0], [step * (n - 1)], [n])
    assert not sure
    box, _ = read_box([0], [step * (n - 1)], [n], "left")
    assert box == [pytest.approx((0, step * n))]


@pytest.mark.parametrize("nodes", [*LINES, (0.25, 0.75)])
def test_what_cannot_be_told_is_assumed_with_a_warning(nodes):
    pair = NODES.get(nodes, nodes)
    for shift, line in enumerate((LINES["left"](8), LINES["centres"](9), torch.zeros(8)), 7):
        grid = grid_of(line + 0.1 * shift)
        with pytest.warns(UserWarning, match="coordinates leave open where the walls are"):
            geometry, _ = grid_geometry(grid, nodes)
        assert geometry["nodes"] == [pair]
        n = len(line)
        steps = n if line[0] == line[-1] else n - 1 + sum(pair)
        if line[0] != line[-1]:
            assert geometry["spacing"] == pytest.approx([1 / steps], rel=1e-5)
    assert nodes_of(torch.zeros(1)) == [NODES["centres"]]
    geometry, _ = grid_geometry(grid_of(torch.zeros(1), LINES["left"](4), torch.ones(4)))
    assert geometry["spacing"] == pytest.approx([1, 1 / 4, 1 / 4])


@pytest.mark.parametrize(
    ("box", "text"),
    [
        ([(0, 1)], "box: expected 2 pairs"),
        ([(0, 1), (1, 0)], "box: expected 2 pairs"),
        ([(0, 1), (0, 0.5)], r"box: expected walls around the 8 coordinates from .* along axis 2"),
    ],
)
def test_boxes_that_do_not_fit(box, text):
    with pytest.raises(ValueError, match=text):
        nodes_of(*(LINES["left"](8),) * 2, box=box)


def test_a_box_is_read_from_the_ends():
    box, sure = read_box([-2.375, 0.3, 0.0], [2.375, 0.5, 4.0], [20, 3, 5], "left")
    assert box == [pytest.approx((-2.5, 2.5)), pytest.approx((0.3, 0.6)), pytest.approx((0, 5))]
    assert sure == [True, False, False]


@pytest.mark.parametrize("lines", [("left", "corners"), ("centres", "left")])
@pytest.mark.parametrize("length", [1.0, 0.7])
def test_compilers_compute_the_same_geometry(lines, length):
    grid = length * grid_of(*(LINES[nodes](n) for nodes, n in zip(lines, (16, 9), strict=True)))

    def read(grid):
        geometry, length = grid_geometry(grid[None], "left")
        return torch.stack([*geometry["spacing"]]), geometry["nodes"], length

    spacing, nodes, read_length = torch.vmap(read)(grid.expand(2, *grid.shape[1:]))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        geometry, expected = grid_geometry(grid, "left")
    for row in range(2):
        assert spacing[row].tolist() == pytest.approx(geometry["spacing"])
        assert nodes[row].tolist() == [pytest.approx(pair) for pair in geometry["nodes"]]
        assert read_length[row].item() == pytest.approx(expected.item())


@pytest.mark.parametrize("nodes", LINES)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_positions_are_rounded_once(nodes, dtype):
    """float16 ends at 65,504."""
    for n in (600, 70_000):
        (line,) = node_positions(torch.zeros(1, n, 1, dtype=dtype), nodes)
        assert torch.equal(line, LINES[nodes](n).to(dtype))


def test_an_fno_takes_the_nodes_from_its_coordinates():
    model = CHONNFNO2d(1, 3, 3, 4, initial_step=1).eval()
    x, seen = torch.randn(1, 8, 8, 1), []
    model.network.head.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[3]))
    for line in LINES.values():
        model(x, grid_of(line(8), line(8)))
    model.box = [(-1, 1), (0, 1)]
    model(x, grid_of(LINES["centres"](16)[::2], LINES["left"](8)))
    assert seen == [*([pair] * 2 for pair in NODES.values()), [seen[-1][0], NODES["left"]]]
    assert seen[-1][0] == pytest.approx((8.25, 0.75))


# Built with nodes by name or by distances, and called with them.
@pytest.mark.parametrize(
    "build",
    [
        lambda nodes: CKB(2, 2, cell=Network(nodes=nodes)),
        lambda nodes: CHONNNetwork2d(2, nodes=nodes),
        lambda nodes: CHONNUNet2d(2, 1, 2, nodes=nodes),
    ],
)
def test_models_know_no_nodes_but_those_they_are_given(build):
    """Whatever grids came before."""
    x, finer = torch.randn(2, 2, 16, 16), torch.randn(2, 2, 32, 32)
    model, fresh, centred = build("left"), build(NODES["left"]), build("centres").eval()
    for other in (fresh, centred):
        other.load_state_dict(dict(model.state_dict()))
    model.train()(x)
    expected = fresh.eval()(finer)
    for found in (model.eval()(finer), *(centred(finer, nodes=x) for x in ("left", (0, 1)))):
        torch.testing.assert_close(found, expected, rtol=0, atol=0)
    assert not torch.allclose(centred(finer), expected)
    with pytest.raises(ValueError, match="nodes: expected one of"):
        centred(x, nodes="middle")


def smooth(grid):
    x, y = grid.unbind(-1)
    return (0.8 * torch.sin(6 * x) * torch.cos(3 * y) + 0.5 * torch.cos(3 * x * y)).exp()[:, None]


def on_points(field, points):
    """A field on centred points of the unit box at other points, bilinearly."""
    place = 2 * points.float().flip(-1) - 1
    return torch.nn.functional.grid_sample(field, place, align_corners=False)


@pytest.mark.parametrize("lengths", [(1.0, 1.0), (1.0, 0.5)])
def test_points_that_a_reader_keeps_give_the_function_of_the_domain(lengths):
    """Every second and fourth centre: as close to the limit of fine grids as centres of as many
    points. With walls half a step off the kept ones the difference was twenty times as large."""
    torch.manual_seed(1)
    model = CHONNNetwork2d(width=8).eval()
    n = 64

    def at(centres):
        places = [centres * length for length in lengths]
        geometry, _ = grid_geometry(grid_of(*places), box=[(0, length) for length in lengths])
        grid = grid_of(centres, centres)
        return model(smooth(grid), **geometry), grid

    with torch.no_grad():
        limit, _ = at(LINES["centres"](512))

        def difference(centres):
            y, grid = at(centres)
            right = on_points(limit, grid)
            return ((y - right).norm() / right.norm()).item()

        for every in (2, 4):
            kept = difference(LINES["centres"](n)[::every])
            assert kept < 1.3 * difference(LINES["centres"](n // every)) + 1e-5, every
