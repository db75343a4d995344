"""FNO, TFNO and SFNO with mixers: every kind of model, at every resolution."""

import inspect
from functools import partialmethod

import pytest
import torch
from neuralop.layers.complex import ComplexValued
from neuralop.models import FNO, TFNO, UQNO
from neuralop.models.fno import partialclass

from chonn_ops import CKB
from chonn_plugins.neuralop.hook import add_keywords, install_fno
from chonn_plugins.neuralop.skips import MixedSkip, NoSkip

MODES = ("replace", "alongside")


def mixers(model):
    return {name: m for name, m in model.named_modules() if isinstance(m, CKB)}


def backward(out):
    (out.abs() ** 2).sum().backward()


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("n_dim", [1, 2, 3])
@pytest.mark.parametrize(
    "keywords",
    [
        {},
        {"complex_data": True},
        {"preactivation": True},
        {"norm": "group_norm", "preactivation": True},
        {"norm": "instance_norm", "stabilizer": "tanh"},
        {"fno_skip": None},
        {"fno_skip": None, "complex_data": True},
        {"fno_skip": "identity", "channel_mlp_skip": None},
        {"fno_skip": "soft-gating", "use_channel_mlp": False},
        {"spectral_mixer_layers": (-1, 0)},
        {"domain_padding": 0.25},
        {"separable": True},
        {"factorization": "tucker", "rank": 0.3},
        {"model": TFNO},
        {"spectral_mixer_kwargs": {"order": 3, "boundary": "periodic", "expand": 2}},
        {"spectral_mixer_kwargs": {"cell": "scan", "order": 3, "expand": 2}},
    ],
    ids=lambda keywords: "-".join(map(str, keywords.values())) or "plain",
)
def test_output_and_gradients(fno, n_dim, mode, keywords, assert_learns):
    model = fno(n_dim, spectral_mixer_mode=mode, **keywords)
    complex_data = keywords.get("complex_data", False)
    count = len(keywords.get("spectral_mixer_layers", (0,))) * (1 + complex_data)
    assert len(mixers(model)) == count
    x = torch.randn(2, 2, *(8, 9, 7)[:n_dim], dtype=torch.cfloat if complex_data else None)
    out = model(x)
    assert out.shape == (2, 1, *x.shape[2:])
    backward(out)
    assert_learns(model)


@pytest.mark.parametrize("mode", MODES)
def test_weights_beside_mixers_are_those_of_the_plain_model(fno, mode):
    plain = fno(spectral_mixer=None).state_dict()
    mixed = fno(spectral_mixer_mode=mode, spectral_mixer_layers=(1,)).state_dict()
    skip = "fno_blocks.fno_skips.1.conv.weight"
    own = {"replace": None, "alongside": "fno_blocks.fno_skips.1.skip.conv.weight"}[mode]
    for name, value in plain.items():
        name = own if name == skip else name
        if name not in (None, "_metadata"):
            torch.testing.assert_close(mixed[name], value, rtol=0, atol=0)
    added = set(mixed) - set(plain) - {own}
    assert added
    assert all(name.startswith("fno_blocks.fno_skips.1.") for name in added)


def test_a_lift_is_a_mixer_before_the_padding(fno):
    plain = fno(spectral_mixer=None, domain_padding=0.25)
    model = fno(spectral_mixer_mode="lift", domain_padding=0.25)
    lifting, mixer = model.lifting.lifting, model.lifting.mixer
    seen = []
    mixer.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    x = torch.randn(2, 2, 8, 8)
    assert model(x).shape == (2, 1, 8, 8)
    torch.testing.assert_close(seen[0], lifting(model.positional_embedding(x)))
    assert [len(mixers(skip)) for skip in model.fno_blocks.fno_skips] == [0, 0, 0]
    model.lifting.mixer = torch.nn.Identity()  # what is left is the plain model
    torch.testing.assert_close(model(x), plain(x), rtol=0, atol=0)


def test_layers_add_up_as_asked(fno):
    x = torch.randn(2, 6, 8, 8)
    plain = fno(spectral_mixer=None).fno_blocks.fno_skips[0](x)
    replaced = fno(spectral_mixer_mode="replace").fno_blocks.fno_skips[0]
    mixed = fno(spectral_mixer_mode="alongside").fno_blocks.fno_skips[0]
    torch.testing.assert_close(mixed(x), plain + replaced(x))


def test_no_skip_stays_no_skip_where_no_mixer_was_asked_for(fno):
    plain = fno(fno_skip=None, spectral_mixer=None)
    model = fno(fno_skip=None, spectral_mixer_layers=(1,), spectral_mixer_mode="alongside")
    skips = model.fno_blocks.fno_skips
    assert [isinstance(skip, NoSkip) for skip in skips] == [True, False, True]
    assert [len(mixers(skip)) for skip in skips] == [0, 1, 0]
    assert not isinstance(skips[1], MixedSkip)  # there is no skip to be added to
    x = torch.randn(2, 6, 8, 8)
    torch.testing.assert_close(model.fno_blocks(x, 0), plain.fno_blocks(x, 0), rtol=0, atol=0)
    assert not torch.equal(model.fno_blocks(x, 1), plain.fno_blocks(x, 1))


