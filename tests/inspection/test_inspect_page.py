"""The page and the numbers of an inspection, and the data that it reads."""

import json
import re

import h5py
import numpy as np
import pytest
import torch
from checkpoints import darcy_file, pdebench

from chonn_ops import (
    CHONNNetwork2d,
    CHONNNetwork3d,
    CKBOptions,
    KirchhoffCell,
    NetworkCell,
    cli,
    inspection,
)
from chonn_ops.inspection._learned import learned_conductivity
from chonn_ops.inspection._maps import maps_at

FILES = ("inspection.html", "inspection.json")


def inspect(folder, *arguments):
    return cli.main(["inspect", *map(str, arguments), "--output", str(folder / "out")])


@pytest.fixture(scope="module")
def given(tmp_path_factory):
    folder = tmp_path_factory.mktemp("given")
    return pdebench(folder, "chonn_network", networks=3), darcy_file(folder)


def test_command(given, tmp_path, capsys):
    checkpoint, data = given
    assert inspect(tmp_path, checkpoint, "--data", data, "--samples", 2, "--start", 1) == 0
    assert (
        capsys.readouterr().out
        == f"wrote {tmp_path}/out/{FILES[0]} and {tmp_path}/out/{FILES[1]}\n"
    )
    numbers = json.loads((tmp_path / "out" / FILES[1]).read_text())
    assert numbers["samples"] == {"first": 1, "count": 2, "grid": [16, 16]}
    assert numbers["reference"] == "permeability nu"
    assert [len(cell["networks"]) for cell in numbers["learned_conductivity"]] == [3, 3]
    page = (tmp_path / "out" / FILES[0]).read_text()
    assert page.count("data:image/png;base64,") == 5
    assert not re.search(r"(src|href)=\"(?!data:)", page)  # nothing from elsewhere
    for words in (
        "Circuits of chonn_network",
        "effective rank",
        "length scale",
        "Stages and gates",
    ):
        assert words in page
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == list(FILES)


def test_nothing_is_overwritten(given, tmp_path, capsys):
    (tmp_path / "out").mkdir()
    kept = tmp_path / "out" / FILES[1]
    kept.write_text("mine")
    assert inspect(tmp_path, given[0], "--data", given[1]) == 1
    assert "output file exists" in capsys.readouterr().err
    assert kept.read_text() == "mine"
    assert list((tmp_path / "out").iterdir()) == [kept]
    assert inspect(tmp_path, given[0], "--data", given[1], "--force") == 0
    assert kept.read_text() != "mine"


