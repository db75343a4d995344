"""L-shape and holes: masks, truth against exact and independent solutions, files, commands."""
# ruff: noqa: E402 - skipped before the imports where the extra is missing

import numpy as np
import pytest
import scipy.ndimage
import scipy.optimize
import scipy.sparse
import scipy.sparse.linalg
import torch

h5py = pytest.importorskip("h5py")
pytest.importorskip("pooch")
pytest.importorskip("tqdm")

from chonn_lab import cli
from chonn_lab.problems import darcy, poisson
from chonn_lab.problems.darcy_solver import darcy_matrix, solve_steady
from chonn_lab.problems.domains import DOMAINS, cell_centres, domain_mask, nodes
from chonn_lab.problems.poisson import DomainFields
from chonn_ops import diffusion

PARTS = [domain for domain in DOMAINS if domain != "square"]


def two_phase(resolution, seed=0):
    return np.where(np.random.default_rng(seed).random((resolution, resolution)) > 0.5, 1.0, 0.1)


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


def test_bad_domains():
    points = cell_centres(8)
    with pytest.raises(ValueError, match="expected one of square, l-shape, holes, got 'disc'"):
        domain_mask("disc", points)
    with pytest.raises(ValueError, match="at least 16 for the domain holes, got 8"):
        domain_mask("holes", points)
    assert domain_mask("square", points).all()


def test_darcy_converges_to_an_exact_solution_on_the_l_shape():
    """sin(2 pi x) sin(2 pi y) vanishes on all walls of the l-shape; a variable medium."""
    errors = []
    for n in (16, 32, 64):
        x, y = np.meshgrid(cell_centres(n), cell_centres(n), indexing="ij")
        exists = domain_mask("l-shape", cell_centres(n))
        nu, k = 1 + 0.5 * x + 0.3 * y, 2 * np.pi
        exact = np.sin(k * x) * np.sin(k * y)
        slope = 0.5 * k * np.cos(k * x) * np.sin(k * y) + 0.3 * k * np.sin(k * x) * np.cos(k * y)
        u = solve_steady(nu, 2 * k**2 * nu * exact - slope, exists, margin=0.0)
        assert not u[~exists].any()
        errors.append(np.abs(u - exact)[exists].max())
    assert errors[-1] < 5e-3
    assert (np.log2(np.array(errors[:-1]) / errors[1:]) > 1.8).all(), errors


@pytest.mark.parametrize("domain", PARTS)
def test_darcys_flows_balance_in_every_cell(domain):
    """Kirchhoff's current law, cell by cell, with ghost cells of zero wherever none exists."""
    n, beta = 24, 1.3
    exists = domain_mask(domain, cell_centres(n))
    nu = two_phase(n)
    u = solve_steady(nu, beta, exists)
    for i, j in zip(*np.nonzero(exists), strict=True):
        out = 0.0
        for p, q in ((i + 1, j), (i - 1, j), (i, j + 1), (i, j - 1)):
            if 0 <= p < n and 0 <= q < n and exists[p, q]:
                out += (nu[i, j] + nu[p, q]) / 2 * (u[i, j] - u[p, q])
            else:
                out += nu[i, j] * u[i, j]
        assert out * n**2 == pytest.approx(beta, rel=1e-9)


@pytest.mark.parametrize("domain", DOMAINS)
def test_darcy_of_one_medium_is_the_network_with_grounded_walls(domain):
    """Means of equal conductivities are the same, so with walls at the faces both schemes are."""
    n = 20
    exists = domain_mask(domain, cell_centres(n))
    mask = torch.from_numpy(exists)
    k = torch.full((1, n, n, 1), 0.3, dtype=torch.float64)
    source = mask[None, ..., None].double()
    circuit = diffusion(k, 1 / n, mask=mask, boundary="dirichlet")
    v = circuit.solve(source, backend="reference")
    u = solve_steady(np.full((n, n), 0.3), 1.0, exists, margin=0.0)
    np.testing.assert_allclose(u, v[0, ..., 0].numpy(), rtol=1e-9, atol=1e-14)


def test_darcys_default_margin_is_half_a_cell():
    nu = two_phase(16)
    for exists in (None, domain_mask("l-shape", cell_centres(16))):
        default, given = darcy_matrix(nu, exists), darcy_matrix(nu, exists, 1 / 32)
        assert (default != given).nnz == 0
        assert (default != darcy_matrix(nu, exists, 0.0)).nnz > 0


