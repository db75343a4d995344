"""L-shape and holes: masks, and solutions against independent ones."""

import numpy as np
import pytest
import scipy.ndimage
import scipy.optimize
import scipy.sparse
import scipy.sparse.linalg

from chonn_lab.problems.darcy_solver import solve_steady
from chonn_lab.problems.domains import cell_centres, domain_mask, nodes
from chonn_lab.problems.poisson import domain_fields

PARTS = ("l-shape", "holes")


def test_l_shape_lacks_one_quadrant_on_every_grid():
    for n in (16, 64, 256):
        mask = domain_mask("l-shape", cell_centres(n))
        assert not mask[n // 2 :, n // 2 :].any()
        assert np.count_nonzero(mask) == 3 * n**2 // 4
        # Of nodes with the boundary among them, too: the face half-way is at 1/2.
        np.testing.assert_array_equal(domain_mask("l-shape", nodes(n)), mask)


def test_holes_are_three_discs_inside_one_piece():
    for n in (16, 64, 256):
        mask = domain_mask("holes", cell_centres(n))
        assert mask[[0, -1]].all()
        assert mask[:, [0, -1]].all()
        assert scipy.ndimage.label(~mask)[1] == 3
        assert scipy.ndimage.label(mask)[1] == 1
        area = np.pi * (0.12**2 + 0.15**2 + 0.10**2)
        assert np.mean(~mask) == pytest.approx(area, rel=3 / n)
    # x along axis 0, as everywhere: the largest disc is right of the middle.
    assert not mask[int(0.7 * n), int(0.55 * n)]
    assert mask[int(0.55 * n), int(0.7 * n)]


@pytest.mark.parametrize("domain", PARTS)
def test_darcys_flows_balance_in_every_cell(domain):
    """Kirchhoff's current law, cell by cell, with ghost cells of zero wherever none exists."""
    n, beta = 24, 1.3
    exists = domain_mask(domain, cell_centres(n))
    nu = np.where(np.random.default_rng(0).random((n, n)) > 0.5, 1.0, 0.1)
    u = solve_steady(nu, beta, exists)
    for i, j in zip(*np.nonzero(exists), strict=True):
        out = 0.0
        for p, q in ((i + 1, j), (i - 1, j), (i, j + 1), (i, j - 1)):
            if 0 <= p < n and 0 <= q < n and exists[p, q]:
                out += (nu[i, j] + nu[p, q]) / 2 * (u[i, j] - u[p, q])
            else:
                out += nu[i, j] * u[i, j]
        assert out * n**2 == pytest.approx(beta, rel=1e-9)


def finite_volumes(f, exists):
    """-laplace u = f by loops: u = 0 at the square's boundary nodes and on faces to no node."""
    n = len(f)
    unknown = exists.copy()
    unknown[[0, -1]] = False
    unknown[:, [0, -1]] = False
    number = np.full(f.shape, -1)
    number[unknown] = np.arange(np.count_nonzero(unknown))
    matrix = scipy.sparse.lil_matrix((np.count_nonzero(unknown),) * 2)
    for i, j in zip(*np.nonzero(unknown), strict=True):
        here = number[i, j]
        for p, q in ((i + 1, j), (i - 1, j), (i, j + 1), (i, j - 1)):
            matrix[here, here] += 1 if exists[p, q] else 2
            if number[p, q] >= 0:
                matrix[here, number[p, q]] -= 1
    u = np.zeros(f.shape)
    u[unknown] = scipy.sparse.linalg.spsolve(matrix.tocsc(), f[unknown] / (n - 1) ** 2)
    return u


@pytest.mark.parametrize("domain", PARTS)
def test_poisson_and_a_direct_solve_converge_to_each_other(domain):
    a = np.random.default_rng(0).uniform(-1, 1, (8, 8))
    errors = []
    for n in (34, 66, 130):
        f, u = domain_fields(a, domain, n)
        exists = domain_mask(domain, nodes(n))
        assert not f[~exists].any()
        assert not u[~exists].any()
        errors.append(np.linalg.norm(finite_volumes(f, exists) - u) / np.linalg.norm(u))
    assert errors[-1] < 2e-3
    np.testing.assert_allclose(np.log2(np.array(errors[:-1]) / errors[1:]), 2, atol=0.1)