def test_data_that_do_not_fit(given, tmp_path, capsys):
    checkpoint, data = given
    cases = {
        "line.npy": (np.zeros((2, 16)), r"x: expected shape \(B, 1, H, W\)"),
        "channels.npy": (
            np.zeros((2, 3, 16, 16)),
            r"expected 1 channels, the model's, got 1 frames of 3",
        ),
        "nan.npy": (np.full((2, 16, 16), np.nan), "expected finite fields"),
        "one.npy": (np.zeros(3), r"expected \(N, \*grid\)"),
    }
    for name, (array, message) in cases.items():
        np.save(tmp_path / name, array)
        assert inspect(tmp_path, checkpoint, "--data", tmp_path / name) == 1
        assert re.search(message, capsys.readouterr().err), name
    h5py.File(tmp_path / "other.hdf5", "w").close()
    for arguments, message in (
        (("--data", tmp_path / "other.hdf5"), "expected a layout of PDEBench"),
        (("--data", tmp_path / "none.hdf5"), "no such file"),
        (("--data", data, "--start", 3), "expected samples from number 3 on"),
        (("--data", data, "--sample", 3), "sample: expected 0 to 2, got 3"),
        (("--data", data, "--set", "width"), "expected NAME=VALUE"),
    ):
        assert inspect(tmp_path, checkpoint, *arguments) == 1
        assert message in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_layouts(tmp_path):
    with h5py.File(tmp_path / "groups.h5", "w") as file:
        for name in ("0000", "0001"):
            file[f"{name}/data"] = np.arange(3.0 * 8 * 6 * 2).reshape(3, 8, 6, 2)
            file[f"{name}/grid/x"], file[f"{name}/grid/y"] = np.arange(8.0), np.arange(6.0)
    samples = inspection.read(tmp_path / "groups.h5", 1)
    assert samples.fields.shape == (1, 3, 2, 8, 6)
    # As PDEBench flattens (\*grid, frames, channels): frames slowest.
    flat = (
        torch.arange(3.0 * 8 * 6 * 2).reshape(3, 8, 6, 2).permute(1, 2, 0, 3)[:, :, :2].flatten(2)
    )
    assert torch.equal(samples.inputs(4)[0].permute(1, 2, 0), flat)
    assert samples.grid_coordinates()[0, 3, 2].tolist() == [3, 2]
    with h5py.File(tmp_path / "line.hdf5", "w") as file:
        file["tensor"], file["x-coordinate"] = np.zeros((4, 5, 32)), np.arange(32.0)
    assert inspection.read(tmp_path / "line.hdf5", 0, 2).fields.shape == (2, 5, 1, 32)
    with h5py.File(tmp_path / "PoissonData_IN.h5", "w") as file:
        file["min_inp"], file["max_inp"], file["min_out"], file["max_out"] = -1.0, 3.0, 0.0, 1.0
        for i in range(2):
            file[f"Sample_{i}/input"] = np.full((4, 4), float(i))
    samples = inspection.read(tmp_path / "PoissonData_IN.h5")
    assert samples.fields[:, 0, 0, 0, 0].tolist() == [0.25, 0.5]
    assert samples.reference is not None


def test_correlation_and_variation():
    """A cell whose conductivity is known: that of its first feature."""
    cell = NetworkCell(1, 2).double().eval()
    with torch.no_grad():
        cell.coefficient_proj.weight.zero_()
        cell.coefficient_proj.weight[0, 0] = 1.0
        cell.coefficient_bias.fill_(0.5)
    torch.manual_seed(0)
    u = torch.rand(3, 8, 8, 1, dtype=torch.float64)
    k = cell.coefficients(u)[0][..., 0].detach()
    truth = torch.exp(-2 * torch.log(k)).float()
    calls = [(lambda: cell(u[:2]), truth[:2]), (lambda: cell(u[2:]), truth[2:])]
    (found,) = learned_conductivity(cell, calls)
    first, second = found["networks"]
    assert first["correlation"] == pytest.approx(-1)
    assert first["samples"] == 3
    inner = k[:, 1:-1, 1:-1].flatten(1)
    variation = (inner.std(1, correction=0) / inner.mean(1)).mean()
    assert first["variation_inside"] == pytest.approx(variation.item())
    assert second["correlation"] is None
    assert second["variation_inside"] < 1e-12
    # Patches: the mean over each of them is what a node can know.
    coarse = NetworkCell(1, 1)
    u = torch.rand(1, 4, 4, 1)
    truth = torch.rand(1, 8, 8)
    (found,) = learned_conductivity(coarse, [(lambda: coarse(u), truth)])
    k = coarse.coefficients(u)[0].detach().flatten().log()
    means = truth.reshape(4, 2, 4, 2).mean((1, 3)).flatten().log()
    r = torch.corrcoef(torch.stack((k, means)))[0, 1].item()
    assert found["networks"][0]["correlation"] == pytest.approx(r, abs=1e-5)
    (found,) = learned_conductivity(coarse, [(lambda: coarse(u), torch.rand(1, 9, 8))])
    assert found["networks"][0]["correlation"] is None


