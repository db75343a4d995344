"""Transport by characteristics: exact shifts, conservation, orders, walls, gradients."""

import itertools

import pytest
import torch

from chonn_ops.models.transport import transport

BOTH = pytest.mark.parametrize("conservative", [False, True])


def draw(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@BOTH
@pytest.mark.parametrize("order", [1, 3])
@pytest.mark.parametrize("grid", [(7,), (5, 6), (4, 3, 5)])
def test_whole_steps_on_a_ring_are_exact(grid, order, conservative):
    field = draw(2, *grid, 6)
    # Another displacement for each third of the channels, more than once around for one of them.
    shifts = [[3, -2, 1][: len(grid)], [0] * len(grid), [-11, 5, 2][: len(grid)]]
    displacement = torch.tensor(shifts, dtype=torch.float64).expand(2, *grid, 3, len(grid))
    moved = transport(field, displacement, order=order, conservative=conservative)
    for head, shift in enumerate(shifts):
        part = slice(2 * head, 2 * head + 2)
        axes = tuple(range(1, 1 + len(grid)))
        expected = field[..., part].roll(shift, axes)
        torch.testing.assert_close(moved[..., part], expected, rtol=0, atol=1e-12)


@BOTH
def test_whole_steps_between_walls(conservative):
    field = torch.arange(1.0, 6.0).view(1, 5, 1)
    displacement = torch.full((1, 5, 1, 1), 2.0)
    moved = transport(field, displacement, boundary="robin", conservative=conservative)
    # Either the wall's value follows, or all that comes to the wall stays there.
    expected = [0, 0, 1, 2, 3 + 4 + 5] if conservative else [1, 1, 1, 2, 3]
    assert moved.flatten().tolist() == expected


def test_each_axis_has_its_own_ends():
    field = draw(1, 5, 6, 2)
    displacement = torch.tensor([1.0, -1.0], dtype=torch.float64).expand(1, 5, 6, 1, 2)
    moved = transport(field, displacement, boundary=("robin", "periodic"))
    down = torch.cat((field[:, :1], field[:, :-1]), dim=1)
    torch.testing.assert_close(moved, down.roll(-1, 2), rtol=0, atol=1e-12)


@pytest.mark.parametrize("order", [1, 3])
@pytest.mark.parametrize("boundary", ["periodic", "robin"])
@pytest.mark.parametrize("grid", [(9,), (5, 6)])
def test_conservative_form_keeps_the_sum_of_any_displacement(grid, boundary, order):
    field, displacement = draw(3, *grid, 4), 4 * draw(3, *grid, 2, len(grid), seed=1)
    axes = tuple(range(1, 1 + len(grid)))
    moved = transport(field, displacement, boundary=boundary, order=order, conservative=True)
    torch.testing.assert_close(moved.sum(axes), field.sum(axes), rtol=0, atol=1e-11)
    advected = transport(field, displacement, boundary=boundary, order=order)
    assert (advected.sum(axes) - field.sum(axes)).abs().max() > 0.1


@pytest.mark.parametrize("boundary", ["periodic", "robin"])
@pytest.mark.parametrize("grid", [(9,), (5, 6)])
def test_conservative_form_is_the_transpose_of_going_back(grid, boundary):
    x, y = draw(2, *grid, 4), draw(2, *grid, 4, seed=1)
    displacement = 3 * draw(2, *grid, 2, len(grid), seed=2)
    there = (transport(x, displacement, boundary=boundary, conservative=True) * y).sum()
    back = (x * transport(y, -displacement, boundary=boundary)).sum()
    torch.testing.assert_close(there, back)


def test_advective_form_keeps_constants_and_linear_interpolation_the_range():
    displacement = 5 * draw(2, 8, 8, 1, 2)
    for boundary, order in itertools.product(("periodic", "robin"), (1, 3)):
        ones = torch.ones(2, 8, 8, 3, dtype=torch.float64)
        torch.testing.assert_close(
            transport(ones, displacement, boundary=boundary, order=order), ones
        )
        field = draw(2, 8, 8, 3, seed=1)
        moved = transport(field, displacement, boundary=boundary, order=order)
        inside = bool((moved.max() <= field.max()) & (moved.min() >= field.min()))
        assert inside or order == 3


@pytest.mark.parametrize("order", [1, 3])
def test_one_displacement_moves_many_channels_as_each_alone(order):
    """Few channels are gathered, many are summed by rows."""
    draw = torch.Generator().manual_seed(0)
    field = torch.randn(2, 8, 11, 9, dtype=torch.float64, generator=draw).requires_grad_()
    path = 3 * torch.randn(2, 8, 11, 1, 2, dtype=torch.float64, generator=draw)
    path.requires_grad_()
    together = transport(field, path, order=order)
    alone = [transport(channel, path, order=order) for channel in field.split(1, -1)]
    torch.testing.assert_close(together, torch.cat(alone, -1))
    weight = torch.randn(together.shape, dtype=torch.float64, generator=draw)
    gradients = [
        torch.autograd.grad((moved * weight).sum(), (field, path))
        for moved in (together, torch.cat(alone, -1))
    ]
    torch.testing.assert_close(*gradients)


@pytest.mark.parametrize(("order", "least"), [(1, 1.9), (3, 3.9)])
def test_orders_of_convergence(order, least):
    errors = []
    for n in (32, 64, 128):
        x = torch.arange(n, dtype=torch.float64) / n
        field = torch.sin(2 * torch.pi * x).view(1, n, 1)
        shift = 0.1 + 0.05 * torch.cos(2 * torch.pi * x)
        moved = transport(field, n * shift.view(1, n, 1, 1), order=order)
        errors.append((moved.flatten() - torch.sin(2 * torch.pi * (x - shift))).abs().max())
    assert torch.log2(errors[0] / errors[1]) > least - 0.2
    assert torch.log2(errors[1] / errors[2]) > least - 0.1


@BOTH
@pytest.mark.parametrize("boundary", ["periodic", "robin"])
@pytest.mark.parametrize("grid", [(5,), pytest.param((3, 4), marks=pytest.mark.thorough)])
def test_gradients(grid, boundary, conservative):
    field = draw(2, *grid, 4).requires_grad_()
    # Away from whole steps, where the interpolation has kinks, and from the walls.
    displacement = (draw(2, *grid, 2, len(grid), seed=1).clamp(-1, 1) * 0.4).requires_grad_()

    def moved(field, displacement):
        return transport(field, displacement + 0.013, boundary=boundary, conservative=conservative)

    assert torch.autograd.gradcheck(moved, (field, displacement))


@BOTH
@pytest.mark.parametrize("channels", [2, 24])
def test_gradients_are_mapped(channels, conservative):
    field = draw(2, 5, channels).requires_grad_()
    displacement = draw(2, 5, 1, 1, seed=1).requires_grad_()
    y = transport(field, displacement, conservative=conservative)
    rows, inputs = torch.stack([torch.ones_like(y), y.detach()]), (field, displacement)

    def gradients(row, **options):
        return torch.autograd.grad(y, inputs, row, retain_graph=True, **options)

    expected = [torch.stack(each) for each in zip(*map(gradients, rows), strict=True)]
    for found in (gradients(rows, is_grads_batched=True), torch.vmap(gradients)(rows)):
        torch.testing.assert_close(list(found), expected)


def test_gradient_with_respect_to_the_displacement_is_downhill():
    """Two displacements are found from what they do to a wave."""
    n = 32
    x = torch.arange(n) / n
    wave = torch.sin(2 * torch.pi * x).view(1, n, 1)
    target = torch.sin(2 * torch.pi * (x - 0.11)).view(1, n, 1)
    shift = torch.zeros(1, requires_grad=True)
    optimizer = torch.optim.Adam([shift], lr=0.1)
    for _ in range(120):
        loss = (transport(wave, shift.expand(1, n, 1, 1)) - target).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert shift.item() == pytest.approx(0.11 * n, abs=0.01)


@BOTH
def test_half_precision_and_strange_numbers(conservative):
    field, displacement = draw(1, 6, 2).to(torch.bfloat16), draw(1, 6, 1, 1).float()
    moved = transport(field, displacement, conservative=conservative)
    assert moved.dtype == torch.bfloat16
    wide = transport(field.float(), displacement, conservative=conservative)
    torch.testing.assert_close(moved.float(), wide, rtol=0.05, atol=0.05)
    for value in (float("nan"), float("inf"), 1e30):
        strange = displacement.masked_fill(torch.arange(6).view(1, 6, 1, 1) == 2, value)
        transport(field.float(), strange, conservative=conservative)


@BOTH
@pytest.mark.parametrize("boundary", ["periodic", "robin"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_knows_all_nodes_and_parts_of_steps(dtype, boundary, conservative):
    """There is no 257 in bfloat16, nor 2049 in float16."""
    field = draw(1, 2500, 2).to(dtype)
    displacement = torch.full((1, 2500, 1, 1), 0.25, dtype=dtype)
    options = {"boundary": boundary, "order": 1, "conservative": conservative}
    assert torch.equal(transport(field, 0 * displacement, **options), field)
    moved = transport(field, displacement, **options)
    wide = transport(field.double(), displacement.double(), **options)
    torch.testing.assert_close(moved.double(), wide, rtol=0.01, atol=0.02)


@pytest.mark.parametrize(
    ("field", "displacement", "options", "message"),
    [
        ((2, 5), (2, 5, 1, 1), {}, r"field: expected shape \(B, \*grid, C\) with 1 to 3 axes"),
        ((2, 5, 4), (2, 5, 1), {}, r"displacement: expected shape \(2, 5, 'H', 1\), got \(2, 5, 1"),
        ((2, 5, 4), (2, 6, 1, 1), {}, r"displacement: expected shape \(2, 5, 'H', 1\)"),
        ((2, 5, 4), (2, 5, 3, 1), {}, "displacement: expected H to divide the 4 channels, got 3"),
        ((2, 5, 4), (2, 5, 1, 1), {"boundary": "open"}, "boundary: expected one of .*got 'open'"),
        (
            (2, 5, 4),
            (2, 5, 1, 1),
            {"boundary": ("periodic", "periodic")},
            "boundary: expected one of .*or 1 of",
        ),
        ((2, 5, 4), (2, 5, 1, 1), {"order": 2}, r"order: expected one of \(1, 3\), got 2"),
    ],
)
def test_bad_arguments(field, displacement, options, message):
    with pytest.raises(ValueError, match=message):
        transport(torch.zeros(field), torch.zeros(displacement), **options)
