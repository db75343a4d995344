"""What is refused, and how: ValueError with what was expected and what was found."""

import inspect

import pytest
import torch
from neuralop.layers.fno_block import FNOBlocks
from neuralop.models import FNO, get_model
from torch import nn
from zencfg.bunch import Bunch

GROUP = "neuralop.spectral_mixers"


class Real2d(nn.Conv2d):
    """A mixer that is a class, for real fields in two dimensions."""

    n_dims = (2,)
    complex_data = False

    def __init__(self, channels, n_modes, kernel_size=3):
        super().__init__(channels, channels, kernel_size, padding=kernel_size // 2)
        self.n_modes = n_modes


def plain_function(channels, n_modes, *, power=1):
    if power > 2:
        raise KeyError(power)
    assert (channels, len(n_modes)) == (6, 2)
    return nn.Identity()


def no_module(channels, n_modes):
    return torch.ones(channels, *n_modes)


not_callable = 3


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"spectral_mixer": "cbk"}, r"expected one of ckb; got 'cbk' \(did you mean ckb\?\)"),
        ({"spectral_mixer": nn.Identity}, r"expected one of ckb; got <class .*Identity'>"),
        ({"spectral_mixer_layers": (3,)}, r"from -3 to 2, every layer once, got \(3,\)"),
        ({"spectral_mixer_layers": (0, -4)}, r"from -3 to 2, every layer once, got \(0, -4\)"),
        ({"spectral_mixer_layers": (0, -3)}, r"every layer once, got \(0, -3\)"),
        ({"spectral_mixer_layers": 0}, "a sequence of indices, got 0"),
        ({"spectral_mixer_layers": ()}, r"a sequence of indices, got \(\)"),
        ({"spectral_mixer_layers": (0.0,)}, r"a sequence of indices, got \(0.0,\)"),
        ({"spectral_mixer_layers": (True,)}, r"a sequence of indices, got \(True,\)"),
        ({"spectral_mixer_layers": "0"}, "a sequence of indices, got '0'"),
        ({"spectral_mixer_mode": "add"}, r"one of \('replace', .*'lift'\), got 'add'"),
        (
            {"spectral_mixer_mode": "lift", "spectral_mixer_layers": (1,)},
            r"spectral_mixer_layers: expected None in mode 'lift'.*got \(1,\)",
        ),
        ({"spectral_mixer_kwargs": 2}, "expected a mapping, got 2"),
        ({"spectral_mixer_kwargs": {"odrer": 2}}, "odrer: expected options of a block .* order"),
        ({"spectral_mixer_kwargs": {"order": 0}}, "'ckb' cannot be built for 6 channels: order: "),
        ({"spectral_mixer_kwargs": {"norm": "batch"}}, "norm: expected one of .*, got 'batch'"),
        ({"n_modes": (4,) * 4}, "'ckb' expects a model of 1, 2, 3 dimensions, got 4"),
    ],
)
def test_bad_keywords(fno, keywords, message):
    with pytest.raises(ValueError, match=message):
        fno(**keywords)


@pytest.mark.parametrize(
    "setting",
    [
        {"spectral_mixer_layers": (1,)},
        {"spectral_mixer_mode": "alongside"},
        {"spectral_mixer_kwargs": {"order": 2}},
    ],
)
def test_settings_without_a_mixer(fno, setting):
    (name,) = setting
    with pytest.raises(ValueError, match=rf"{name}: expected spectral_mixer .* \['ckb'\]; got"):
        fno(spectral_mixer=None, **setting)


def test_defaults_may_be_written_out_without_a_mixer(fno):
    defaults = {"spectral_mixer_layers": None, "spectral_mixer_kwargs": {}}
    model = fno(spectral_mixer=None, spectral_mixer_mode=None, **defaults)
    assert not [key for key in model._init_kwargs if key.startswith("spectral_mixer")]


def test_get_model_shows_our_message(register):
    register(("plain", f"{__name__}:plain_function"))
    arch = {"model_arch": "fno", "data_channels": 1, "n_modes": (4, 4), "out_channels": 1}
    model = Bunch({**arch, "hidden_channels": 4, "spectral_mixer": "nome"})
    wrong = "plain", {"power": 3}, "'plain' cannot be built for 4 channels: 3"
    for mixer, options, message in (("nome", {}, "expected one of plain; got 'nome'"), wrong):
        model.update({"spectral_mixer": mixer, "spectral_mixer_kwargs": options})
        with pytest.raises(ValueError, match=message):
            get_model(Bunch({"model": model}))