def test_a_coarser_grids_margin_asks_the_same_problem():
    """u + margin du/dn = 0 at the walls, on every grid; that of 16 x 16 has it by default."""
    margin = 1 / 32
    k = scipy.optimize.brentq(lambda k: np.cos(k / 2) - margin * k * np.sin(k / 2), 1, np.pi)
    errors = []
    for n in (16, 32, 64):
        along = np.cos(k * (cell_centres(n) - 0.5))
        exact = np.outer(along, along)
        u = solve_steady(np.full((n, n), 0.1), 0.2 * k**2 * exact, margin=margin)
        errors.append(np.abs(u - exact).max())
    assert errors[0] < 0.01
    np.testing.assert_allclose(np.log2(np.array(errors[:-1]) / errors[1:]), 2, atol=0.2)


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
        f, u = DomainFields(domain, n)(a)
        exists = domain_mask(domain, nodes(n))
        assert not f[~exists].any()
        assert not u[~exists].any()
        errors.append(np.linalg.norm(finite_volumes(f, exists) - u) / np.linalg.norm(u))
    assert errors[-1] < 2e-3
    np.testing.assert_allclose(np.log2(np.array(errors[:-1]) / errors[1:]), 2, atol=0.1)


def test_poisson_of_a_mode_that_vanishes_on_the_walls_is_that_mode():
    a = np.zeros((4, 4))
    a[1, 1] = a[3, 1] = 1
    exists = domain_mask("l-shape", nodes(64))
    for found, whole in zip(DomainFields("l-shape", 64)(a), poisson.fields(a, 64), strict=True):
        np.testing.assert_allclose(found, whole * exists, atol=1e-12)


def test_poisson_on_the_l_shape_is_one_problem_on_all_grids():
    a = np.random.default_rng(1).uniform(-1, 1, (16, 16))
    coarse, fine = (DomainFields("l-shape", n)(a)[1] for n in (64, 190))
    # Every third of the fine nodes is a coarse one; a corner keeps the error from second order.
    error = np.abs(fine[::3, ::3] - coarse).sum() / np.abs(coarse).sum()
    assert error < 0.01


@pytest.mark.parametrize("domain", PARTS)
def test_darcy_file(tmp_path, domain):
    path, plain = tmp_path / darcy.default_name(1.0, domain), tmp_path / "square.hdf5"
    darcy.generate(path, 3, 16, progress=False, domain=domain)
    darcy.generate(plain, 3, 16, progress=False)
    assert path.name == f"2D_DarcyFlow_beta1.0_Train_{domain}.hdf5"
    exists = domain_mask(domain, cell_centres(16))
    with h5py.File(path) as file, h5py.File(plain) as square:
        assert (file.attrs["domain"], file["mask"].dtype) == (domain, bool)
        np.testing.assert_array_equal(file["mask"], exists)
        assert "mask" not in square
        assert {"domain", "margin"}.isdisjoint(square.attrs)
        np.testing.assert_array_equal(file["nu"], square["nu"][...] * exists)
        u = solve_steady(square["nu"][2].astype(float), 1.0, exists)
        np.testing.assert_allclose(file["tensor"][2, 0], u, rtol=1e-4)
        assert file["tensor"][...][..., exists].min() > 0


def test_pdebench_reads_a_domain(tmp_path):
    utils = pytest.importorskip("pdebench.models.fno.utils")
    name = darcy.default_name(1.0, "l-shape")
    darcy.generate(tmp_path / name, 10, 16, progress=False, domain="l-shape")
    data = utils.FNODatasetSingle(name, saved_folder=f"{tmp_path}/", initial_step=1)
    assert len(data) == 9
    assert not data[0][1][8:, 8:].any()


def test_darcys_first_sample(tmp_path):
    for name, first, count in (("all", 0, 206), ("some", 197, 5)):
        darcy.generate(tmp_path / name, count, 4, first=first, progress=False)
    with h5py.File(tmp_path / "all") as whole, h5py.File(tmp_path / "some") as part:
        for name in ("nu", "tensor"):
            np.testing.assert_array_equal(whole[name][197:202], part[name])


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ({"domain": "disc"}, "domain: expected one of square, l-shape, holes, got 'disc'"),
        ({"domain": "l-shape"}, "at least 16 for the domain l-shape, got 12"),
        ({"margin": -0.1}, "margin: expected at least 0 and finite, got -0.1"),
        ({"margin": float("nan")}, "margin: expected at least 0 and finite, got nan"),
        ({"first": -1}, "first: expected at least 0, got -1"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else None,
)
def test_bad_darcy_arguments(tmp_path, argument, message):
    with pytest.raises(ValueError, match=message):
        darcy.generate(tmp_path / "a.hdf5", 2, 12, progress=False, **argument)
    assert list(tmp_path.iterdir()) == []


