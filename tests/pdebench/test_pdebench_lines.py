"""PDEBench's runner trains on lines in the layout of its 1-D files."""

from __future__ import annotations

import h5py
import numpy as np
import pytest

pytestmark = pytest.mark.host


def test_runner_trains_on_lines(tmp_path, pdebench):
    x, t = (np.arange(32) + 0.5) / 32, np.linspace(0, 2, 5)
    phases = np.random.default_rng(0).uniform(0, 6, (20, 1, 1))
    for name, speed in (("advection", 0.5), ("waves", 0.1)):
        with h5py.File(tmp_path / f"{name}.hdf5", "w") as file:
            wave = np.sin(2 * np.pi * (x - speed * t[:, None]) + phases)
            file["tensor"] = wave.astype("f4")
            # One more time than there are frames, as in PDEBench's files.
            file["x-coordinate"], file["t-coordinate"] = x.astype("f4"), np.linspace(0, 2.5, 6)
    names = "advection.hdf5,waves.hdf5"
    printed = pdebench(
        tmp_path, "1d", "--multirun", model_name="FNO", filename=names, data_path=tmp_path
    )
    assert printed.count("epoch: 0, loss: ") == 2
    assert {path.stem for path in tmp_path.glob("*.pt")} == {"advection_FNO", "waves_FNO"}