def test_a_convolution_is_not_replaced(fno, monkeypatch):
    """`conv_bias_kernel` is new after neuraloperator 2.0.0, where a stand-in tells of it."""
    keywords = {"conv_bias_kernel": 3}
    if "conv_bias_kernel" not in inspect.signature(FNO).parameters:
        monkeypatch.setattr(FNOBlocks, "conv_bias_kernel", 3, raising=False)
        keywords = {}
    for mode in ({"spectral_mixer_mode": "replace"}, {"spectral_mixer_layers": (1,)}):
        with pytest.raises(ValueError, match="'alongside' or 'lift' with conv_bias_kernel=3"):
            fno(**keywords, **mode)
    for mode in ("alongside", "lift"):
        fno(**keywords, spectral_mixer_mode=mode)


def test_a_torus_has_no_walls(fno):
    class OTNO(FNO, name="stand-in for that of neuraloperator after 2.0.0"):
        def __init__(self, n_modes, hidden_channels, **keywords):
            super().__init__(n_modes, hidden_channels=hidden_channels, **keywords)

    for options in ({}, {"boundary": ("periodic", "robin")}, {"cell": "scan"}):
        with pytest.raises(ValueError, match=r"boundary='periodic' in OTNO.*torus, got"):
            fno(model=OTNO, spectral_mixer_kwargs=options)
    for cell in ("network", "scan"):
        options = {"boundary": "periodic", "cell": cell}
        x = torch.randn(1, 2, 8, 8)
        assert fno(model=OTNO, spectral_mixer_kwargs=options)(x).shape == (1, 1, 8, 8)


def test_others_register_functions_and_classes(fno, register):
    register(("plain", f"{__name__}:plain_function"), ("conv", f"{__name__}:Real2d"))
    x = torch.randn(2, 2, 8, 8)
    assert fno(spectral_mixer="plain", spectral_mixer_kwargs={"power": 2})(x).shape[1] == 1
    model = fno(spectral_mixer="conv", spectral_mixer_kwargs={"kernel_size": 5})
    mixer = model.fno_blocks.fno_skips[0]
    assert isinstance(mixer, Real2d)
    assert mixer.n_modes == (4, 4)
    assert mixer.kernel_size == (5, 5)
    assert model._init_kwargs["spectral_mixer_kwargs"] == {"kernel_size": 5}
    with pytest.raises(ValueError, match=r"'conv' cannot be built .*unexpected keyword"):
        fno(spectral_mixer="conv", spectral_mixer_kwargs={"size": 5})
    with pytest.raises(ValueError, match="'conv' expects a model of 2 dimensions, got 3"):
        fno(3, spectral_mixer="conv")
    with pytest.raises(ValueError, match="'conv' expects real fields, got complex_data=True"):
        fno(spectral_mixer="conv", complex_data=True)


@pytest.mark.parametrize(
    ("points", "message"),
    [
        ([("m", "one:m"), ("m", "two:m")], "one provider of 'm' .*, got several: one:m.*two:m"),
        ([("m", "no_such_module:m")], "'m', no_such_module:m .*cannot be imported: ModuleNot"),
        ([("m", f"{__name__}:nothing")], "cannot be imported: AttributeError"),
        ([("m", f"{__name__}:not_callable")], "expected a callable, got int"),
        ([("m", f"{__name__}:no_module")], r"'m' to build a torch.nn.Module, got Tensor"),
        ([], "expected one of none; got 'm'"),
    ],
)
def test_bad_entry_points(fno, register, points, message):
    register(*points)
    with pytest.raises(ValueError, match=message):
        fno(spectral_mixer="m")


def test_one_target_seen_twice_is_one_mixer(fno, register):
    register(*[("plain", f"{__name__}:plain_function")] * 2)
    fno(spectral_mixer="plain")


def test_other_entry_points_are_not_imported(fno, register):
    register(("broken", "no_such_module:m"), ("plain", f"{__name__}:plain_function"))
    fno(spectral_mixer="plain")
