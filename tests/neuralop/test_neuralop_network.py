"""The network model under neuraloperator's names, and mixers of networks in its FNO."""

import numpy as np
import pytest
import torch
from neuralop import LpLoss, Trainer
from neuralop.layers.spectral_convolution import SpectralConv
from neuralop.models import get_model
from neuralop.models.base_model import available_models
from torch.utils.data import DataLoader
from zencfg.bunch import Bunch

import chonn_plugins.neuralop.network
from chonn_ops import CKB, CHONNNetwork2d, CKBOptions, Dirichlet, Network
from chonn_plugins.neuralop import CHONNNetwork
from chonn_plugins.neuralop.fixed_grid import FixedGridCKB

chonn_plugins.neuralop.network.install()
SMALL = {"width": 6, "depth": 1}


def config(**more):
    model = {"model_arch": "chonn_network", "data_channels": 1, "out_channels": 2, **SMALL, **more}
    return Bunch({"model": Bunch(model), "patching": Bunch({"levels": 0})})


@pytest.mark.parametrize("n_dim", [1, 2, 3])
def test_get_model(n_dim):
    assert "chonn_network" in available_models()
    model = get_model(config(n_dim=n_dim))
    assert type(model) is CHONNNetwork
    grid = (6, 10, 4)[:n_dim]
    assert model(torch.randn(2, 1, *grid)).shape == (2, 2, *grid)


def test_it_is_our_model():
    model = get_model(config())
    ours = CHONNNetwork2d(1, 2, 6, 1, nodes="left")
    ours.load_state_dict(model.model.state_dict())
    x, mask = torch.randn(2, 1, 8, 8), torch.ones(8, 8, dtype=torch.bool)
    mask[:4, :4] = False
    torch.testing.assert_close(model(x, y=x, spacing=(0.2, 0.1)), ours(x, spacing=(0.2, 0.1)))
    torch.testing.assert_close(model(x, mask=mask), ours(x, mask=mask))
    y = torch.randn(2, 2, 8, 8)
    assert torch.equal(model.calibrate(x, y, mask=mask), ours.calibrate(x, y, mask=mask))
    torch.testing.assert_close(model(x), ours(x))


def test_checkpoints(tmp_path):
    wall = {"condition": "Dirichlet", "value": 1.0, "distance": 0.0}
    saved = get_model(config(lengths=(1.0, 2.0), boundary=["periodic", wall]))
    saved.save_checkpoint(tmp_path, "model")
    loaded = CHONNNetwork.from_checkpoint(tmp_path, "model")
    x = torch.randn(1, 1, 8, 12)
    torch.testing.assert_close(loaded(x), saved(x), rtol=0, atol=0)
    assert loaded._init_kwargs == saved._init_kwargs
    known = {"width": 6, "lengths": [1.0, 2.0], "boundary": ["periodic", wall], "nodes": "left"}
    assert known.items() <= saved._init_kwargs.items()


@pytest.mark.parametrize(
    "numbers",
    [
        {"nodes": np.full(2, 0.5, np.float32), "width": np.int64(6)},
        {"lengths": torch.tensor([1.0, 2.0]), "boundary": Dirichlet(torch.ones(()))},
    ],
)
def test_numbers_of_tensors_and_numpy_are_saved(tmp_path, numbers):
    """`Trainer` resumes by ``torch.load``, which refuses NumPy's numbers."""
    saved = CHONNNetwork(np.int64(1), out_channels=np.int64(2), **{**SMALL, **numbers})
    saved.save_checkpoint(tmp_path, "model")
    loaded, x = CHONNNetwork.from_checkpoint(tmp_path, "model"), torch.randn(1, 1, 8, 12)
    torch.testing.assert_close(loaded(x), saved(x), rtol=0, atol=0)
    torch.load(tmp_path / "model_state_dict.pt", weights_only=True)


def loader_of(fields):
    return DataLoader([{"x": x, "y": x.cumsum(-1)} for x in fields], batch_size=3)


def train(model, epochs, loader, test_loaders, rate=5e-3, **settings):
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate)
    loss = LpLoss(d=2, p=2)
    return Trainer(model=model, n_epochs=epochs, device="cpu", verbose=False).train(
        train_loader=loader,
        test_loaders=test_loaders,
        optimizer=optimizer,
        scheduler=torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5),
        training_loss=loss,
        eval_losses={"l2": loss},
        **settings,
    )


