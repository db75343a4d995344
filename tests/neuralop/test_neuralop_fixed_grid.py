"""A block that runs on its training grid, evaluated on other grids."""

import copy
import itertools

import pytest
import torch

from chonn_ops import CKB, Scan
from chonn_plugins.neuralop.fixed_grid import FixedGridCKB, resample

GRIDS = {1: (16,), 2: (16, 12), 3: (4, 6, 8)}


def block(dims: int, grid=None) -> FixedGridCKB:
    torch.manual_seed(0)
    return FixedGridCKB(CKB(4, dims, cell=Scan(d_state=2)), grid)


@pytest.mark.parametrize("dims", GRIDS)
def test_it_is_the_block_on_its_grid_and_at_its_points_of_a_finer_one(dims):
    fixed = block(dims, GRIDS[dims])
    x = torch.randn(2, 4, *(3 * n for n in GRIDS[dims]))
    thirds = (..., *[slice(None, None, 3)] * dims)
    expected = fixed.ckb(x[thirds])
    torch.testing.assert_close(fixed(x[thirds]), expected, rtol=0, atol=0)
    torch.testing.assert_close(fixed(x)[thirds], expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("grid", [(17, 23), (8, 6), (1, 1), (40, 12)])
def test_any_grid_keeps_its_shape_and_gives_gradients(grid):
    fixed = block(2, (16, 12))
    x = torch.randn(2, 4, *grid, requires_grad=True)
    y = fixed(x)
    assert y.shape == x.shape
    y.square().mean().backward()
    assert x.grad is not None
    assert x.grad.isfinite().all()
    for name, parameter in fixed.named_parameters():
        assert parameter.grad is not None, name


def test_the_first_training_pass_sets_the_grid_and_evaluation_does_not():
    fixed = block(2).eval()
    fixed(torch.randn(1, 4, 20, 20))
    assert fixed.grid is None
    fixed.train()(torch.randn(1, 4, 16, 12))
    assert fixed.grid == (16, 12)
    fixed(torch.randn(1, 4, 32, 24))
    assert fixed.grid == (16, 12)


def test_the_grid_travels_in_the_state_dict_and_in_copies(tmp_path):
    trained, x = block(2), torch.randn(1, 4, 32, 24)
    trained(torch.randn(1, 4, 16, 12))
    torch.save(trained.state_dict(), tmp_path / "fixed.pt")
    loaded = block(2)
    loaded.load_state_dict(torch.load(tmp_path / "fixed.pt", weights_only=True))
    assert loaded.grid == (16, 12)
    torch.testing.assert_close(loaded(x), trained(x))
    torch.testing.assert_close(copy.deepcopy(trained)(x), trained(x))
    loaded.load_state_dict(block(2).state_dict())
    assert loaded.grid is None


@pytest.mark.thorough
def test_compiles_without_graph_breaks_and_records_the_grid():
    fixed = block(2)
    compiled = torch.compile(fixed, backend="eager", fullgraph=True)
    compiled(torch.randn(1, 4, 16, 12))
    assert fixed.grid == (16, 12)
    x = torch.randn(1, 4, 32, 24)
    torch.testing.assert_close(compiled(x), fixed(x))


@pytest.mark.parametrize("new", [1, 2, 5, 16, 33, 48])
@pytest.mark.parametrize("old", [1, 2, 7, 16])
def test_resampling_keeps_constants_and_common_points(old, new):
    torch.testing.assert_close(resample(torch.ones(1, 1, old), (new,)), torch.ones(1, 1, new))
    x = torch.randn(1, 2, old)
    torch.testing.assert_close(resample(resample(x, (3 * old,)), (old,)), x)


def test_resampling_keeps_straight_lines_up_to_the_ends_and_is_of_third_order_inside():
    line = torch.arange(7.0).view(1, 1, 7) / 7
    torch.testing.assert_close(resample(line, (21,)), torch.arange(21.0).view(1, 1, 21) / 21)
    errors = []
    for n in (16, 32, 64):
        f = [torch.sin(7 * torch.arange(m, dtype=torch.float64) / m) for m in (n, 3 * n)]
        error = resample(f[0].view(1, 1, n), (3 * n,)).view(-1) - f[1]
        errors.append(error[n : 2 * n].abs().max())
    for coarse, fine in itertools.pairwise(errors):
        assert coarse / fine > 7.5


def test_errors_state_expected_and_actual():
    with pytest.raises(ValueError, match="ckb: expected a block with spatial_dims"):
        FixedGridCKB(CKB(4))
    with pytest.raises(ValueError, match=r"grid: expected 2 positive sizes, got \(16,\)"):
        block(2, (16,))
    with pytest.raises(ValueError, match=r"grid: expected 2 positive sizes, got \(16, 0\)"):
        block(2, (16, 0))
    with pytest.raises(ValueError, match=r"x: expected shape \(B, 4, H, W\), got \(1, 4, 16\)"):
        block(2, (16, 16))(torch.randn(1, 4, 16))
