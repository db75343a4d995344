"""Networks in the U-Nets, FNOs and the CNO, at the rates of their hosts."""

import copy
from functools import partial

import pytest
import torch

from chonn_ops import (
    CKB,
    CHONNFNO1d,
    CHONNFNO2d,
    CHONNNetwork2d,
    CHONNUNet2d,
    CHONNWaves1d,
    CHONNWaves2d,
    CKBOptions,
    CNOUNet,
    Dirichlet,
    Network,
    diffusion,
)
from chonn_ops.models import pretrained
from chonn_ops.models.geometry import grid_geometry
from chonn_ops.nn import layers
from chonn_ops.nn.layers import learn_faster

NETWORK = CKBOptions(Network(num_networks=3))
SCAN = CKBOptions("scan")
MODELS = {kind.__name__: kind for kind in (CHONNWaves2d,)}


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
        {"cell": Network(num_networks=2)},
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
        partial(CKB, 4, 2, cell=Network(num_networks=2)),
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


def gained(kind, gain, *arguments, **options):
    model = kind(*arguments, **options)
    if gain:
        learn_faster(model, gain)
    return model


# Each with the gains of no host, and with those of another one.
SMALL = {"width": 4, "depth": 1, "num_networks": 2}
IN_HOSTS = {
    "a block": (*(lambda g=g: gained(CKB, g, 4, 2, norm="group") for g in (None, 8.0)), (4, 6, 5)),
    "CHONNWaves1d": (
        *(lambda g=g: gained(CHONNWaves1d, g, 1, 2, **SMALL, media=1) for g in (1.0, 4.0)),
        (3, 9),
    ),
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
    with pytest.raises(
        RuntimeError, match=r"in_proj\._extra_state: expected a finite gain above 0"
    ):
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


@pytest.mark.parametrize("ckb", [None, SCAN, CKBOptions(order=0)], ids=["head", "scan", "plain"])
def test_hosts_have_no_gains(ckb):
    """What a state dict holds is a function, and plain models' are the host's."""
    for model in (CHONNFNO2d(1, 2, 2, 4, 1, ckb=ckb), CHONNUNet2d(1, 1, 2, ckb=ckb)):
        names = [*dict(model.named_parameters()), *dict(model.named_buffers())]
        assert set(model.state_dict()) == set(names)
        assert not any(name.endswith("_extra_state") for name in names)


def media_and_pressure(*grid):
    """Darcy flow in smooth media, (B, 1, *grid) each."""
    noise = torch.randn(8, 1, 4, 4, generator=torch.Generator().manual_seed(1))
    k = torch.exp(torch.nn.functional.interpolate(noise, grid, mode="bicubic"))
    on = k.movedim(1, -1).double()
    spacing = tuple(1 / n for n in grid)
    u = diffusion(on, spacing, boundary="dirichlet").solve(torch.ones_like(on))
    return k, u.movedim(-1, 1).float()


def hosts(grid, **options):
    """A U-Net and an FNO, called with fields alone."""
    unet, fno = CHONNUNet2d(1, 1, 4, **options), CHONNFNO2d(1, 4, 4, 6, 1, **options)
    places = coordinates(*((torch.arange(n) + 0.5) / n for n in grid)).expand(8, *grid, 2)

    def last(x):
        return x.movedim(1, -1)

    yield unet, unet, unet.calibrate
    yield (
        fno,
        lambda x: fno(last(x), places).squeeze(-2).movedim(-1, 1),
        lambda x, y: fno.calibrate(last(x), last(y).unsqueeze(-2), places),
    )


def test_trunks_start_from_the_circuit_that_calibration_finds():
    """With what a trunk begins with, it would be hidden; training then moves the trunk, too."""
    torch.manual_seed(0)
    x, y = media_and_pressure(32, 16)
    for model, call, calibrate in hosts((32, 16)):
        residual = calibrate(x, y).item()
        assert residual < 0.02
        off = (call(x) - y).norm() / (y - y.mean()).norm()
        assert off.item() == pytest.approx(residual, rel=0.1, abs=1e-3)
        optimizer = torch.optim.Adam(model.parameters(), 1e-3)
        losses = []
        for _ in range(12):
            optimizer.zero_grad()
            losses.append((call(x) - y - y**2).square().mean())  # no circuit's potential
            losses[-1].backward()
            optimizer.step()
        assert losses[-1] < losses[0]
        still = [n for n, p in model.named_parameters() if p.requires_grad and p.grad is None]
        assert still == []


@pytest.mark.parametrize(
    "build",
    [
        lambda channels, ckb: CHONNFNO2d(channels, 3, 3, 6, 1, in_channels=2, ckb=ckb),
        lambda channels, ckb: CHONNUNet2d(2, channels, 6, ckb=ckb),
    ],
)
def test_the_trunk_is_the_plain_model(build):
    """Parameter for parameter, at the same seed."""
    torch.manual_seed(0)
    (trunk,) = build(3, None).network.trunk.children()
    torch.manual_seed(0)
    plain = build(6, CKBOptions(order=0)).state_dict()
    for (name, value), own in zip(plain.items(), trunk.state_dict().values(), strict=True):
        assert torch.equal(value, own), name


def test_words_of_the_head():
    options = {"boundary": ("periodic", Dirichlet(1.0)), "nodes": "left"}
    models = [
        CHONNUNet2d(1, 1, 4, inner="neumann", **options),
        CHONNFNO2d(1, 2, 2, 4, 1, **options),
    ]
    alone = CHONNNetwork2d(1, 1, **options)
    for model in models:
        walls = model.network.head.walls()
        assert {k: x for k, x in walls.items() if k != "inner"} == {
            k: x for k, x in alone.head.walls().items() if k != "inner"
        }
        assert model.network.head.nodes == "left"
    x, mask = torch.rand(1, 1, 16, 16) + 0.1, torch.ones(16, 16, dtype=torch.bool)
    mask[4:8, 4:8] = False
    y = models[0].eval()(x, mask=mask)
    assert (y[..., ~mask] == 0).all()
    assert y.isfinite().all()
    assert torch.equal(models[0](torch.where(mask, x, torch.nan), mask=mask), y)


@pytest.mark.parametrize("unit", [1e-3, 1.0, 1000.0])
@pytest.mark.parametrize("length", [1.0, 0.25])
def test_fno_reads_the_spacing_in_any_unit(unit, length):
    """In millimetres, features were so large that a trained model was off by a factor of 375."""
    model, seen = CHONNFNO2d(1, 2, 2, 6, 1), []
    grid = coordinates(torch.arange(10) / 10, torch.arange(8) / 8 * length)
    x = torch.rand(1, 10, 8, 1)
    model.network.head.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[1]))
    torch.testing.assert_close(model(x, unit * grid), model(x, grid))
    assert seen == [pytest.approx([1 / 10, length / 8])] * 2


