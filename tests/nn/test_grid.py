"""Scan paths against their definition, written with flips and transposes."""

import pytest
import torch

from chonn_ops import kirchhoff_scan
from chonn_ops.scan import DIRECTIONS, scan_field
from chonn_ops.scan.walks import axis_orders

GRIDS = [(7,), (4, 5), (3, 4, 2)]


def coefficients(grid, channels=3, states=2, batch=2, seed=0):
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape):
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    delta = torch.rand(batch, *grid, channels, generator=generator, dtype=torch.float64) + 0.05
    decay = torch.rand(channels, states, generator=generator, dtype=torch.float64) + 0.1
    u, b, c = (normal(batch, *grid, k) for k in (channels, states, states))
    return u, delta, decay, b, c, normal(channels)


def flip_scan(u, delta, decay, b, c):
    """Backward scan by flipping, the definition of `reverse`."""
    flipped = (t.flip(1) for t in (u, delta, b, c))
    uf, df, bf, cf = flipped
    return kirchhoff_scan(uf, df, decay, bf, cf, backend="reference").flip(1)


@pytest.mark.parametrize("grid", GRIDS, ids=str)
def test_raster_is_the_flattened_scan(grid):
    u, delta, decay, b, c, d = coefficients(grid)
    flat = [t.flatten(1, -2) for t in (u, delta, b, c)]
    expected = kirchhoff_scan(flat[0], flat[1], decay, flat[2], flat[3], d).reshape(u.shape)
    torch.testing.assert_close(scan_field(u, delta, decay, b, c, d, directions="raster"), expected)


@pytest.mark.parametrize("grid", GRIDS, ids=str)
def test_cross_is_the_mean_of_both_ways_along_every_axis_order(grid):
    u, delta, decay, b, c, d = coefficients(grid)
    total, count = torch.zeros_like(u), 0
    for order in axis_orders(len(grid), "cross"):
        perm = (0, *(a + 1 for a in order), u.ndim - 1)
        inverse = [perm.index(k) for k in range(u.ndim)]
        ordered = u.permute(perm)
        lines = [t.permute(perm).flatten(1, -2) for t in (u, delta, b, c)]
        for scan in (kirchhoff_scan, flip_scan):
            y = scan(lines[0], lines[1], decay, lines[2], lines[3])
            total = total + y.reshape(ordered.shape).permute(inverse)
            count += 1
    expected = total / count + d * u
    result = scan_field(u, delta, decay, b, c, d, directions="cross")
    torch.testing.assert_close(result, expected)


def test_axial_scans_every_row_and_every_column():
    u, delta, decay, b, c, d = coefficients((4, 5))
    total = torch.zeros_like(u)
    for row in range(4):
        args = (u[:, row], delta[:, row], decay, b[:, row], c[:, row])
        total[:, row] += kirchhoff_scan(*args) + flip_scan(*args)
    for column in range(5):
        args = (u[:, :, column], delta[:, :, column], decay, b[:, :, column], c[:, :, column])
        total[:, :, column] += kirchhoff_scan(*args) + flip_scan(*args)
    result = scan_field(u, delta, decay, b, c, d, directions="axial")
    torch.testing.assert_close(result, total / 4 + d * u)


@pytest.mark.parametrize("directions", [m for m in DIRECTIONS if m != "raster"])
def test_two_way_modes_with_constant_coefficients_commute_with_reflection(directions):
    u, _, decay, _, _, d = coefficients((4, 5))
    delta = torch.full_like(u, 0.3)
    b = c = torch.ones(*u.shape[:-1], decay.shape[1], dtype=u.dtype)

    def operator(field):
        return scan_field(field, delta, decay, b, c, d, directions=directions)

    torch.testing.assert_close(operator(u.flip(1, 2)), operator(u).flip(1, 2))


def test_axial_ring_commutes_with_shifts():
    u, _, decay, _, _, d = coefficients((6, 5))
    delta = torch.full_like(u, 0.3)
    b = c = torch.ones(*u.shape[:-1], decay.shape[1], dtype=u.dtype)

    def operator(field):
        return scan_field(field, delta, decay, b, c, d, directions="axial", boundary="periodic")

    shift = {"shifts": (2, 1), "dims": (1, 2)}
    torch.testing.assert_close(operator(u.roll(**shift)), operator(u).roll(**shift))


def test_unknown_mode_names_the_known_ones():
    with pytest.raises(ValueError, match=r"expected one of \('raster'.*got 'spiral'"):
        axis_orders(2, "spiral")


@pytest.mark.parametrize(("boundary", "sign"), [("neumann", 1), ("dirichlet", -1)])
def test_a_wall_is_the_middle_of_an_even_or_odd_field(boundary, sign):
    """The last end of a line sends back what would come from the field's mirror image."""
    half = coefficients((30,), channels=1)[0]
    whole = torch.cat([half, sign * half.flip(1)], dim=1)
    decay = torch.tensor([[0.7, 0.2]], dtype=half.dtype)

    def scan(field, boundary):
        delta = torch.full_like(field, 0.3)
        b = c = torch.ones(*field.shape[:-1], 2, dtype=field.dtype)
        return scan_field(field, delta, decay, b, c, directions="axial", boundary=boundary)

    torch.testing.assert_close(scan(half, boundary), scan(whole, "matched")[:, :30])
