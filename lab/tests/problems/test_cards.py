"""Fields of the problems are those that their cards state and solve their equations."""

import h5py
import numpy as np
import pytest
import scipy.io
import torch
from scipy import special
from scipy.spatial import KDTree

from chonn_lab.problems import (
    fno_darcy,
    helmholtz,
    meshes,
    order1d,
    poisson,
    unknown_law,
    upscaling,
)
from chonn_lab.problems.darcy_solver import solve_steady
from chonn_lab.problems.generation import stream
from chonn_lab.problems.random_fields import cosine_series
from chonn_ops import FiniteVolumes


@pytest.mark.parametrize("mode", [0, 1, 7, 63])
def test_single_mode_closed_form(mode):
    s = np.arange(256) / 256
    x = np.cos(2 * np.pi * mode * s + 0.3)
    for order, y in enumerate(order1d.targets(x), start=1):
        # -d_ss cos(ks) = k^2 cos(ks) with the angular k.
        expected = x / (1 + 0.08**2 * (2 * np.pi * mode) ** 2) ** order
        np.testing.assert_allclose(y, expected, atol=1e-14)


def test_input_statistics():
    x = order1d.draw_signals(3000, seed=0)
    power = (np.abs(np.fft.rfft(x) / 256) ** 2).mean(0) * 2
    # Pulses add to both bands, their power falling off with the wavenumber.
    assert power[1:5].sum() == pytest.approx(1, rel=0.25)
    assert power[5:65].sum() == pytest.approx(0.25, rel=0.4)
    assert power[60:65].sum() == pytest.approx(5 / 240, rel=0.1)
    assert power[80:].sum() < 1e-3
    excess = x - x.mean(1, keepdims=True)
    assert ((excess**4).mean() / (excess**2).mean() ** 2) > 3


def test_the_file_has_these_signals_and_targets(tmp_path):
    path = order1d.generate(tmp_path / "data", 5, 3, 2)
    for seed, split in enumerate(order1d.SIZES, start=42):
        x, _ = order1d.read(path, split, 1)
        np.testing.assert_array_equal(x, order1d.draw_signals(len(x), seed).astype("f4"))
        for order in order1d.ORDERS:
            _, y = order1d.read(path, split, order)
            np.testing.assert_allclose(y, order1d.targets(x)[:, order - 1], atol=1e-6)
    for wrong in (("val", 1), ("train", 0)):
        with pytest.raises(ValueError, match="expected one of"):
            order1d.read(path, *wrong)


def test_reader_takes_every_so_many_nodes_of_both_versions(tmp_path):
    train, _ = fno_darcy.generate(tmp_path, 5, 1, 9, progress=False)
    a, u = fno_darcy.read(train, 9)
    media = []
    for i in range(5):
        noise = stream(0, 0, i).standard_normal((421, 421))
        media.append(np.where(cosine_series(noise, np.linspace(0, 1, 9)) >= 0, 12.0, 3.0))
    np.testing.assert_array_equal(a, np.array(media, "f4"))
    exact = [fno_darcy.solve(medium) for medium in media]
    np.testing.assert_allclose(u, exact, rtol=1e-6)
    scipy.io.savemat(tmp_path / "5.mat", {"coeff": a.double().numpy(), "sol": u.double().numpy()})
    for path in (train, tmp_path / "5.mat"):
        for found, whole in zip(fno_darcy.read(path, 5, 2, 4), (a, u), strict=True):
            assert torch.equal(found, whole[2:4, ::2, ::2])
    for resolution in (1, 4, 17):
        message = f"expected a resolution of 1 . a divisor of 8, got {resolution}"
        with pytest.raises(ValueError, match=message):
            fno_darcy.read(train, resolution)


@pytest.mark.parametrize("k", [3, poisson.K_IN])
def test_converges_to_a_sparse_direct_solve(k):
    a = np.random.default_rng(0).uniform(-1, 1, (k, k))
    errors = []
    for n in (65, 129, 257):
        f, u = poisson.fields(a, n)
        errors.append(np.linalg.norm(fno_darcy.solve(np.ones((n, n)), f) - u) / np.linalg.norm(u))
    assert errors[-1] < 2e-3
    np.testing.assert_allclose(np.log2(np.divide(errors[:-1], errors[1:])), 2, atol=0.05)


def test_series_as_written_in_the_paper():
    k, n = 4, 9
    a = np.random.default_rng(1).uniform(-1, 1, (k, k))
    x, expected = np.arange(n) / (n - 1), np.zeros((n, n))
    for i, j in np.ndindex(k, k):
        size = np.pi / k**2 * a[i, j] * ((i + 1) ** 2 + (j + 1) ** 2) ** 0.5
        expected += size * np.outer(np.sin(np.pi * (i + 1) * x), np.sin(np.pi * (j + 1) * x))
    f, u = poisson.fields(a, n)
    np.testing.assert_allclose(f, expected, atol=1e-12)
    for field in (f, u):
        assert not field[[0, -1]].any()
        assert not field[:, [0, -1]].any()