def test_currents_run_down_the_potential():
    """A ladder with a source at its start and ground behind its end, no leak to speak of."""
    cell = NetworkCell(1, 1, 1, ends="open", selective=False, tol=1e-10).double()
    with torch.no_grad():
        cell.source_proj.weight.fill_(10.0)
        cell.coefficient_bias[1] = 0.0
    u = torch.zeros(1, 9, 1, dtype=torch.float64)
    u[0, 0] = 1
    (maps,) = maps_at(cell, lambda: cell(u)).networks
    assert (maps.currents[0] > 0).all()
    v = maps.potential[:, 0]
    slope = -np.gradient(v)[1:-1]
    assert maps.currents[0][1:-1, 0] / slope == pytest.approx(
        np.full(7, maps.currents[0][1, 0] / slope[0])
    )
    # All that goes in is turned into heat.
    source = 10.0 * 0.1 * 16 / 9
    assert maps.power.sum() == pytest.approx(source * v[0])


def test_poles_zeros_and_what_cancels():
    torch.manual_seed(0)
    cell = KirchhoffCell(3, 4).double()
    (line,) = maps_at(cell, lambda: cell(torch.randn(1, 9, 3, dtype=torch.float64))).lines
    assert line.poles.shape == line.zeros.shape == (3, 4)
    assert (line.orders <= 4).all()
    with torch.no_grad():
        cell.decay_param.zero_()  # four equal states: all but one pole cancel
        cell.skip_param.fill_(-40.0)
    (line,) = maps_at(cell, lambda: cell(torch.randn(1, 9, 3, dtype=torch.float64))).lines
    assert line.orders.tolist() == [1, 1, 1]


def test_blocks_in_space_have_a_page(tmp_path):
    ckb = CKBOptions(cell="network", networks=2)
    torch.save(CHONNNetwork3d(width=4, depth=1, ckb=ckb).state_dict(), tmp_path / "w.pt")
    np.save(tmp_path / "x.npy", np.random.default_rng(0).random((2, 1, 6, 6, 6)))
    assert inspect(tmp_path, tmp_path / "w.pt", "--data", tmp_path / "x.npy") == 0
    assert "middle plane of the third axis" in (tmp_path / "out" / FILES[0]).read_text()


def test_order_of_a_network_block_is_read_off(tmp_path):
    model = CHONNNetwork2d(width=4, depth=1, ckb=CKBOptions(cell="network", order=2, networks=2))
    torch.save(model.state_dict(), tmp_path / "w.pt")
    np.save(tmp_path / "x.npy", np.random.default_rng(0).random((2, 8, 8)))
    assert inspect(tmp_path, tmp_path / "w.pt", "--data", tmp_path / "x.npy") == 0
    numbers = json.loads((tmp_path / "out" / FILES[1]).read_text())
    assert len(numbers["circuits"]["blocks"][0]["stage_share"]) == 2


def test_a_mask_of_the_data_reaches_a_network_model(tmp_path):
    model = CHONNNetwork2d(width=4, depth=1, ckb=CKBOptions(cell="network", networks=2)).eval()
    torch.save(model.state_dict(), tmp_path / "w.pt")
    path = darcy_file(tmp_path)
    mask = np.ones((16, 16), bool)
    mask[8:, 8:] = False
    with h5py.File(path, "a") as file:
        file["mask"] = mask
    samples = inspection.read(path)
    trained = inspection.load(tmp_path / "w.pt", samples.fields.shape[1:])
    inspection.write(trained, samples, tmp_path / "out", checkpoint="", data="")
    numbers = json.loads((tmp_path / "out" / FILES[1]).read_text())["circuits"]["networks"][0]
    with torch.no_grad():
        field = model.blocks[0].cells[0]
        found = []
        field.register_forward_hook(lambda _m, _i, v: found.append(v))
        model(samples.inputs(1), mask=samples.mask)
    assert numbers["networks"][0]["potential"][-1] == pytest.approx(
        found[0][..., 0].max().item(), abs=1e-5
    )
