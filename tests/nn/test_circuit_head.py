"""The circuit head against dense float64 solves of its equation, and what its weights belong to."""

import math

import numpy as np
import pytest
import torch
from torch.nn.functional import gelu

from chonn_ops import Dirichlet, Neumann
from chonn_ops.nn import CircuitHead
from chonn_ops.nn.circuit_head import FACE_WIDTH, MEAN_GAIN, mean_of_ends

SMALL = {"distance", "film", "absorption", "faces.differences.weight", "faces.sides.weight"}


def made(*arguments, seed=0, **options):
    """A head in float64 whose every number is random."""
    torch.manual_seed(seed)
    head = CircuitHead(*arguments, dtype=torch.float64, **options)
    with torch.no_grad():
        for name, p in head.named_parameters():
            p.add_(torch.randn_like(p) * (0.1 if name in SMALL else 0.5))
    return head


def features(*shape, seed=1):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def plain(head, h, steps, offsets=(0.5, 0.5)):
    """The output for one sample by a dense matrix, node by node; the first output alone."""
    *grid, _ = h.shape
    axes, m = len(grid), head.num_circuits
    network = head.faces

    def added(axis, a, b):
        """By what a network of both ends multiplies a face."""
        rows = slice(FACE_WIDTH * axis, FACE_WIDTH * (axis + 1))
        layers = network.sums, network.differences, network.sides
        S, R, *sides = (layer.weight[rows] for layer in layers if layer)
        signed = lambda x: x * x.abs()  # noqa: E731
        layer = lambda a, b: gelu(  # noqa: E731
            S @ (a + b)
            + (R @ (a - b)).square()
            + sum(signed(weight @ (b - a)) for weight in sides)
            + 2 * network.sums.bias[rows]
        )
        sums = layer(a, b) - layer(a, a) / 2 - layer(b, b) / 2
        gain = 0.03 if head.ac else 1
        return math.exp(gain * float(network.output.weight[0] @ sums))

    volume = math.prod(steps)
    logs = (h @ head.conductivity.weight.T).reshape(*grid, axes, m)[..., 0]
    f = h @ head.source.weight.T + head.source.bias
    f, c = f[..., 0], (-9 + head.absorption[0]).exp()
    if head.ac:
        logs = 0.03 * logs
        f = torch.complex(f, (h @ head.source.weight.T + head.source.bias)[..., m])
        a, b, d = (h @ head.leak.weight.T + head.absorption)[..., ::m].unbind(-1)
        c = (0.03 * a - 9).exp() - (0.03 * b - 9).exp() - 1j * (d - 9).exp()
    logs = logs.clamp(-15, 15)
    number = np.arange(math.prod(grid)).reshape(grid)
    matrix, current = np.zeros((number.size,) * 2, f.numpy().dtype), f.flatten().numpy() * volume
    matrix[np.diag_indices(number.size)] = c.flatten().numpy() * volume
    t = MEAN_GAIN * float(head.mean[0])
    level = 0.2 * (head.level - head.level.mean(0))[:, 0]
    distance = 0.01 * (8 * head.distance[:, 0]).exp()
    film = 0.001 * distance * (-8 * head.film[:, 0]).exp()
    for place in np.ndindex(*grid):
        p = number[place]
        for axis in range(axes):
            area, a = volume / steps[axis], float(logs[place][axis])
            after = list(place)
            after[axis] += 1
            if after[axis] < grid[axis]:
                q, b = number[tuple(after)], float(logs[tuple(after)][axis])
                k = math.exp((a + b) / 2) * math.cosh((a - b) / 2) ** t
                k *= added(axis, h[place], h[tuple(after)])
                g = k * area / steps[axis]
                matrix[[p, q], [p, q]] += g
                matrix[[p, q], [q, p]] -= g
            for end, at in enumerate((0, grid[axis] - 1)):
                if place[axis] == at:
                    far = offsets[end] * steps[axis] + float(distance[2 * axis + end])
                    g = area / (far / math.exp(a) + float(film[2 * axis + end]))
                    matrix[p, p] += g
                    current[p] += g * float(level[2 * axis + end])
    v = np.linalg.solve(matrix, current).reshape(grid)
    size = volume ** (2 / axes)
    k = np.exp(logs.mean(-1).numpy())
    v = v + float(head.cell[0]) * size * f.numpy() / k
    return math.exp(float(head.scale[0])) * (v + float(head.offset[0]))


@pytest.mark.parametrize("ac", [False, True])
@pytest.mark.parametrize("grid", [(7,), (4, 5), (3, 2, 4)])
def test_outputs_solve_the_equation(grid, ac):
    head = made(3, len(grid), 4 if ac else 2, ac=ac, sided=not ac).requires_grad_(False)
    if ac:  # waves, some of them lost
        head.absorption.copy_(torch.tensor([8.0, 8.0, 450.0, 450.0, 9.6, 9.6]))
    h = features(2, *grid, 3)
    steps = [0.3 / n for n in grid]
    out = head(h, steps)
    for sample in range(2):
        right = plain(head, h[sample], steps)
        close = {"rtol": 1e-9, "atol": 1e-9 * abs(right).max()}
        assert np.allclose(out[sample, ..., 0], right.real, **close)
        if ac:
            assert np.allclose(out[sample, ..., 1], right.imag, **close)
            one = made(3, len(grid), 1, ac=True, seed=2)
            assert one(h).shape == (2, *grid, 1)


