"""Problems on meshes: scheme against exact solutions, seeds, meshes that networks take."""

import numpy as np
import pytest
from scipy.spatial import KDTree

from chonn_lab.problems import meshes
from chonn_ops import FiniteVolumes


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
