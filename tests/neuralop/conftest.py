"""neuraloperator with our keywords, small models with mixers, and stand-ins for entry points."""

from importlib.metadata import EntryPoint

import pytest
import torch

pytest.importorskip("neuralop")

from neuralop.models import FNO, UNO

from chonn_plugins import _entry_points
from chonn_plugins.neuralop import hook
from chonn_plugins.neuralop.placement import GROUP

hook.install_fno()
hook.install_uno()


@pytest.fixture(autouse=True)
def one_thread():
    """Threads cost these sizes ten times more than they save where others use the machine."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def fno():
    """Build an FNO with a mixer in its first layer; same seed, same weights."""

    def build(n_dim: int = 2, *, model=FNO, **keywords):
        torch.manual_seed(0)
        small = {"n_modes": (4,) * n_dim, "in_channels": 2, "out_channels": 1, "n_layers": 3}
        return model(**{**small, "hidden_channels": 6, "spectral_mixer": "ckb", **keywords})

    return build


@pytest.fixture
def uno():
    """Build a UNO; its layers have 6 -> 6, 6 -> 8, 8 -> 8 and 8 + 6 -> 6 channels."""

    def build(**keywords):
        torch.manual_seed(0)
        layers = {
            "n_layers": 4,
            "uno_out_channels": [6, 8, 8, 6],
            "uno_n_modes": [[6, 6], [4, 4], [4, 4], [6, 4]],
            "uno_scalings": [[1, 1], [0.5, 0.5], [1, 1], [2, 2]],
            "horizontal_skips_map": {3: 0},
            "channel_mlp_skip": "linear",
        }
        width = {"hidden_channels": 6, "lifting_channels": 8, "projection_channels": 8}
        return UNO(2, 1, **{**layers, **width, "spectral_mixer": "ckb", **keywords})

    return build


@pytest.fixture
def register(monkeypatch):
    """Let mixers be found by name: pairs of a name and a target."""

    def add(*pairs: tuple[str, str]) -> None:
        points = [EntryPoint(name, value, GROUP) for name, value in pairs]
        monkeypatch.setattr(
            _entry_points, "entry_points", lambda group: points if group == GROUP else []
        )

    return add