def test_poisson_files(tmp_path):
    paths = poisson.generate(tmp_path, 3, 2, 16, progress=False, domain="l-shape")
    assert [path.name for path in paths] == [
        "PoissonData_16x16_l-shape_IN.h5",
        "PoissonData_16x16_l-shape_OUT.h5",
    ]
    exists = domain_mask("l-shape", nodes(16))
    for path in paths:
        with h5py.File(path) as file:
            np.testing.assert_array_equal(file["mask"], exists)
    normalization = poisson.read_normalization(tmp_path, 16, "l-shape")
    f, u = poisson.read(tmp_path, "train", 3, 16, "l-shape")
    np.testing.assert_allclose(f[:, ~exists], normalization.input(np.zeros(1))[0], rtol=1e-6)
    assert u.max() == pytest.approx(1, abs=1e-6)
    with pytest.raises(ValueError, match=r"IN\.h5: expected data of the domain holes, got l-shape"):
        poisson.read_samples(paths[0], range(1), normalization, "holes")
    with pytest.raises(ValueError, match="expected data of the domain square, got l-shape"):
        poisson.read_samples(paths[0], range(1), normalization)
    with h5py.File(paths[1], "r+") as file:
        file["mask"][0, 0] = False
    with pytest.raises(ValueError, match="expected the mask of the domain l-shape with 192 of"):
        poisson.read(tmp_path, "out_of_distribution", 1, 16, "l-shape")


def test_poissons_single_samples(tmp_path):
    poisson.generate(tmp_path, 7, 4, 16, progress=False)
    whole = poisson.read_normalization(tmp_path, 16)
    for kind in ("IN", "OUT"):
        poisson.generate_samples(tmp_path / "some", kind, range(2, 4), 16, progress=False)
        found = poisson.read_samples(tmp_path / "some", range(2, 4), whole)
        expected = poisson.read_samples(tmp_path / poisson.file_name(kind, 16), range(2, 4), whole)
        for few, all_of in zip(found, expected, strict=True):
            np.testing.assert_array_equal(few, all_of)
        (tmp_path / "some").unlink()
    with pytest.raises(ValueError, match="kind: expected one of IN, OUT, got 'TEST'"):
        poisson.generate_samples(tmp_path / "some", "TEST", range(1), 16)
    with pytest.raises(ValueError, match="number of samples: expected at least 1, got 0"):
        poisson.generate_samples(tmp_path / "some", "IN", range(0), 16)


def test_data_of_the_square_are_what_they_were(tmp_path):
    """Numbers from before there were other domains."""
    darcy.generate(tmp_path / "darcy", 8, 24, progress=False)
    with h5py.File(tmp_path / "darcy") as file:
        assert file["nu"][...].sum(dtype=float) == pytest.approx(2759.4)
        expected = [0.24993484, 0.50273114, 0.11292017, 0.15864067]
        np.testing.assert_allclose(file["tensor"][:4, 0, 11, 7], expected, rtol=1e-6)
    a = np.random.default_rng(0).uniform(-1, 1, (5, 5))
    f, u = poisson.fields(a, 32)
    np.testing.assert_allclose(f[7, [3, 20]], [0.42368819348924347, -1.020146558480479], rtol=1e-12)
    expected = [0.0015441953119040767, 0.0031449804815407126]
    np.testing.assert_allclose(u[7, [3, 20]], expected, rtol=1e-12)


def test_commands(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    command = ["data", "generate", "darcy", "--n-samples", "2", "--resolution", "16"]
    command += ["--workers", "1"]
    assert cli.main([*command, "--domain", "holes"]) == 0
    assert "wrote 2D_DarcyFlow_beta1.0_Train_holes.hdf5" in capsys.readouterr().out
    assert cli.main([*command, "--margin", "0.125", "--output", "a.hdf5"]) == 0
    with h5py.File("a.hdf5") as file:
        assert file.attrs["margin"] == 0.125
        nu = file["nu"][0].astype(float)
        np.testing.assert_allclose(file["tensor"][0, 0], solve_steady(nu, 1.0, margin=0.125), 1e-4)
    command = ["data", "generate", "poisson", "--n-in", "2", "--n-out", "1", "--resolution", "16"]
    assert cli.main([*command, "--domain", "l-shape"]) == 0
    assert "wrote PoissonData_16x16_l-shape_OUT.h5" in capsys.readouterr().out
    assert cli.main([*command, "--resolution", "8", "--domain", "holes"]) == 1
    assert "expected at least 16 for the domain holes, got 8" in capsys.readouterr().err
    for wrong, message in (
        (["darcy", "--domain", "disc"], "domain: expected one of square, l-shape, holes"),
        (["darcy", "--margin", "-1"], "margin: expected at least 0 and finite, got -1"),
    ):
        assert cli.main(["data", "generate", *wrong]) == 1
        assert message in capsys.readouterr().err
