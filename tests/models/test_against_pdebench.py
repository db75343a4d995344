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
PLAIN, SCAN = CKBOptions(order=0), CKBOptions(Scan(d_state=4), order=2)


def classes(kind, dims):
    theirs = {"FNO": pdebench_fno, "UNet": pdebench_unet}[kind]
    return getattr(theirs, f"{kind}{dims}d"), getattr(chonn_ops, f"CHONN{kind}{dims}d")


def built(kind, dims, ckb):
    """PDEBench's model and ours at the same seed, and their inputs."""
    options = {"width": 6, "initial_step": 2, **FNO_MODES[dims]}
    arguments, options = ((3,), options) if kind == "FNO" else ((2, 3), {"init_features": 4})
    theirs, ours = classes(kind, dims)
    torch.manual_seed(7)
    plain = theirs(*arguments, **options)
    torch.manual_seed(7)
    model = ours(*arguments, **options, ckb=ckb)
    grid = GRIDS[dims]
    fields = (torch.randn(2, *grid, 6), torch.randn(2, *grid, dims))
    return plain, model, fields if kind == "FNO" else (torch.randn(2, 2, *grid),)


@pytest.mark.parametrize("dims", [1, 2, 3])
@pytest.mark.parametrize("kind", ["FNO", "UNet"])
def test_order_0_is_pdebenchs(kind, dims):
    plain, ours, inputs = built(kind, dims, PLAIN)
    expected, actual = plain.state_dict(), ours.state_dict()
    assert list(actual) == list(expected)
    for name, value in expected.items():
        assert torch.equal(actual[name], value), name
    close = {"rtol": 0, "atol": 1e-6 if kind == "FNO" else 0}
    torch.testing.assert_close(ours(*inputs), plain(*inputs), **close)


@pytest.mark.parametrize("dims", [1, 2, 3])
@pytest.mark.parametrize("kind", ["FNO", "UNet"])
def test_default_sizes_are_pdebenchs(kind, dims):
    arguments, (theirs, ours) = (1,) if kind == "FNO" else (), classes(kind, dims)
    with torch.device("meta"):
        models = theirs(*arguments), ours(*arguments, ckb=PLAIN)
    expected, found = ({k: x.shape for k, x in m.state_dict().items()} for m in models)
    assert found == expected


@pytest.mark.parametrize("dims", [1, 2, 3])
@pytest.mark.parametrize("kind", ["FNO", "UNet"])
def test_blocks_keep_the_plain_parameters(kind, dims):
    plain, ours, _ = built(kind, dims, SCAN)
    state = ours.state_dict()
    replaced = {name for name in plain.state_dict() if name not in state}
    assert replaced == ({"w0.weight", "w0.bias"} if kind == "FNO" else set())
    if kind == "UNet":
        assert all(torch.equal(state[name], value) for name, value in plain.state_dict().items())


def test_stages_choose_where_blocks_go():
    model = chonn_ops.CHONNUNet2d(1, 1, 4, ckb=CKBOptions("scan"), stages=("encoder1", "decoder2"))
    assert {name: block.dim for name, block in model.ckbs.items()} == {"encoder1": 4, "decoder2": 8}
