"""Every problem with its models, from the data to a result file, at scale smoke."""

import numpy as np
import pytest
import torch

from chonn_lab.baselines.fields import count_parameters
from chonn_lab.experiments.checkpoints import read_model
from chonn_lab.experiments.configuration import compose
from chonn_lab.experiments.runner import run

# One of each kind that earlier problems do not have.
MODELS = {
    "order1d": ["ckb_order", "ckb_depth", "ckb_stack"],
    "darcy": [
        *("unet", "fno", "fno_neuralop", "uno", "ffno", "cno", "chonn_unet"),
        *("chonn_network", "own_scheme", "direct", "solve_cnn"),
    ],
    "poisson": ["unet", "chonn_network", "own_scheme", "direct", "solve_cnn"],
    "shallow_water": ["unet", "fno", "chonn_fno", "chonn_step"],
    "navier_stokes": ["fno", "chonn_fno", "chonn_step"],
    "fno_darcy": ["unet", "cno", "chonn_network", "direct"],
    "darcy_contrast": ["chonn_network", "direct"],
    "darcy_lognormal": ["chonn_network"],
    "darcy_loguniform": ["chonn_network"],
    "upscaling": ["chonn_network", "unet", "own_scheme", "learned_coefficients"],
    "meshes": ["chonn_network", "own_scheme", "node_scheme", "gino"],
    "unknown_law": ["chonn_network", "fno_neuralop", "own_scheme", "learned_coefficients"],
    "flux_law": ["flux_law", "chonn_network", "fno"],
    "rectangle": ["chonn_network", "fno_neuralop", "own_scheme"],
    "pdebench_series": ["unet", "fno_neuralop", "chonn_step", "own_scheme", "persistence"],
    "helmholtz": ["chonn_network_open", "fno_neuralop", "own_scheme"],
}


@pytest.mark.slow
@pytest.mark.parametrize("problem", MODELS)
def test_smoke_runs_write_their_scores(tmp_path, smoke_data, problem):
    package = {"shallow_water": "clawpack", "pdebench_series": "pdebench"}.get(problem, "torch")
    pytest.importorskip(package, reason="missing: make setup, make setup-pyclaw")
    # Evaluated on a finer grid, too.
    finer = ["problem.test_resolutions=[48]"] if problem == "darcy" else []
    places = [f"output={tmp_path}", f"data={smoke_data}", "device=cpu", "scale=smoke"]
    for model in MODELS[problem]:
        config = compose([f"problem={problem}", f"model={model}", *places, *finer])
        found = run(config, tmp_path / problem / "smoke" / f"{config.model.name}-seed0")
        assert found.diverged is None
        assert found.parameters > 0 or found.tags["role"] == "control"
        assert ("at_48" in found.metrics) == bool(finer)
        scores = [value for split in found.metrics.values() for value in split.values()]
        assert np.isfinite(scores).all()
        assert all(file["official"] is False for file in found.data.values())


@pytest.mark.slow
@pytest.mark.parametrize("model", ["mesh_transolver", "mesh_graph_net"])
def test_models_of_physicsnemo_are_trained_and_read_again(tmp_path, smoke_data, model):
    # Not "physicsnemo": the folder of the plugin's tests is an empty package of that name.
    missing = "PhysicsNeMo missing: pip install '.[physicsnemo]'"
    pytest.importorskip("physicsnemo.models", reason=missing)
    for package in ("torch_geometric", "torch_scatter") if model == "mesh_graph_net" else ():
        pytest.importorskip(package)
    places = [f"output={tmp_path}", f"data={smoke_data}", "device=cpu"]
    config = compose(["problem=meshes", f"model={model}", "scale=smoke", *places])
    found = run(config, tmp_path / "run")
    assert found.diverged is None
    path = tmp_path / "run" / "last.ckpt"
    read = read_model(path, torch.load(path, weights_only=True))
    assert read is not None
    assert count_parameters(read.model) == found.parameters
