"""FNO's Darcy flow: the card's coefficients, reader of every so many nodes."""

import numpy as np
import pytest
import scipy.io
import torch

from chonn_lab.problems import fno_darcy
from chonn_lab.problems.generation import stream
from chonn_lab.problems.random_fields import cosine_series


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
