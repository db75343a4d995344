"""Configs, checkpoints and training: neuraloperator's machinery around models with mixers."""

import pickle
import sys
import textwrap

import pytest
import torch
from commands import python
from neuralop.models import FNO, TFNO, get_model
from zencfg.bunch import Bunch

from chonn_ops import CKB

MIXER = {
    "spectral_mixer": "ckb",
    "spectral_mixer_layers": [0, -1],
    "spectral_mixer_mode": "alongside",
    "spectral_mixer_kwargs": {"order": 1, "boundary": "periodic"},
}
# Builds a plain model, runs it and saves it; also run where chonn-ops is out of reach.
PLAIN = """
    import sys, torch
    from neuralop.models import FNO
    torch.manual_seed(0)
    model = FNO(n_modes=(4, 4), in_channels=2, out_channels=1, hidden_channels=6, n_layers=3)
    model.save_checkpoint(sys.argv[1], "model")
    torch.save(model(torch.linspace(0, 1, 128).view(1, 2, 8, 8)), sys.argv[1] + "/out.pt")
"""
LOAD = """
    import sys, torch
    from neuralop.models import FNO
    model = FNO.from_checkpoint(sys.argv[1], "model")
    out = model(torch.linspace(0, 1, 128).view(1, 2, 8, 8))
    torch.testing.assert_close(out, torch.load(sys.argv[1] + "/out.pt"), rtol=0, atol=0)
"""
OUT_OF_REACH = """
    import sys
    sys.modules["chonn_plugins"] = sys.modules["chonn_ops"] = None
"""


def without_us(code, folder):
    env = {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0", "OMP_NUM_THREADS": "1"}
    python(textwrap.dedent(OUT_OF_REACH) + textwrap.dedent(code), folder, env=env)


def with_us(code, folder, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["code", str(folder)])
    exec(textwrap.dedent(code), {})


@pytest.mark.slow
def test_plain_models_are_what_they_are_without_us(tmp_path, monkeypatch):
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    with_us(PLAIN, ours, monkeypatch)
    without_us(PLAIN, theirs)
    with_us(LOAD, theirs, monkeypatch)
    without_us(LOAD, ours)
    for name in ("model_metadata.pkl", "model_state_dict.pt"):
        mine, stock = (torch.load(p / name, weights_only=False) for p in (ours, theirs))
        assert list(mine) == list(stock)
        for key, value in stock.items():
            assert torch.equal(mine[key], value) if torch.is_tensor(value) else mine[key] == value
    torch.testing.assert_close(*(torch.load(p / "out.pt") for p in (ours, theirs)), rtol=0, atol=0)


@pytest.mark.slow
@pytest.mark.parametrize("model", [FNO, TFNO])
def test_checkpoints_rebuild_the_mixers(fno, tmp_path, model):
    saved = fno(model=model, **MIXER)
    saved.train()
    saved(torch.randn(1, 2, 8, 8))
    saved.save_checkpoint(tmp_path, "model")
    loaded = model.from_checkpoint(tmp_path, "model")
    x = torch.randn(1, 2, 12, 12)
    torch.testing.assert_close(loaded(x), saved(x), rtol=0, atol=0)
    assert loaded._init_kwargs == saved._init_kwargs


@pytest.mark.parametrize("model", [FNO, TFNO])
def test_checkpoints_record_every_option(fno, model):
    recorded = fno(model=model, spectral_mixer_kwargs={"order": 3})._init_kwargs
    assert recorded["spectral_mixer"] == "ckb"
    assert recorded["spectral_mixer_layers"] is None
    assert recorded["spectral_mixer_mode"] == "lift"
    scan = fno(model=model, spectral_mixer_kwargs={"cell": "scan"})._init_kwargs
    assert (scan["spectral_mixer_layers"], scan["spectral_mixer_mode"]) == ((0,), "replace")
    options = recorded["spectral_mixer_kwargs"]
    assert options["order"] == 3
    assert {"nodes", "boundary", "num_networks", "grid"} < set(options)
    pickle.dumps(recorded)


def test_subclasses_that_choose_the_mixer_themselves(tmp_path):
    class Mixed(FNO):
        def __init__(self, width=6):
            super().__init__((4, 4), 2, 1, width, n_layers=2, spectral_mixer="ckb")

    model = Mixed(width=4)
    assert [key for key in model._init_kwargs if key.startswith("spectral")] == []
    model.save_checkpoint(tmp_path, "model")
    x = torch.randn(1, 2, 8, 8)
    torch.testing.assert_close(Mixed.from_checkpoint(tmp_path, "model")(x), model(x))


def config(arch="fno", **more):
    sizes = {"n_modes": [4, 4], "data_channels": 1, "out_channels": 1, "hidden_channels": 6}
    model = {"model_arch": arch, "n_layers": 2, **sizes, **more}
    return Bunch({"model": Bunch(model), "patching": Bunch({"levels": 0})})


@pytest.mark.parametrize(("arch", "cls"), [("fno", FNO), ("tfno", TFNO)])
def test_get_model(arch, cls):
    model = get_model(config(arch, **MIXER))
    assert type(model) is cls
    blocks = [m for m in model.modules() if isinstance(m, CKB)]
    assert [(b.options.order, b.options.boundary) for b in blocks] == [(1, "periodic")] * 2
    assert type(get_model(config(arch))) is cls
