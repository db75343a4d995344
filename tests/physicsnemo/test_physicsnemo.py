"""The models in PhysicsNeMo: by name, through .mdlus, and trained with the parts of its example
examples/cfd/darcy_fno."""

import itertools
import re
from pathlib import Path

import numpy as np
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

from chonn_ops import Dirichlet

SMALL = {
    "chonn_network": {"width": 6, "depth": 1},
    "chonn_fno": {"width": 4, "ckb": {"cell": "scan"}},
    "chonn_unet": {"init_features": 2, "ckb": {"cell": "scan", "d_state": 1}},
}


# What users have at hand: statistics of a normaliser, shapes of arrays, numbers of a search.
NUMBERS = [
    ("chonn_network", {"nodes": torch.full((2,), 0.5), "lengths": torch.ones(2)}),
    ("chonn_network", {"width": np.int64(6), "lengths": np.array([1.0, 2.0])}),
    ("chonn_network", {"boundary": Dirichlet(torch.ones(())), "inner": "neumann"}),
    ("chonn_fno", {"modes1": np.int64(4), "padding": torch.tensor(3)}),
    ("chonn_unet", {"ckb": {"cell": "scan", "d_state": np.int8(1), "constrained": np.True_}}),
]


@pytest.mark.parametrize(("name", "numbers"), NUMBERS)
def test_numbers_of_tensors_and_numpy_are_saved(name, numbers, tmp_path):
    options = {**SMALL[name], **numbers}
    model = ModelRegistry().factory(name)(np.int64(1), np.int64(2), torch.tensor(2), **options)
    model.eval().save(tmp_path / "model.mdlus")
    loaded = Module.from_checkpoint(tmp_path / "model.mdlus").eval()
    x = torch.rand(1, 1, 32, 32)
    torch.testing.assert_close(loaded(x), model(x), rtol=0, atol=0)


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


def darcy(batch_size, resolution=16):
    """The datapipe of the example."""
    return Darcy2D(
        resolution=resolution,
        batch_size=batch_size,
        max_iterations=1000,
        iterations_per_convergence_check=200,
        nr_multigrids=1,
        normaliser={"permeability": (1.25, 0.75), "darcy": (4.52e-2, 2.79e-2)},
        device="cpu",
    )


# The example's keywords, the defaults, and the default with gradients clipped: on a CPU autocast is
# of bfloat16.
CAPTURES = [{"use_amp": False, "use_graphs": False}, {}, {"gradient_clip_norm": 1.0}]


@pytest.mark.parametrize("captures", CAPTURES, ids=["example", "defaults", "clipped"])
def test_an_epoch_of_the_darcy_example(tmp_path, captures):
    """On fields that its datapipe generates here, with its steps, checkpoints and resuming."""
    torch.manual_seed(0)
    data = darcy(8)
    create = ModelRegistry().factory("chonn_network")
    model = create(1, 1, nodes="left")
    first = next(iter(data))
    residual = model.calibrate(first["permeability"], first["darcy"])
    assert 0 < residual < 0.2
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    logger = PythonLogger("darcy")

    @StaticCaptureTraining(model=model, optim=optimizer, logger=logger, **captures)
    def train(x, y):
        return torch.nn.functional.mse_loss(model(x), y)

    evaluation = {name: captures[name] for name in captures if name.startswith("use")}

    @StaticCaptureEvaluateNoGrad(model=model, logger=logger, **evaluation)
    def predict(x):
        assert torch.is_autocast_enabled("cpu") == captures.get("use_amp", True)
        return model(x)

    batches = itertools.islice(data, 24)
    losses = [train(batch["permeability"], batch["darcy"]).item() for batch in batches]
    assert sum(losses[-4:]) < 0.05 * 4 * first["darcy"].var(), losses

    save_checkpoint(str(tmp_path), models=model, optimizer=optimizer, epoch=1)
    again = create(1, 1, nodes="left")
    assert load_checkpoint(str(tmp_path), models=again, device="cpu") == 1
    x = torch.rand(1, 1, 16, 16) + 0.5
    torch.testing.assert_close(again(x), model(x), rtol=0, atol=0)
    x = next(iter(data))["permeability"]
    error = (predict(x) - model(x)).norm() / model(x).norm()
    assert error == 0 if "use_amp" in captures else error < 0.02  # bfloat16 rounds to 0.004


@pytest.mark.parametrize(
    ("name", "cell"),
    [(name, "network") for name in SMALL] + [("chonn_fno", "scan"), ("chonn_unet", "scan")],
)
def test_captures_take_a_model_on_a_gpu(name, cell, monkeypatch):
    """No GPU here: the model says that it is on one. The next step is CUDA's own, a stream."""
    options = {**SMALL[name], "ckb": {"cell": cell}} if cell == "scan" else {}
    model = ModelRegistry().factory(name)(1, 1, **options)
    monkeypatch.setattr(type(model), "device", torch.device("cuda:0"))
    monkeypatch.setattr(torch.cuda, "Stream", lambda device: device)
    optimizer = torch.optim.Adam(model.parameters())
    step = StaticCaptureTraining(model=model, optim=optimizer)
    assert step.use_autocast == (cell == "network")
    assert not step.cuda_graphs_enabled


@pytest.mark.parametrize("name", SMALL)
def test_networks_take_autocast_of_float16(name):
    """The default of `StaticCapture*` on a GPU; its `GradScaler` starts with this scale."""
    torch.manual_seed(0)
    options = {option: x for option, x in SMALL[name].items() if option != "ckb"}
    model = ModelRegistry().factory(name)(1, 1, **options)
    x, outputs, gradients = torch.rand(2, 1, 32, 32), [], []
    for enabled in (False, True):
        model.zero_grad()
        with torch.autocast("cpu", torch.float16, enabled=enabled):
            y = model(x)
        (2**16 * y.float().square().mean()).backward()
        outputs.append(y.detach().float())
        found = [p.grad.abs() if p.is_complex() else p.grad for p in model.parameters()]
        gradients.append(torch.cat([g.flatten() for g in found]))
    for single, half in (outputs, gradients):
        assert (half - single).norm() < 0.05 * single.norm()


def test_published_weights(tmp_path):
    """By the snippet of docs/hosts.md: the model computes what it was trained for, and trains."""
    pytest.importorskip("safetensors")
    page = Path(__file__).parents[2] / "docs" / "hosts.md"
    [code] = re.findall(
        r"```\n([^`]*load_state_dict[^`]*)```", page.read_text().split("\nThe Well's")[0]
    )
    names = {}
    exec(code, names)
    model, trained = names["model"], names["trained"]
    x = torch.rand(2, 1, 32, 32) + 0.1
    torch.testing.assert_close(model(x), trained(x), rtol=0, atol=0)
    model.save(tmp_path / "model.mdlus")
    loaded = Module.from_checkpoint(tmp_path / "model.mdlus")
    torch.testing.assert_close(loaded(x), trained(x), rtol=0, atol=0)
    step = StaticCaptureTraining(model=model, optim=torch.optim.Adam(model.parameters(), lr=1e-3))
    losses = [step(lambda: (model(x) - trained(x) - 0.1).square().mean())() for _ in range(8)]
    assert losses[-1] < 0.8 * losses[0]