def test_normalised_with_the_training_ranges(tmp_path):
    inside, _ = poisson.generate(tmp_path, 1160, 3, progress=False)
    with h5py.File(inside) as file:
        names = "input", "output"
        both = [np.stack([file[f"Sample_{i}/{x}"][...] for i in range(1160)]) for x in names]
    expected = [(x - x[:1024].min()) / np.ptp(x[:1024]) for x in both]
    for split, first in (("train", 0), ("validation", 1024), ("test", 1152)):
        for found, field in zip(poisson.read(tmp_path, split, 8), expected, strict=True):
            np.testing.assert_allclose(found, field[first : first + 8], atol=1e-6)
    with pytest.raises(ValueError, match="split: expected one of"):
        poisson.read(tmp_path, "val")
    with pytest.raises(ValueError, match="n_samples: expected 1 to 256 for test, got 257"):
        poisson.read(tmp_path, "test", 257)


def test_some_samples_on_finer_grids(tmp_path):
    coarse = poisson.generate(tmp_path, 7, 4, 16, seed=3, progress=False)
    for kind, whole in zip(poisson.KINDS, coarse, strict=True):
        path = tmp_path / f"some_{kind}"
        poisson.generate_samples(path, kind, range(2, 4), 31, seed=3, progress=False)
        with h5py.File(path) as few, h5py.File(whole) as file:
            assert sorted(few) == ["Sample_2", "Sample_3"]
            for name in ("input", "output"):
                found, expected = few[f"Sample_3/{name}"][::2, ::2], file[f"Sample_3/{name}"][...]
                np.testing.assert_allclose(found, expected, atol=1e-5)


def test_a_point_source_in_free_space():
    """i / 4 H_0(k r), convolved with the source, which takes the factor exp(-(k w)^2 / 2)."""
    n, wave, width = 96, 14.0, helmholtz.SOURCE_WIDTH
    cells = (np.arange(n) + 0.5) / n
    x, y = np.meshgrid(cells, cells, indexing="ij")
    r = np.hypot(x - 0.5, y - 0.4)
    f = np.exp(-(r**2) / (2 * width**2)) / (2 * np.pi * width**2)
    u = helmholtz.solve(np.full((n, n), wave), f)
    exact = 0.25j * special.hankel1(0, wave * r) * np.exp(-((wave * width) ** 2) / 2)
    far = r > 6 * width
    assert np.abs(u - exact)[far].sum() < 0.03 * np.abs(exact)[far].sum()


def test_media_have_the_cards_law(tmp_path):
    inputs, u = helmholtz.read(helmholtz.generate(tmp_path / "a", 2, 48))
    k, f = inputs.astype(float).swapaxes(0, 1)
    assert 20 / 1.5 * 0.999 <= k.min() < k.max() <= 20 * 1.5 * 1.001
    np.testing.assert_allclose(f.mean((1, 2)), 1, rtol=1e-2)
    for medium, source, wave in zip(k, f, u, strict=True):
        exact = helmholtz.solve(medium, source)
        np.testing.assert_allclose(wave, [np.real(exact), np.imag(exact)], atol=1e-5)


def test_the_equation_in_one_medium():
    """Means at faces are those of `chonn_ops.diffusion`; spacing, source and walls are checked."""
    expected = solve_steady(np.ones((24, 24)), 1.0, margin=0.0)
    np.testing.assert_allclose(upscaling.solve(np.ones((1, 24, 24)))[0], expected, rtol=1e-9)


@pytest.mark.parametrize("kind", upscaling.KINDS)
def test_media_are_those_of_the_card(kind):
    k = upscaling.medium(np.random.default_rng(0), kind, 256).astype(float)
    assert np.log(k).mean() == pytest.approx(0, abs=1e-6)
    if kind == "log-normal":
        assert np.log(k).std() == pytest.approx(2, rel=0.2)
    else:
        assert len(np.unique(k)) == 2
        assert k.max() / k.min() == pytest.approx(1000, rel=1e-5)
        assert {"two-phase": 0.4, "channels": 0.05}[kind] < (k > 1).mean() < 0.6
    # The same field on a coarser grid, but for the cells that it cuts.
    coarse = upscaling.medium(np.random.default_rng(0), kind, 128).astype(float)
    near = np.log(k.reshape(128, 2, 128, 2)).mean((1, 3))
    assert np.corrcoef(near.ravel(), np.log(coarse).ravel())[0, 1] > 0.8