@pytest.mark.parametrize("mode", [None, "replace", "alongside", "lift"])
def test_trainer(fno, tmp_path, mode):
    """It trains our model, and FNOs with our mixer."""
    fields = torch.randn(6, 1, 8, 8)
    loader, finer = loader_of(fields), loader_of(torch.randn(3, 1, 12, 12))
    model = (
        fno(in_channels=1, spectral_mixer_mode=mode) if mode else get_model(config(out_channels=1))
    )
    before = {name: value.clone() for name, value in model.named_parameters()}
    metrics = train(model, 1, loader, {8: loader, 12: finer}, save_every=1, save_dir=tmp_path)
    assert all(0 < float(metrics[f"{n}_l2"]) < 10 for n in (8, 12))
    still = [name for name, value in model.named_parameters() if torch.equal(before[name], value)]
    assert still == []
    again = type(model).from_checkpoint(tmp_path, "model")
    torch.testing.assert_close(again(fields), model(fields), rtol=0, atol=0)


def test_the_trainer_takes_published_weights(tmp_path):
    """The model itself, which ignores targets as all of neuraloperator's do, and in this host's."""
    pytest.importorskip("safetensors")
    x = torch.rand(6, 1, 16, 16) + 0.1
    published = CHONNNetwork2d.from_pretrained("darcy-small")
    target = 1.1 * published(x).detach()
    loader = DataLoader([{"x": a, "y": b} for a, b in zip(x, target, strict=True)], batch_size=3)
    hosted = CHONNNetwork(1, 1, nodes="centres")
    hosted.model.load_state_dict(published.state_dict())
    torch.testing.assert_close(hosted(x), published(x), rtol=0, atol=0)
    for model, saving in ((published, {}), (hosted, {"save_every": 1, "save_dir": tmp_path})):
        before = (model(x) - target).norm() / target.norm()
        metrics = train(model, 3, loader, {16: loader}, rate=3e-4, **saving)
        assert metrics["16_l2"] < before < 0.1
    torch.testing.assert_close(hosted(x), published(x), rtol=0, atol=0)


@pytest.mark.parametrize("cell", [None, "network", "scan"])
def test_a_resumed_training_ends_where_an_uninterrupted_one_does(tmp_path, fno, cell):
    """Checkpoints of FNO, with and without a mixer, need `safe_globals` from torch 2.6 on."""
    loader = loader_of(torch.randn(6, 1, 8, 8))

    def build():
        torch.manual_seed(0)
        if cell is None:
            return get_model(config(out_channels=1))
        return fno(in_channels=1, spectral_mixer_kwargs={"cell": cell})

    whole, resumed = build(), build()
    train(whole, 3, loader, {})
    train(build(), 1, loader, {}, save_every=1, save_dir=tmp_path)
    allowed = [torch.nn.functional.gelu, SpectralConv] if cell else []
    with torch.serialization.safe_globals(allowed):
        # neuraloperator counts from the saved epoch: one is done, and two more come.
        train(resumed, 2, loader, {}, resume_from_dir=tmp_path)
    for name, value in resumed.named_parameters():
        torch.testing.assert_close(value, whole.get_parameter(name))


def blocks(model):
    return [module for module in model.modules() if isinstance(module, CKB)]


def test_defaults_are_those_of_the_cell(fno):
    (scan,) = blocks(fno(spectral_mixer_kwargs={"cell": "scan"}).fno_blocks)
    assert scan.options == CKBOptions("scan")
    (network,) = blocks(fno().lifting)
    assert network.options == CKBOptions(Network(nodes="left"))
    # Networks know the spacing of a grid, so they run on the grid that they are asked on.
    assert not any(isinstance(module, FixedGridCKB) for module in fno().modules())
    message = "d_state: expected options of a block with cell='network'"
    with pytest.raises(ValueError, match=message):
        fno(spectral_mixer_kwargs={"d_state": 4})


def test_a_mixer_of_scans_keeps_its_names(fno):
    """Checkpoints of before networks load: no parameter came, went or changed its name."""
    scan = {"spectral_mixer_kwargs": {"cell": "scan", "order": 1}}
    names = [n for n in fno(**scan).state_dict() if "fno_skips.0" in n]
    inside = "fno_blocks.fno_skips.0."
    cell = ("decay_param", "skip_param", "selective_proj.weight", "dt_proj.weight", "dt_proj.bias")
    assert {name.removeprefix(inside) for name in names} == {
        "_extra_state",
        *(f"ckb.{n}" for n in ("norm.weight", "norm.bias", "in_proj.weight")),
        *(f"ckb.{m}.{n}" for m in ("depthwise", "pointwise") for n in ("weight", "bias")),
        *(f"ckb.cells.0.{n}" for n in cell),
    }
