"""The models in PhysicsNeMo: by name, through .mdlus, and trained with the parts of its example
examples/cfd/darcy_fno."""

import itertools

import pytest
import torch

pytest.importorskip("physicsnemo.core")

from omegaconf import OmegaConf
from physicsnemo.core import ModelRegistry, Module
from physicsnemo.datapipes.benchmarks.darcy import Darcy2D
from physicsnemo.utils import (
    StaticCaptureEvaluateNoGrad,
    StaticCaptureTraining,
    load_checkpoint,
    save_checkpoint,
)
from physicsnemo.utils.logging import PythonLogger

SMALL = {
    "chonn_network": {"width": 6, "depth": 1, "ckb": {"num_networks": 3}},
    "chonn_fno": {"width": 4, "ckb": {"cell": "scan"}},
    "chonn_unet": {"init_features": 2, "ckb": {"cell": "scan", "d_state": 1}},
}


@pytest.mark.parametrize("dimension", [1, 2, 3])
@pytest.mark.parametrize("name", SMALL)
def test_models_by_name_and_from_files(name, dimension, tmp_path):
    """Also with options of Hydra's types, which JSON does not know."""
    options = OmegaConf.create(SMALL[name])
    model = ModelRegistry().factory(name)(3, 2, dimension, **options).eval()
    x = torch.randn(1, 3, *(32, 32, 16)[:dimension])
    y = model(x)
    assert y.shape == (1, 2, *x.shape[2:])
    model.save(tmp_path / "model.mdlus")
    loaded = Module.from_checkpoint(tmp_path / "model.mdlus").eval()
    assert type(loaded) is type(model)
    torch.testing.assert_close(loaded(x), y, rtol=0, atol=0)


def test_networks_take_a_mask():
    model = ModelRegistry().factory("chonn_network")(1, 2, **SMALL["chonn_network"])
    mask = torch.ones(8, 8, dtype=torch.bool)
    mask[:4, :4] = False
    y = model(torch.randn(2, 1, 8, 8), mask=mask)
    assert not y[:, :, ~mask].any()
    assert y[:, :, mask].all()


def test_an_epoch_of_the_darcy_example(tmp_path):
    """On fields that its datapipe generates here, with its steps, checkpoints and resuming."""
    torch.manual_seed(0)
    mean, std = 4.52e-2, 2.79e-2
    data = Darcy2D(
        resolution=16,
        batch_size=8,
        max_iterations=1000,
        iterations_per_convergence_check=200,
        nr_multigrids=1,
        normaliser={"permeability": (1.25, 0.75), "darcy": (mean, std)},
        device="cpu",
    )
    create = ModelRegistry().factory("chonn_network")
    model = create(1, 1, ckb={"nodes": "left"}, offset=-mean / std)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    logger = PythonLogger("darcy")

    @StaticCaptureTraining(
        model=model, optim=optimizer, logger=logger, use_amp=False, use_graphs=False
    )
    def train(x, y):
        return torch.nn.functional.mse_loss(model(x), y)

    @StaticCaptureEvaluateNoGrad(model=model, logger=logger, use_amp=False, use_graphs=False)
    def predict(x):
        return model(x)

    batches = itertools.islice(data, 24)
    losses = [train(batch["permeability"], batch["darcy"]).item() for batch in batches]
    assert sum(losses[-4:]) < 0.3 * sum(losses[:4]), losses

    save_checkpoint(str(tmp_path), models=model, optimizer=optimizer, epoch=1)
    again = create(1, 1, ckb={"nodes": "left"})
    assert load_checkpoint(str(tmp_path), models=again, device="cpu") == 1
    x = torch.rand(1, 1, 16, 16) + 0.5
    torch.testing.assert_close(again(x), predict(x), rtol=0, atol=0)