def test_complex_fields_get_a_mixer_for_each_part(fno):
    skip = fno(complex_data=True, spectral_mixer_mode="alongside").fno_blocks.fno_skips[0]
    assert isinstance(skip, MixedSkip)
    assert isinstance(skip.mixer, ComplexValued)
    real, imaginary = torch.randn(2, 1, 6, 8, 8)
    fr, fi = skip.mixer.fr, skip.mixer.fi
    expected = torch.complex(fr(real) - fi(imaginary), fr(imaginary) + fi(real))
    torch.testing.assert_close(skip.mixer(torch.complex(real, imaginary)), expected)


@pytest.mark.parametrize("mode", MODES)
def test_resolutions(fno, mode):
    model = fno(spectral_mixer_mode=mode, resolution_scaling_factor=[2, 0.5, 1.5])
    assert model(torch.randn(1, 2, 8, 8)).shape == (1, 1, 12, 12)
    model = fno(spectral_mixer_mode=mode, spectral_mixer_layers=(0, -1))
    for shape in ((16, 16), (32, 32), (17, 23)):
        assert model(torch.randn(1, 2, *shape)).shape == (1, 1, *shape)
    assert model(torch.randn(1, 2, 8, 8), output_shape=(11, 13)).shape == (1, 1, 11, 13)


def test_modes_change_while_training(fno):
    model = fno(n_modes=(4, 4), max_n_modes=(8, 8))
    x = torch.randn(2, 2, 12, 12)
    before = model(x)
    model.n_modes = (6, 6)
    assert model.fno_blocks.n_modes == (6, 6)
    assert not torch.equal(model(x), before)
    model.n_modes = (4, 4)
    torch.testing.assert_close(model(x), before)


def test_uqno_copies_the_mixer(fno, assert_learns):
    model = UQNO(fno())
    solution, quantile = model(torch.randn(1, 2, 8, 8))
    assert solution.shape == quantile.shape == (1, 1, 8, 8)
    assert len(mixers(model)) == 2
    backward(quantile)
    assert_learns(model.residual_model)


def test_partial_classes_take_mixers_whenever_they_were_made(fno, monkeypatch):
    # As in a process that made its classes first, such as SFNO, and installed us later.
    original = FNO.__init__.__wrapped__
    monkeypatch.setattr(FNO, "__init__", original)
    monkeypatch.delattr(FNO, "_init_without_spectral_mixers")
    early = partialclass("EarlyFNO", FNO, factorization="cp", rank=0.5)
    nested = partialclass("NestedFNO", early, n_layers=2)
    install_fno()
    late = partialclass("LateFNO", FNO, factorization="cp", rank=0.5)
    for cls in (early, nested, late):
        assert isinstance(vars(cls)["__init__"], partialmethod)
        assert "spectral_mixer" in inspect.signature(cls).parameters
        model = fno(model=cls)
        assert model.fno_blocks.factorization == "cp"
        assert [name.split(".")[:2] for name in mixers(model)] == [["lifting", "mixer"]]


def test_sfno(fno, assert_learns):
    pytest.importorskip("torch_harmonics")
    from neuralop.models import SFNO

    for mode in MODES:
        model = fno(model=SFNO, n_modes=(4, 8), spectral_mixer_mode=mode)
        assert list(mixers(model)) != []
        backward(model(torch.randn(2, 2, 8, 16)))
        assert_learns(model)


def test_install_twice_changes_nothing():
    before = FNO.__init__
    install_fno()
    assert FNO.__init__ is before
    assert not hasattr(before.__wrapped__, "__wrapped__")


def test_edited_code_reaches_models_whose_class_was_imported_before():
    """IPython's autoreload puts new code into the functions that it finds in the old class."""

    class Model:
        def __init__(self):
            self.built = "before"

    def edited(self):
        self.built = "after"

    before = Model.__init__.__code__
    add_keywords(Model, lambda _: [])
    for function in vars(Model).values():
        if getattr(function, "__code__", None) is before:
            function.__code__ = edited.__code__
    assert Model().built == "after"


def test_signature_adds_keyword_only_parameters():
    plain = inspect.signature(FNO.__init__.__wrapped__).parameters
    ours = list(inspect.signature(FNO).parameters.values())[len(plain) - 1 :]
    names = [f"spectral_mixer{end}" for end in ("", "_layers", "_mode", "_kwargs")]
    assert [(p.name, p.default) for p in ours] == [(name, None) for name in names]
    assert {p.kind for p in ours} == {inspect.Parameter.KEYWORD_ONLY}
