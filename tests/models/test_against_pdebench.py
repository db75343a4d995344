"""Order 0 is the plain backbone to the last parameter; other orders keep the host's contract."""

import pytest
import torch

import chonn_ops
from chonn_ops import CKBOptions, Scan

pdebench_fno = pytest.importorskip("pdebench.models.fno.fno")
pdebench_unet = pytest.importorskip("pdebench.models.unet.unet")

GRIDS = {1: (32,), 2: (32, 16), 3: (16, 16, 16)}
FNO_MODES = {
    1: {"modes": 5},
    2: {"modes1": 5, "modes2": 4},
    3: {"modes1": 4, "modes2": 3, "modes3": 5},
}


def unets(dims):
    return getattr(pdebench_unet, f"UNet{dims}d"), getattr(chonn_ops, f"CHONNUNet{dims}d")


def fnos(dims):
    return getattr(pdebench_fno, f"FNO{dims}d"), getattr(chonn_ops, f"CHONNFNO{dims}d")


def seeded(build):
    torch.manual_seed(7)
    return build()


def assert_same_parameters(plain, ours):
    expected, actual = plain.state_dict(), ours.state_dict()
    assert list(actual) == list(expected)
    for name, value in expected.items():
        assert torch.equal(actual[name], value), name


@pytest.mark.parametrize("dims", [1, 2, 3])
def test_unet_of_order_0_is_pdebenchs(dims):
    plain_class, our_class = unets(dims)
    plain = seeded(lambda: plain_class(2, 3, init_features=4))
    ours = seeded(lambda: our_class(2, 3, init_features=4, ckb=CKBOptions(order=0)))
    assert_same_parameters(plain, ours)
    x = torch.randn(2, 2, *GRIDS[dims])
    torch.testing.assert_close(ours(x), plain(x), rtol=0, atol=0)


@pytest.mark.parametrize("dims", [1, 2, 3])
def test_fno_of_order_0_is_pdebenchs(dims):
    plain_class, our_class = fnos(dims)
    options = {"width": 6, "initial_step": 2, **FNO_MODES[dims]}
    plain = seeded(lambda: plain_class(3, **options))
    ours = seeded(lambda: our_class(3, **options, ckb=CKBOptions(order=0)))
    assert_same_parameters(plain, ours)
    x, grid = torch.randn(2, *GRIDS[dims], 6), torch.randn(2, *GRIDS[dims], dims)
    torch.testing.assert_close(ours(x, grid), plain(x, grid), rtol=0, atol=1e-6)


@pytest.mark.parametrize("dims", [1, 2, 3])
def test_default_sizes_are_pdebenchs(dims):
    for (plain_class, our_class), args in ((unets(dims), ()), (fnos(dims), (1,))):
        if dims == 3:
            with torch.device("meta"):
                plain, ours = plain_class(*args), our_class(*args, ckb=CKBOptions(order=0))
        else:
            plain, ours = plain_class(*args), our_class(*args, ckb=CKBOptions(order=0))
        shapes = {name: tuple(v.shape) for name, v in plain.state_dict().items()}
        assert {name: tuple(v.shape) for name, v in ours.state_dict().items()} == shapes


@pytest.mark.parametrize("dims", [1, 2, 3])
def test_unet_blocks_keep_the_plain_parameters_and_learn(dims):
    plain_class, our_class = unets(dims)
    plain = seeded(lambda: plain_class(2, 1, init_features=4))
    ours = seeded(
        lambda: our_class(2, 1, init_features=4, ckb=CKBOptions(Scan(d_state=4), order=2))
    )
    state = ours.state_dict()
    assert all(torch.equal(state[name], value) for name, value in plain.state_dict().items())
    x = torch.randn(3, 2, *GRIDS[dims])
    y = ours(x)
    assert y.shape == (3, 1, *GRIDS[dims])
    y.square().mean().backward()
    for name, parameter in ours.named_parameters():
        assert parameter.grad.isfinite().all(), name
    learning = [p.grad.abs().sum() > 0 for p in ours.ckbs.parameters()]
    assert all(learning)


