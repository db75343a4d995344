"""Transport by characteristics: exact shifts, order, walls, gradients."""

import pytest
import torch

from chonn_ops.models.transport import transport


def draw(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("grid", [(7,), (5, 6), (4, 3, 5)])
def test_whole_steps_on_a_ring_are_exact(grid):
    field = draw(2, *grid, 6)
    # Another displacement for each third of the channels, more than once around for one of them.
    shifts = [[3, -2, 1][: len(grid)], [0] * len(grid), [-11, 5, 2][: len(grid)]]
    displacement = torch.tensor(shifts, dtype=torch.float64).expand(2, *grid, 3, len(grid))
    moved = transport(field, displacement)
    for head, shift in enumerate(shifts):
        part = slice(2 * head, 2 * head + 2)
        axes = tuple(range(1, 1 + len(grid)))
        expected = field[..., part].roll(shift, axes)
        torch.testing.assert_close(moved[..., part], expected, rtol=0, atol=1e-12)


def test_whole_steps_between_walls():
    field = torch.arange(1.0, 6.0).view(1, 5, 1)
    displacement = torch.full((1, 5, 1, 1), 2.0)
    moved = transport(field, displacement, boundary="robin")
    assert moved.flatten().tolist() == [1, 1, 1, 2, 3]


def test_each_axis_has_its_own_ends():
    field = draw(1, 5, 6, 2)
    displacement = torch.tensor([1.0, -1.0], dtype=torch.float64).expand(1, 5, 6, 1, 2)
    moved = transport(field, displacement, boundary=("robin", "periodic"))
    down = torch.cat((field[:, :1], field[:, :-1]), dim=1)
    torch.testing.assert_close(moved, down.roll(-1, 2), rtol=0, atol=1e-12)


def test_constants_and_the_range_are_kept():
    displacement = 5 * draw(2, 8, 8, 1, 2)
    for boundary in ("periodic", "robin"):
        ones = torch.ones(2, 8, 8, 3, dtype=torch.float64)
        torch.testing.assert_close(transport(ones, displacement, boundary=boundary), ones)
        field = draw(2, 8, 8, 3, seed=1)
        moved = transport(field, displacement, boundary=boundary)
        assert moved.max() <= field.max()
        assert moved.min() >= field.min()


def test_one_displacement_moves_many_channels_as_each_alone():
    """Few channels are gathered, many are summed by rows."""
    draw = torch.Generator().manual_seed(0)
    field = torch.randn(2, 8, 11, 9, dtype=torch.float64, generator=draw).requires_grad_()
    path = 3 * torch.randn(2, 8, 11, 1, 2, dtype=torch.float64, generator=draw)
    path.requires_grad_()
    together = transport(field, path)
    alone = [transport(channel, path) for channel in field.split(1, -1)]
    torch.testing.assert_close(together, torch.cat(alone, -1))
    weight = torch.randn(together.shape, dtype=torch.float64, generator=draw)
    gradients = [
        torch.autograd.grad((moved * weight).sum(), (field, path))
        for moved in (together, torch.cat(alone, -1))
    ]
    torch.testing.assert_close(*gradients)


def test_order_of_convergence():
    errors = []
    for n in (32, 64, 128):
        x = torch.arange(n, dtype=torch.float64) / n
        field = torch.sin(2 * torch.pi * x).view(1, n, 1)
        shift = 0.1 + 0.05 * torch.cos(2 * torch.pi * x)
        moved = transport(field, n * shift.view(1, n, 1, 1))
        errors.append((moved.flatten() - torch.sin(2 * torch.pi * (x - shift))).abs().max())
    assert torch.log2(errors[0] / errors[1]) > 1.7
    assert torch.log2(errors[1] / errors[2]) > 1.8


@pytest.mark.parametrize("boundary", ["periodic", "robin"])
@pytest.mark.parametrize("grid", [(5,), pytest.param((3, 4), marks=pytest.mark.thorough)])
def test_gradients(grid, boundary):
    field = draw(2, *grid, 4).requires_grad_()
    # Away from whole steps, where the interpolation has kinks, and from the walls.
    displacement = (draw(2, *grid, 2, len(grid), seed=1).clamp(-1, 1) * 0.4).requires_grad_()

    def moved(field, displacement):
        return transport(field, displacement + 0.013, boundary=boundary)

    assert torch.autograd.gradcheck(moved, (field, displacement))


def test_half_precision_and_strange_numbers():
    field, displacement = draw(1, 6, 2).to(torch.bfloat16), draw(1, 6, 1, 1).float()
    moved = transport(field, displacement)
    assert moved.dtype == torch.bfloat16
    wide = transport(field.float(), displacement)
    torch.testing.assert_close(moved.float(), wide, rtol=0.05, atol=0.05)
    for value in (float("nan"), float("inf"), 1e30):
        strange = displacement.masked_fill(torch.arange(6).view(1, 6, 1, 1) == 2, value)
        transport(field.float(), strange)


@pytest.mark.parametrize("boundary", ["periodic", "robin"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_knows_all_nodes_and_parts_of_steps(dtype, boundary):
    """There is no 257 in bfloat16, nor 2049 in float16."""
    field = draw(1, 2500, 2).to(dtype)
    displacement = torch.full((1, 2500, 1, 1), 0.25, dtype=dtype)
    options = {"boundary": boundary}
    assert torch.equal(transport(field, 0 * displacement, **options), field)
    moved = transport(field, displacement, **options)
    wide = transport(field.double(), displacement.double(), **options)
    torch.testing.assert_close(moved.double(), wide, rtol=0.01, atol=0.02)
