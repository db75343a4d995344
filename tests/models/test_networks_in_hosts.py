"""Networks in the U-Nets, FNOs and the CNO, at the rates of their hosts."""

import copy
import itertools
from functools import partial

import pytest
import torch
from torch import nn

from chonn_ops import (
    CKB,
    CHONNFNO1d,
    CHONNFNO2d,
    CHONNFNO3d,
    CHONNNetwork2d,
    CHONNRollout2d,
    CHONNUNet2d,
    CHONNWaves1d,
    CHONNWaves2d,
    CKBOptions,
    CNOUNet,
    Network,
)
from chonn_ops.models import pretrained
from chonn_ops.models.geometry import grid_geometry
from chonn_ops.models.hosted import hosted_ckb, learn_faster
from chonn_ops.nn import layers

NETWORK = CKBOptions(Network(num_networks=3))
SCAN = CKBOptions("scan")
MODELS = {kind.__name__: kind for kind in (CHONNRollout2d, CHONNWaves2d)}


def coordinates(*lines):
    return torch.stack(torch.meshgrid(*lines, indexing="ij"), -1)[None]


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ([torch.linspace(0, 1, 5)[:-1]], [1 / 4]),
        ([torch.arange(8) / 8 + 1 / 16, torch.arange(4) / 8], [1 / 8, 1 / 8]),
        ([torch.linspace(5, 0, 11)[1:], torch.arange(5) * 2.0], [1 / 20, 1 / 5]),
        ([torch.zeros(1), torch.arange(4) / 4, torch.arange(2) / 4], [1.0, 1 / 4, 1 / 4]),
        ([torch.ones(4), torch.arange(2) / 2], [1 / 4, 1 / 2]),
    ],
)
def test_coordinates_tell_the_spacing(lines, expected):
    assert grid_geometry(coordinates(*lines))[0]["spacing"] == pytest.approx(expected)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"norm": "group", "boundary": ("periodic", "neumann")},
        {"norm": "layer"},
        {"cell": Network(num_networks=2, ac=True)},
    ],
)
def test_a_gain_changes_nothing_but_the_rate(options):
    """Steps of Adam are so many times as large in what the module computes."""
    torch.manual_seed(0)
    plain = CKB(4, 2, **options)
    fast, slow = copy.deepcopy(plain), copy.deepcopy(plain)
    learn_faster(fast, 4)
    learn_faster(fast, 2)
    x = torch.randn(2, 4, 5, 6)
    torch.testing.assert_close(fast(x), plain(x), rtol=0, atol=0)
    for model, rate in ((fast, 1e-3), (slow, 8e-3)):
        optimizer = torch.optim.Adam(model.parameters(), lr=rate, eps=1e-30)
        for _ in range(2):
            optimizer.zero_grad()
            (model(x) - 1).square().mean().backward()
            optimizer.step()
    assert not torch.allclose(fast(x), plain(x), rtol=1e-2)
    torch.testing.assert_close(fast(x), slow(x))
    for (name, a), b in zip(fast.named_parameters(), slow.parameters(), strict=True):
        torch.testing.assert_close(8 * a, b, rtol=1e-4, atol=1e-5, msg=name)


