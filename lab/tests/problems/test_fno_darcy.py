"""FNO's Darcy flow: law of the coefficient, reader of every so many nodes."""

import numpy as np
import pytest
import scipy.io
import torch

from chonn_lab.problems import fno_darcy


def test_coefficient_has_the_papers_law():
    """Both values alike likely, and neighbours alike as the covariance has it."""
    drawn = np.array([fno_darcy.draw(0, "train", i, 5) for i in range(60)])
    assert 0.4 < drawn.mean() < 0.6
    k = np.arange(64)
    variance = (np.pi**2 * (k[:, None] ** 2 + k**2) + 9) ** -2.0
    variance[0, 0] = 0
    weight = np.where(k[:, None], 2, 1) * np.where(k, 2, 1)
    here, there = (np.cos(np.pi * k * x) for x in (0.5, 0.75))

    def covariance(p, q):
        return (variance * weight * np.outer(p * q, here**2)).sum()

    correlation = covariance(here, there) / np.sqrt(
        covariance(here, here) * covariance(there, there)
    )
    # Signs of two jointly normal numbers differ with the probability acos(correlation) / pi.
    expected = np.arccos(correlation) / np.pi
    both = np.concatenate([drawn[:, 2, 2] != drawn[:, 3, 2], drawn[:, 2, 2] != drawn[:, 2, 3]])
    assert both.mean() == pytest.approx(expected, abs=0.12)


def test_reader_takes_every_so_many_nodes_of_both_versions(tmp_path):
    train, _ = fno_darcy.generate(tmp_path, 5, 1, 9, progress=False)
    a, u = fno_darcy.read(train, 9)
    media = [np.where(fno_darcy.draw(0, "train", i, 9), 12.0, 3.0) for i in range(5)]
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