@pytest.mark.parametrize("dims", [1, 2, 3])
@pytest.mark.parametrize("downsample", [1, 2])
def test_fno_blocks_learn(dims, downsample):
    _, our_class = fnos(dims)
    ckb = CKBOptions(Scan(d_state=4), order=2)
    model = our_class(
        2,
        width=6,
        initial_step=1,
        **FNO_MODES[dims],
        ckb=ckb,
        downsample=downsample,
    )
    grid_shape = GRIDS[dims]
    x, grid = torch.randn(2, *grid_shape, 2), torch.randn(2, *grid_shape, dims)
    y = model(x, grid)
    assert y.shape == (2, *grid_shape, 1, 2)
    y.square().mean().backward()
    unused = (
        {f"bn{k}.{kind}" for k in range(4) for kind in ("weight", "bias")} if dims == 3 else set()
    )
    without = {name for name, p in model.named_parameters() if p.grad is None}
    assert without == unused
    learning = [p.grad.abs().sum() > 0 for n, p in model.named_parameters() if n not in unused]
    assert all(learning)
    assert "w0.bias" not in model.state_dict()  # the block has its place


def test_stages_choose_where_blocks_go():
    model = chonn_ops.CHONNUNet2d(1, 1, 4, ckb=CKBOptions("scan"), stages=("encoder1", "decoder2"))
    assert {name: block.dim for name, block in model.ckbs.items()} == {"encoder1": 4, "decoder2": 8}


def test_fno_under_autocast():
    model = chonn_ops.CHONNFNO2d(1, 4, 4, width=8, initial_step=1)
    x, grid = torch.randn(2, 16, 16, 1), torch.randn(2, 16, 16, 2)
    with torch.autocast("cpu", torch.bfloat16):
        y = model(x, grid)
    assert y.isfinite().all()
    reference = model(x, grid)
    assert (y.float() - reference).norm() / reference.norm() < 0.05


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: chonn_ops.CHONNUNet2d(1, 1, 4)(torch.zeros(1, 1, 20, 16)),
            r"sizes multiples of 16, got \(1, 1, 20, 16\)",
        ),
        (
            lambda: chonn_ops.CHONNUNet1d(1, 1, 4)(torch.zeros(1, 1, 16, 16)),
            r"expected shape \(B, 1, H\), got \(1, 1, 16, 16\)",
        ),
        (
            lambda: chonn_ops.CHONNUNet2d(1, 1, 4, stages=("middle",)),
            r"stages: expected names out of .*got \['middle'\]",
        ),
        (
            lambda: chonn_ops.CHONNUNet2d(1, 1, 4, ckb={"order": 2}),
            r"ckb: expected CKBOptions\(\.\.\.\) or None, got \{'order': 2\}",
        ),
        (
            lambda: chonn_ops.CHONNFNO2d(1, ckb={"order": 2}),
            r"ckb: expected CKBOptions.*got \{'order': 2\}",
        ),
        (
            lambda: chonn_ops.CHONNFNO2d(1, downsample=0),
            "downsample: expected an integer of at least 1, got 0",
        ),
        (
            lambda: chonn_ops.CHONNFNO2d(1, initial_step=1)(
                torch.zeros(1, 16, 16, 1), torch.zeros(1, 16, 16, 2)
            ),
            r"modes: expected at most \(18, 10\).*got \(12, 12\)",
        ),
        (
            lambda: chonn_ops.CHONNFNO1d(1, 4, 8, 1)(torch.zeros(1, 16, 2), torch.zeros(1, 16, 1)),
            r"x: expected shape \(B, H, 1\), got \(1, 16, 2\)",
        ),
        (
            lambda: chonn_ops.CHONNFNO1d(1, 4, 8, 1)(torch.zeros(1, 16, 1), torch.zeros(1, 16, 2)),
            r"grid: expected shape \(1, 16, 1\), got \(1, 16, 2\)",
        ),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(ValueError, match=message):
        call()