@pytest.mark.parametrize(
    "build",
    [
        *(partial(CKB, 4, 2, norm=norm) for norm in ("none", "group", "layer")),
        partial(CKB, 4, 2, cell=Network(num_networks=2, ac=True)),
        partial(layers.Conv2d, 4, 3, 3),
    ],
    ids=str,
)
def test_fresh_parameters_do_not_depend_on_the_gain(build):
    """Drawn as those of a model without one, they were stored as values before the gain: what the
    model computed with was larger by it."""
    plain, fast = build(), build()
    learn_faster(fast, 8)
    for model in (plain, fast):
        torch.manual_seed(0)
        for module in (m for m in model.modules() if hasattr(m, "reset_parameters")):
            module.reset_parameters()
    x = torch.randn(2, 4, 5, 6)
    torch.testing.assert_close(fast(x), plain(x), rtol=0, atol=0)
    for stored, own in zip(fast.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(8 * stored, own, rtol=0, atol=0)


def test_only_modules_that_know_their_gain_get_one():
    with pytest.raises(TypeError, match="expected modules with a gain, got KirchhoffCell"):
        learn_faster(CKB(4, 2, cell="scan"), 8)


def _rollout(gain):
    model = CHONNRollout2d(1, 2, width=4, depth=1, num_networks=2)
    learn_faster(model, gain)
    return model


def _waves(gain):
    model = CHONNWaves1d(1, 2, width=4, depth=1, num_networks=2, media=1)
    learn_faster(model, gain)
    return model


# Each with the gains of no host, and with those of another one.
IN_HOSTS = {
    "a block": (
        lambda: CKB(4, 2, norm="group"),
        lambda: hosted_ckb(4, 2, CKBOptions(norm="group"), {}),
        (4, 6, 5),
    ),
    "CHONNRollout2d": (lambda: _rollout(1.0), lambda: _rollout(4.0), (2, 8, 8)),
    "CHONNWaves1d": (lambda: _waves(1.0), lambda: _waves(4.0), (3, 9)),
}


@pytest.mark.parametrize("name", IN_HOSTS)
@pytest.mark.parametrize("how", [{}, {"assign": True}, {"strict": False}], ids=str)
def test_weights_are_one_function_in_every_host(name, how):
    """All keys matched, and outputs were off by 72 %, since only values before gains were loaded.
    A step of Adam is then one of the model that the weights come from."""
    *builds, shape = IN_HOSTS[name]
    x = torch.rand(2, *shape)
    for build, other in (builds, builds[::-1]):
        trained, model = build(), other()
        assert not torch.allclose(model(x), trained(x))
        loaded = model.load_state_dict(copy.deepcopy(trained.state_dict()), **how)
        assert loaded == ([], [])
        torch.testing.assert_close(model(x), trained(x), rtol=0, atol=0)
        for each in (model, trained):
            optimizer = torch.optim.Adam(each.parameters(), lr=1e-2)
            each(x).square().mean().backward()
            optimizer.step()
        torch.testing.assert_close(model(x), trained(x), rtol=0, atol=0)


@pytest.mark.parametrize("default", [torch.float32, torch.float64, torch.bfloat16])
def test_a_gain_is_saved_whole_whatever_the_default_dtype_is(default):
    """It was rounded to the default dtype, 0.3 by 0.1 % in bfloat16."""
    trained, model = (CKB(4, 2).double() for _ in range(2))
    learn_faster(trained, 0.3)
    x = torch.rand(1, 4, 6, 5, dtype=torch.float64)
    before = torch.get_default_dtype()
    torch.set_default_dtype(default)
    try:
        state = trained.state_dict()
    finally:
        torch.set_default_dtype(before)
    model.load_state_dict(state)
    torch.testing.assert_close(model(x), trained(x), rtol=0, atol=0)


@pytest.mark.parametrize("gain", [0.0, -1.0, float("nan"), torch.ones(2), None, "a"], ids=str)
def test_gains_that_are_none_are_refused(gain):
    model = CKB(4, 2)
    state = {**model.state_dict(), "in_proj._extra_state": gain}
    with pytest.raises(RuntimeError, match=r"in_proj\._extra_state: expected a finite gain above 0"):
        model.load_state_dict(state)
    assert model.in_proj.gain == 1
    if not isinstance(gain, torch.Tensor):
        with pytest.raises(ValueError, match="gain: expected a finite number > 0"):
            learn_faster(model, gain)


@pytest.mark.parametrize("name", IN_HOSTS)
def test_weights_without_their_gains_are_refused(name):
    for build in IN_HOSTS[name][:2]:
        parameters = dict(build().named_parameters())
        with pytest.raises(RuntimeError, match=r"Missing key\(s\) in state_dict: .*_extra_state"):
            build().load_state_dict(parameters)
        missing = build().load_state_dict(parameters, strict=False).missing_keys
        assert missing
        assert all(key.endswith("_extra_state") for key in missing)


@pytest.mark.parametrize(
    "name", [name for name in pretrained.names() if pretrained.card(name)["model"] in MODELS]
)
def test_published_weights_in_a_host(name):
    trained = MODELS[pretrained.card(name)["model"]].from_pretrained(name)
    model = copy.deepcopy(trained)
    learn_faster(model, 4.0)
    channels = trained.in_channels
    x = torch.rand(1, channels, 32, 32) + 0.1
    expected = trained(x)
    torch.testing.assert_close(model(x), expected)
    model.load_state_dict(trained.state_dict())
    torch.testing.assert_close(model(x), expected, rtol=0, atol=0)


def test_models_without_networks_have_no_gains():
    """Their state dicts are the host's."""
    models = [CHONNFNO2d(1, 2, 2, 4, 1, ckb=SCAN), CHONNUNet2d(1, 1, 2, ckb=CKBOptions(order=0))]
    for model in models:
        names = [*dict(model.named_parameters()), *dict(model.named_buffers())]
        assert set(model.state_dict()) == set(names)


@pytest.mark.parametrize("mode", ["replace", "lift"])
def test_fno(mode):
    """The block gets the spacing of the coordinates, and the plain weights are the plain FNO's."""
    grid = (10, 8)
    small = {"modes1": 3, "modes2": 3, "width": 6, "initial_step": 1}
    torch.manual_seed(0)
    model = CHONNFNO2d(2, **small, ckb=NETWORK, mode=mode).eval()
    torch.manual_seed(0)
    plain = CHONNFNO2d(2, **small, ckb=CKBOptions(order=0)).state_dict()
    for name, value in model.state_dict().items():
        if name in plain and not (mode == "replace" and name.startswith("w0")):
            assert torch.equal(value, plain[name]), name
    x = torch.randn(2, *grid, 2)
    square, flat = (
        coordinates(torch.arange(10) / 10, torch.arange(8) / 8 * length).expand(2, *grid, 2)
        for length in (1.0, 0.25)
    )
    seen = []
    cell = model.ckb if mode != "replace" else model.w0
    cell.register_forward_pre_hook(lambda *call: seen.append(call[2]["spacing"]), with_kwargs=True)
    model(x, square).square().sum().backward()
    model(x, flat)
    assert seen[0] == pytest.approx([1 / 10, 1 / 8])
    assert seen[1] == pytest.approx([1 / 10, 1 / 32])
    useless = [
        name
        for name, value in model.named_parameters()
        if not (mode == "replace" and name.startswith("w0.") and value.grad is None)
        and (value.grad is None or not value.grad.isfinite().all())
    ]
    assert useless == []


@pytest.mark.parametrize("unit", [1e-3, 20.0, 1000.0])
def test_fno_takes_coordinates_in_any_unit(unit):
    """In millimetres, features were so large that a trained model was off by a factor of 375."""
    model = CHONNFNO2d(1, 2, 2, 6, 1, ckb=NETWORK)
    grid, x = coordinates(torch.arange(8) / 8, torch.arange(4) / 8), torch.randn(1, 8, 4, 1)
    torch.testing.assert_close(model(x, unit * grid), model(x, grid))


def test_a_lift_stands_before_the_padding():
    model = CHONNFNO1d(1, 3, 6, 1, ckb=NETWORK, mode="lift", padding=5)
    shapes = []
    model.ckb.register_forward_pre_hook(lambda _, inputs: shapes.append(inputs[0].shape))
    model(torch.randn(2, 12, 1), torch.linspace(0, 1, 12)[None, :, None].expand(2, 12, 1))
    assert shapes == [(2, 6, 12)]


def test_unet_corrects_a_network():
    torch.manual_seed(0)
    model = CHONNUNet2d(2, 3, 4, mode="correction")
    x = torch.randn(2, 2, 16, 32)
    # From zero on: an untrained model is its network.
    torch.testing.assert_close(model(x), model.network(x))
    nn.init.ones_(model.conv.weight)
    assert not torch.allclose(model(x), model.network(x))
    plain = CHONNUNet2d(2, 3, 4, ckb=CKBOptions(order=0), mode="correction")
    assert set(plain.state_dict()) == {
        n for n in model.state_dict() if not n.startswith("network.")
    }
    assert plain.encoder1[0].weight.shape[1] == 2
    with pytest.raises(ValueError, match="mode: expected 'stages' with cell='scan'"):
        CHONNUNet2d(2, 3, 4, ckb=SCAN, mode="correction")


@pytest.mark.parametrize("boundary", ["robin", ("periodic", "neumann")])
def test_networks_at_stages(boundary):
    ckb = CKBOptions(Network(num_networks=3), boundary=boundary)
    unet = CHONNUNet2d(1, 1, 4, ckb=ckb, mode="stages", stages=("encoder1", "decoder1"))
    assert set(unet.ckbs) == {"encoder1", "decoder1"}
    assert unet(torch.randn(2, 1, 16, 16)).shape == (2, 1, 16, 16)
    cno = CNOUNet(1, 1, 2, 1, 1, 8, 8, ckb=ckb, stages=("lift", "bottleneck"))
    cno(torch.randn(2, 1, 16, 16)).square().sum().backward()
    assert all(value.grad is not None for value in cno.parameters())


def test_one_default_in_every_model():
    """Networks: in front of an FNO's layers, and corrected by a U-Net; scans as in the paper."""
    fno = CHONNFNO2d(1, 2, 2, 4, 1)
    assert (fno.mode, fno.ckb.options) == ("lift", CKBOptions())
    assert isinstance(CHONNUNet2d(1, 1, 2).network, CHONNNetwork2d)
    assert next(iter(CNOUNet(1, 1, 1, 1, 1, 4, 4).ckbs.values())).options == CKBOptions()
    assert CHONNFNO2d(1, 2, 2, 4, 1, ckb=SCAN).w0.options == SCAN
    assert set(CHONNUNet2d(1, 1, 2, ckb=SCAN).ckbs) == {"encoder4", "bottleneck", "decoder4"}


@pytest.mark.parametrize(
    ("dims", "boundary", "downsample"),
    [
        pytest.param(*case, marks=() if case == (1, "neumann", 1) else pytest.mark.thorough)
        for case in itertools.product((1, 2, 3), ("neumann", "dirichlet"), (1, 2))
    ],
)
def test_exported_programs_read_the_coordinates_they_get(dims, boundary, downsample):
    """The export failed at the spacing, which is read from the coordinates."""
    torch.manual_seed(0)
    kind = {1: CHONNFNO1d, 2: CHONNFNO2d, 3: CHONNFNO3d}[dims]
    ckb = CKBOptions(Network(num_networks=2), boundary=boundary)
    modes = {"modes": 3} if dims == 1 else {f"modes{axis + 1}": 3 for axis in range(dims)}
    model = kind(1, **modes, width=4, initial_step=1, ckb=ckb, downsample=downsample).eval()
    n = 8
    steps = torch.arange(n) / n
    grids = [steps, steps + 0.5 / n, torch.arange(n) / (n - 1), 3 * steps, steps.flip(0)]
    grids = [torch.stack(torch.meshgrid(*[line] * dims, indexing="ij"), -1)[None] for line in grids]
    x = torch.randn(1, *[n] * dims, 1)
    program = torch.export.export(model, (x, grids[0])).module()
    for grid in grids:
        torch.testing.assert_close(program(x, grid), model(x, grid))
    assert not torch.allclose(model(x, grids[0]), model(x, grids[1]))