def test_nodes_on_walls():
    head = made(3, 2).requires_grad_(False)
    h = features(1, 4, 5, 3)
    right = plain(head, h[0], [2 / 7, 2 / 7], (1e-3, 1e-3))
    assert np.allclose(head(h, nodes="corners")[0, ..., 0], right, rtol=1e-9)
    right = plain(head, h[0], [2 / 9, 2 / 9], (0.25, 0.75))
    assert np.allclose(head(h, nodes=(0.25, 0.75))[0, ..., 0], right, rtol=1e-9)


@pytest.mark.parametrize(("mean", "right"), [(1.0, 5.5), (0.0, math.sqrt(10)), (-1.0, 20 / 11)])
def test_faces_have_means_of_both_nodes(mean, right):
    a, b = torch.tensor([1.0, 10.0], dtype=torch.float64).log()
    assert mean_of_ends(a, b, torch.tensor(mean)).item() == pytest.approx(right, rel=1e-7)


def test_faces_between_equal_nodes_have_no_part_of_the_network():
    head = made(3, 2).requires_grad_(False)
    h = features(1, 1, 1, 3).expand(1, 4, 5, 3)
    before = head(h)
    head.faces.output.weight.mul_(3)
    assert torch.allclose(head(h), before, rtol=1e-12)
    other = features(1, 4, 5, 3)
    before = head(other)
    head.faces.output.weight.mul_(3)
    assert not torch.allclose(head(other), before, rtol=1e-3)


@pytest.mark.parametrize("ac", [False, True])
def test_gradients_of_every_number(ac):
    head = made(2, 2, 2, ac=ac, sided=not ac, boundary=["matched", "robin"] if ac else "robin")
    h = features(1, 3, 3, 2).requires_grad_()
    names = dict(head.named_parameters())

    def call(h, *values):
        return torch.func.functional_call(head, dict(zip(names, values, strict=True)), (h,))

    inputs = (h, *(p.detach().requires_grad_() for p in names.values()))
    assert torch.autograd.gradcheck(call, inputs)
    assert torch.autograd.gradgradcheck(call, inputs)


def test_conditions_hold_in_the_unit_of_the_output():
    plates = [(Dirichlet(2.0), Dirichlet(-1.0)), "neumann"]
    head = made(2, 2, boundary=plates).requires_grad_(False)
    head.source.weight.zero_()
    head.source.bias.zero_()
    head.absorption.fill_(-16)
    u = head(features(1, 64, 4, 2))[0, ..., 0]
    assert len(head.level) == 1  # of holes
    ends = 1.5 * u[[0, -1]] - 0.5 * u[[1, -2]]  # at the faces, up to the curvature there
    assert ends[0].mean().item() == pytest.approx(2, abs=0.1)
    assert ends[1].mean().item() == pytest.approx(-1, abs=0.1)


def test_fluxes_hold_in_the_unit_of_the_output():
    head = made(1, 1, boundary=[(Neumann(3.0), Dirichlet(1.0))]).requires_grad_(False)
    head.faces.output.weight.zero_()
    for p in (head.conductivity.weight, head.source.weight, head.source.bias, head.cell):
        p.zero_()
    head.absorption.fill_(-16)
    u = head(features(1, 10, 1))[0, :, 0]  # a straight line: k = 1
    x = (torch.arange(10, dtype=torch.float64) + 0.5) / 10
    assert torch.allclose(u, 1 + 3 * (1 - x), rtol=1e-6)


def test_holes_have_walls_of_their_own():
    head = made(2, 2, inner=Dirichlet(5.0)).requires_grad_(False)
    mask = torch.ones(6, 6, dtype=torch.bool)
    mask[2:4, 2:4] = False
    h = features(1, 6, 6, 2)
    u = head(h, mask=mask)
    assert (u[0][~mask] == 0).all()
    assert (u - head(h.masked_fill(~mask[..., None], 7.0), mask=mask)).abs().max() == 0
    learned = made(2, 2).requires_grad_(False)
    before = learned(h, mask=mask)
    learned.distance[-1] -= 0.5
    assert (learned(h, mask=mask) - before).abs().max() > 1e-3


def test_pace_changes_steps_and_not_the_function():
    """By stochastic gradient descent, numbers move by the square of the pace."""
    torch.manual_seed(3)
    head = CircuitHead(6, 2, 2).double()
    h = torch.randn(2, 8, 9, 6, dtype=torch.float64)
    with torch.no_grad():
        for p in head.parameters():
            p.add_(0.1 * torch.randn_like(p))
    before = head(h)
    (slow,) = torch.autograd.grad(before.square().sum(), head.source.weight)
    head.set_pace(4.0)
    after = head(h)
    torch.testing.assert_close(after, before, rtol=1e-10, atol=1e-12)
    (fast,) = torch.autograd.grad(after.square().sum(), head.source.weight)
    torch.testing.assert_close(fast, 4 * slow, rtol=1e-9, atol=1e-12)
    other = CircuitHead(6, 2, 2).double()
    other.load_state_dict(head.state_dict())
    assert torch.equal(other(h), after)
