"""UNO with mixers: layers are blocks of their own, with channels and modes of their own."""

import pytest
import torch
from neuralop.models import UNO
from torch import nn

from chonn_ops import CKB
from chonn_plugins.neuralop.hook import install_uno
from chonn_plugins.neuralop.skips import ProjectedMixer

EVERY = (0, 1, 2, 3)


def without_gradient(model):
    """Parameters that a backward pass left without a gradient, or with a useless one."""
    gradients = ((name, value.grad) for name, value in model.named_parameters())
    return {k for k, g in gradients if g is None or not (g.isfinite().all() and g.any())}


@pytest.mark.parametrize("mode", ["replace", "alongside"])
@pytest.mark.parametrize("fno_skip", ["linear", None])
@pytest.mark.parametrize("layers", [(0,), (1, -1), EVERY])
def test_output_and_gradients(uno, mode, fno_skip, layers):
    model = uno(spectral_mixer_mode=mode, fno_skip=fno_skip, spectral_mixer_layers=layers)
    x = torch.randn(2, 2, 16, 12)
    out = model(x)
    assert out.shape == (2, 1, 16, 12)
    out.square().sum().backward()
    plain = uno(spectral_mixer=None, fno_skip=fno_skip)
    plain(x).square().sum().backward()
    # UNO itself leaves some parameters unused.
    assert without_gradient(model) <= without_gradient(plain)
    assert sum(isinstance(m, CKB) for m in model.modules()) == len(layers)


def test_a_lift_stands_before_all_layers(uno):
    model = uno(spectral_mixer_mode="lift")
    (block,) = [m for m in model.modules() if isinstance(m, CKB)]
    assert (block.dim, block in model.lifting.modules()) == (6, True)
    assert model(torch.randn(2, 2, 16, 12)).shape == (2, 1, 16, 12)


def test_mixers_work_at_the_input_channels_of_their_layer(uno):
    model = uno(spectral_mixer_layers=EVERY)
    assert [m.dim for m in model.modules() if isinstance(m, CKB)] == [6, 6, 8, 14]
    skips = [block.fno_skips[0] for block in model.fno_blocks]
    projected = [isinstance(skip, ProjectedMixer) for skip in skips]
    assert projected == [False, True, False, True]
    x = torch.randn(1, 14, 8, 8)
    skip = skips[3]
    expected = torch.einsum("oi, bihw -> bohw", skip.projection.conv.weight[..., 0], skip.mixer(x))
    torch.testing.assert_close(skip(x), expected)


class Swapped(nn.Identity):
    """Returns its input with the grid's axes swapped in memory."""

    def forward(self, input):
        return input.mT.contiguous().mT


def test_mixers_may_return_any_memory_layout_and_need_layers_with_skips(uno, register):
    register(("swapped", f"{__name__}:Swapped"))
    model = uno(spectral_mixer="swapped", spectral_mixer_layers=EVERY)
    assert model(torch.randn(2, 2, 16, 12)).shape == (2, 1, 16, 12)
    with pytest.raises(ValueError, match=r"layers with skips, such as FNOBlocks, got Swapped"):
        uno(operator_block=Swapped, spectral_mixer="swapped")


def test_weights_beside_mixers_are_those_of_the_plain_model(uno):
    plain = uno(spectral_mixer=None).state_dict()
    mixed = uno(spectral_mixer_layers=(0, 3)).state_dict()
    gone = {f"fno_blocks.{i}.fno_skips.0.conv.weight" for i in (0, 3)}
    assert gone < set(plain)
    for name in set(plain) - gone:
        torch.testing.assert_close(mixed[name], plain[name], rtol=0, atol=0)


def test_wrong_layer_and_install_twice(uno):
    with pytest.raises(ValueError, match=r"from -4 to 3, every layer once, got \(4,\)"):
        uno(spectral_mixer_layers=(4,))
    before = UNO.__init__
    install_uno()
    assert UNO.__init__ is before


def test_state_dicts_are_what_can_be_saved_of_it(uno, tmp_path):
    """UNO is no `BaseModel` of neuraloperator: it has no `save_checkpoint`."""
    saved = uno(spectral_mixer_layers=(0, 3))
    saved(torch.randn(1, 2, 8, 8))  # the grid of the first training pass
    for value in saved.parameters():
        value.data.mul_(1.1)
    torch.save(saved.state_dict(), tmp_path / "uno.pt")
    loaded = uno(spectral_mixer_layers=(0, 3))
    loaded.load_state_dict(torch.load(tmp_path / "uno.pt", weights_only=True))
    x = torch.randn(1, 2, 16, 16)
    torch.testing.assert_close(loaded(x), saved(x), rtol=0, atol=0)
