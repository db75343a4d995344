"""The models in The Well's benchmark: by ``_target_``, in its trainer, to and from hub folders."""

import re
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch

pytest.importorskip("the_well.benchmark.models")

import wandb
from hydra.utils import instantiate
from omegaconf import OmegaConf
from the_well.benchmark.metrics import MSE
from the_well.benchmark.models.common import BaseModel
from the_well.benchmark.trainer import Trainer
from the_well.data import WellDataModule
from the_well.utils.dummy_data import write_dummy_data

from chonn_ops import Dirichlet
from chonn_plugins import the_well

SMALL = {
    "CHONNNetwork": {"width": 6, "inner": {"condition": "Dirichlet", "value": 1.0}},
    "CHONNFNO": {"width": 4, "ckb": {"cell": "scan"}},
    "CHONNUNet": {"init_features": 2, "ckb": {"cell": "scan", "d_state": 1}},
}


def create(name, dim_in, dim_out, grid, **options):
    """A model as The Well's train.py creates it."""
    config = OmegaConf.create({"_target_": f"chonn_plugins.the_well.{name}", **options})
    shape = {"n_spatial_dims": len(grid), "spatial_resolution": grid}
    return instantiate(config, dim_in=dim_in, dim_out=dim_out, **shape)


@pytest.mark.parametrize("axes", [1, 2, 3])
@pytest.mark.parametrize("name", SMALL)
def test_models_to_and_from_a_hub_folder(name, axes, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    grid = (32, 32, 16)[:axes]
    model = create(name, 3, 2, grid, **SMALL[name]).eval()
    assert isinstance(model, BaseModel)
    assert (model.n_spatial_dims, model.spatial_resolution) == (axes, grid)
    x = torch.randn(1, 3, *grid)
    y = model(x)
    assert y.shape == (1, 2, *grid)
    model.save_pretrained(tmp_path)
    loaded = getattr(the_well, name).from_pretrained(tmp_path)
    torch.testing.assert_close(loaded(x), y, rtol=0, atol=0)


@pytest.mark.parametrize(
    ("name", "numbers"),
    [
        ("CHONNNetwork", {"nodes": torch.full((2,), 0.5), "lengths": np.array([1.0, 2.0])}),
        ("CHONNNetwork", {"width": np.int64(6), "boundary": Dirichlet(np.float64(1.0))}),
        ("CHONNFNO", {"modes1": np.int64(4), "padding": torch.tensor(3)}),
    ],
)
def test_numbers_of_tensors_and_numpy_are_saved(name, numbers, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    sizes = np.int64(1), torch.tensor(2), np.int64(2), torch.tensor([32, 32])
    model = getattr(the_well, name)(*sizes, **{**SMALL[name], **numbers}).eval()
    assert model.spatial_resolution == (32, 32)
    model.save_pretrained(tmp_path)
    loaded = getattr(the_well, name).from_pretrained(tmp_path)
    x = torch.rand(1, 1, 32, 32)
    torch.testing.assert_close(loaded(x), model(x), rtol=0, atol=0)
    with pytest.raises(ValueError, match="dtype: expected numbers, words"):
        getattr(the_well, name)(1, 2, 2, (32, 32), dtype=torch.float64)


def test_published_weights(tmp_path, monkeypatch):
    """By the snippet of docs/hosts.md, and as The Well's train.py builds the model."""
    pytest.importorskip("safetensors")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.chdir(tmp_path)
    page = (Path(__file__).parents[2] / "docs" / "hosts.md").read_text()
    [code] = re.findall(r"```\n([^`]*save_pretrained[^`]*)```", page)
    names = {}
    exec(code, names)
    model = create(
        "CHONNNetwork.from_pretrained", 1, 1, (64, 64), pretrained_model_name_or_path="FOLDER"
    )
    x = torch.rand(1, 1, 48, 48) + 0.1
    torch.testing.assert_close(model(x), names["trained"](x), rtol=0, atol=0)


def write_waves(path, seed):
    """Decaying waves on a periodic square, as a file that The Well's own writer lays out."""
    write_dummy_data(str(path))
    with h5py.File(path, "r+") as file:
        field = file["t1_fields/field"]
        samples, steps, *grid, channels = field.shape
        x, y = np.meshgrid(*(np.arange(n) / n for n in grid), indexing="ij")
        phases = np.random.default_rng(seed).uniform(0, 2 * np.pi, (samples, 1, 1, 1, channels))
        decay = 0.95 ** np.arange(steps)
        waves = np.sin(2 * np.pi * (x + y)[..., None] + phases)
        field[...] = decay[:, None, None, None] * waves


def test_an_epoch_of_the_trainer(tmp_path):
    for seed, split in enumerate(("train", "train", "train", "valid", "test")):
        folder = tmp_path / "dummy" / "data" / split
        folder.mkdir(parents=True, exist_ok=True)
        write_waves(folder / f"generated_{seed}.hdf5", seed)
    data = WellDataModule(str(tmp_path), "dummy", 2, n_steps_input=2, data_workers=0, rank=0)
    torch.manual_seed(0)
    options = {"width": 8, "boundary": "periodic", "nodes": "left"}
    # Two fields at two times and a constant field.
    model = create("CHONNNetwork", 5, 2, (32, 32), **options)
    folders = {f"{name}_folder": str(tmp_path) for name in ("checkpoint", "artifact", "viz")}
    trainer = Trainer(
        **folders,
        formatter="channels_first_default",
        model=model,
        datamodule=data,
        optimizer=torch.optim.AdamW(model.parameters(), lr=1e-2),
        loss_fn=MSE(),
        epochs=1,
        checkpoint_frequency=1,
        val_frequency=1,
        rollout_val_frequency=1,
        max_rollout_steps=3,
        short_validation_length=2,
        make_rollout_videos=False,
        num_time_intervals=2,
        device=torch.device("cpu"),
    )
    wandb.init(mode="disabled")
    before, _ = trainer.validation_loop(data.val_dataloader(), full=True)
    trainer.train()
    after, _ = trainer.validation_loop(data.val_dataloader(), full=True)
    assert after < 0.5 * before
    again = create("CHONNNetwork", 5, 2, (32, 32), **options).eval()
    saved = torch.load(tmp_path / "recent.pt", weights_only=True)
    again.load_state_dict(saved["model_state_dict"])
    x = torch.randn(1, 5, 32, 32)
    torch.testing.assert_close(again(x), model(x), rtol=0, atol=0)