def test_pressures_are_means_over_blocks_and_splits_differ(tmp_path):
    sizes = dict.fromkeys(("n_train", "n_validation", "n_test"), 3)
    path = upscaling.generate(tmp_path / "data.h5", resolution=32, **sizes)
    splits = [upscaling.read(path, split) for split in upscaling.SPLITS]
    assert len({u.mean() for samples in splits for u in samples.u}) == 9
    for samples in splits:
        np.testing.assert_array_equal(samples.kind, [0, 1, 2])
        fine = upscaling.solve(samples.k).reshape(3, 8, 4, 8, 4).mean((2, 4))
        np.testing.assert_allclose(samples.u, fine, rtol=1e-12)


def test_fields_of_the_unknown_law(tmp_path):
    sizes = {"resolution": 24, "n_train": 16, "n_validation": 2, "n_test": 4}
    path = unknown_law.generate(tmp_path / "unknown_law.h5", **sizes)
    samples = unknown_law.read(path, "train")
    assert 0.05 <= samples.porosity.min() < 0.1 < 0.35 < samples.porosity.max() <= 0.4
    noise = np.log(samples.k / unknown_law.law(samples.porosity))
    assert noise.std() == pytest.approx(0.2, rel=0.05)
    assert noise.mean() == pytest.approx(0, abs=0.01)
    # Neighbours' noise is independent.
    assert abs(np.corrcoef(noise[:, 1:].ravel(), noise[:, :-1].ravel())[0, 1]) < 0.05
    np.testing.assert_allclose(samples.u, upscaling.solve(samples.k), rtol=1e-12)


def test_the_law_is_kozenys_of_throats():
    p = np.full((1, 4, 4), 0.3)
    np.testing.assert_allclose(unknown_law.law(p), 0.3**3 / 0.7**2 / 0.0125)
    p[0, 1, 2] = 0.1
    found = unknown_law.law(p)[0] < unknown_law.law(np.full((1, 4, 4), 0.3))[0] * (1 - 1e-9)
    expected = [[0, 0, 1, 0], [0, 1, 1, 1], [0, 0, 1, 0], [0, 0, 0, 0]]
    np.testing.assert_array_equal(found, expected)


def test_heat_leaves_a_slab_of_two_layers_through_its_film():
    """k = 1 up to x = 1/2 and 4 beyond, f = 0 but at x = 1, a film of 5 at x = 0: exact."""
    box = meshes.lattice((8, 3, 3), lambda centre: centre[:, 0] > 0, 8)
    facets, x = box.wall, box.points[:, 0]
    shape = box._replace(wall=facets[(x[facets] == 0).all(1)])
    corner = shape.points[shape.cells]
    k = np.where(corner[..., 0].mean(1) < 0.5, 1.0, 4.0)
    # A current of 1 per area enters at x = 1.
    end = facets[(x[facets] == 1).all(1)]
    share = np.repeat(meshes.sizes(shape.points[end]) / 3, 3)
    current = np.bincount(end.ravel(), share, len(x))
    volume = np.bincount(shape.cells.ravel(), np.repeat(meshes.sizes(corner) / 4, 4))
    found = meshes.solve(shape, k, current / volume, transfer=5.0)
    exact = 1 / 5 + np.minimum(x, 0.5) + np.maximum(x - 0.5, 0) / 4
    np.testing.assert_allclose(found, exact, rtol=1e-10)


@pytest.mark.parametrize("problem", meshes.PROBLEMS)
def test_samples_of_disjoint_seeds_and_finer_meshes_of_the_same_domains(tmp_path, problem):
    sizes = {"n_train": 8, "n_validation": 1, "n_test": 2}
    path = meshes.generate(tmp_path / "data.h5", problem, resolution=12, **sizes)
    splits = {split: meshes.read(path, split) for split in meshes.SPLITS}
    u = [tuple(u.round(12)) for split in meshes.SPLITS[:3] for s in splits[split] for u in s.u]
    assert len(set(u)) == len(u)
    for coarse, fine in zip(splits["test"], splits["test_fine"], strict=False):
        assert len(fine.shape.points) > 3 * len(coarse.shape.points)
        centres, finer = (s.shape.points[s.shape.cells].mean(1) for s in (coarse, fine))
        np.testing.assert_allclose(np.ptp(centres, 0), np.ptp(finer, 0), rtol=0.1)
        nearest = KDTree(centres).query(finer)[1]
        assert (coarse.k[0][nearest] == fine.k[0]).mean() > 0.8
    for samples in splits["train"]:
        assert (samples.u > -1e-12).all()
        FiniteVolumes.from_cells(samples.shape.points, samples.shape.cells)
