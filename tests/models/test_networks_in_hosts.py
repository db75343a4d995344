"""Networks in the U-Nets, FNOs and the CNO, at the rates of their hosts."""

import pytest
import torch

from chonn_ops import (
    CHONNFNO1d,
    CHONNFNO2d,
    CHONNNetwork2d,
    CHONNUNet2d,
    CKBOptions,
    CNOUNet,
    Dirichlet,
    Network,
    diffusion,
)

NETWORK = CKBOptions(Network(num_networks=3))
SCAN = CKBOptions("scan")


def coordinates(*lines):
    return torch.stack(torch.meshgrid(*lines, indexing="ij"), -1)[None]


def media_and_pressure(*grid):
    """Darcy flow in smooth media, (B, 1, *grid) each."""
    noise = torch.randn(8, 1, 4, 4, generator=torch.Generator().manual_seed(1))
    k = torch.exp(torch.nn.functional.interpolate(noise, grid, mode="bicubic"))
    on = k.movedim(1, -1).double()
    u = diffusion(on, 2 / sum(grid), boundary="dirichlet").solve(torch.ones_like(on))
    return k, u.movedim(-1, 1).float()


def hosts(grid, **options):
    """A U-Net and an FNO, called with fields alone."""
    unet, fno = CHONNUNet2d(1, 1, 4, **options), CHONNFNO2d(1, 4, 4, 6, 1, **options)
    lines = ((torch.arange(n) + 0.5) * 2 / sum(grid) for n in grid)
    places = coordinates(*lines).expand(8, *grid, 2)

    def last(x):
        return x.movedim(1, -1)

    yield unet, unet, unet.calibrate
    call = lambda x: fno(last(x), places).squeeze(-2).movedim(-1, 1)  # noqa: E731
    yield fno, call, lambda x, y: fno.calibrate(last(x), last(y).unsqueeze(-2), places)


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
    unet = CHONNUNet2d(1, 1, 4, inner="neumann", **options)
    alone = CHONNNetwork2d(1, 1, **options).head.walls()
    for model in (unet, CHONNFNO2d(1, 2, 2, 4, 1, **options)):
        walls = model.network.head.walls()
        assert {**walls, "inner": ""} == {**alone, "inner": ""}
        assert model.network.head.nodes == "left"
    x, mask = torch.rand(1, 1, 16, 16) + 0.1, torch.ones(16, 16, dtype=torch.bool)
    mask[4:8, 4:8] = False
    y = unet.eval()(x, mask=mask)
    assert (y[..., ~mask] == 0).all()
    assert y.isfinite().all()
    assert torch.equal(unet(torch.where(mask, x, torch.nan), mask=mask), y)


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
