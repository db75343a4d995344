"""The unknown law: fields, the law itself, and the law that is fitted instead of it."""

import numpy as np
import pytest

from chonn_lab.problems import unknown_law, upscaling


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    path = tmp_path_factory.mktemp("data") / "unknown_law.h5"
    return unknown_law.generate(path, resolution=24, n_train=16, n_validation=2, n_test=4)


def test_fields_are_those_of_the_card(path):
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
