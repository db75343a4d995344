"""PDEBench's runner reads our files of its 1-D problems."""

from __future__ import annotations

import pytest

from chonn_lab.problems import advection, burgers

pytestmark = pytest.mark.host


def test_runner_trains_on_advection_and_burgers(tmp_path, pdebench):
    for problem in (advection, burgers):
        problem.generate(tmp_path / problem.file_name(), 20, 32, n_frames=5, progress=False)
    names = "1D_Advection_Sols_beta4.0.hdf5,1D_Burgers_Sols_Nu1.0.hdf5"
    printed = pdebench(
        tmp_path, "1d", "--multirun", model_name="FNO", filename=names, data_path=tmp_path
    )
    assert printed.count("epoch: 0, loss: ") == 2
    assert {path.stem for path in tmp_path.glob("*.pt")} == {
        "1D_Advection_Sols_beta4.0_FNO",
        "1D_Burgers_Sols_Nu1.0_FNO",
    }