def test_one_default_in_every_model():
    """A circuit head on U-Nets and FNOs, networks in CNOs; scans as in the paper."""
    for model in (CHONNFNO2d(1, 2, 2, 4, 1), CHONNUNet2d(1, 1, 2)):
        assert isinstance(model.network, CHONNNetwork2d)
    assert next(iter(CNOUNet(1, 1, 1, 1, 1, 4, 4).ckbs.values())).options == CKBOptions()
    assert CHONNFNO2d(1, 2, 2, 4, 1, ckb=SCAN).w0.options == SCAN
    assert set(CHONNUNet2d(1, 1, 2, ckb=SCAN).ckbs) == {"encoder4", "bottleneck", "decoder4"}


@pytest.mark.parametrize(
    ("dims", "boundary"), [(1, "robin"), pytest.param(2, "dirichlet", marks=pytest.mark.thorough)]
)
def test_exported_programs_read_the_coordinates_they_get(dims, boundary):
    """The export failed at the spacing, which is read from the coordinates."""
    torch.manual_seed(0)
    kind = {1: CHONNFNO1d, 2: CHONNFNO2d}[dims]
    model = kind(1, *[3] * dims, width=4, initial_step=1, boundary=boundary).eval()
    n = 8
    steps = torch.arange(n) / n
    grids = [steps, steps + 0.5 / n, torch.arange(n) / (n - 1), 3 * steps, steps.flip(0)]
    grids = [torch.stack(torch.meshgrid(*[line] * dims, indexing="ij"), -1)[None] for line in grids]
    x = torch.randn(1, *[n] * dims, 1)
    program = torch.export.export(model, (x, grids[0])).module()
    for grid in grids:
        torch.testing.assert_close(program(x, grid), model(x, grid))
    assert not torch.allclose(model(x, grids[0]), model(x, grids[1]))
