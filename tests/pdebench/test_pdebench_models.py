"""The registry of models, their options and the names of their results."""

import json
import os
import re
import sys

import pytest
import torch

import chonn_ops
from chonn_plugins._entry_points import names_in
from chonn_plugins.pdebench import HostModel, JobError, registry
from chonn_plugins.pdebench.job import DataName, Job, resolve
from conftest import BASE, write_dist_info


@pytest.fixture(autouse=True)
def entry_points(installed, monkeypatch):
    if installed:
        for path in installed.split(os.pathsep):
            monkeypatch.syspath_prepend(path)


def a_job(name: str = "chonn_unet", **args: object) -> Job:
    given = {**BASE, "filename": "2D_Darcy.hdf5", "unroll_step": 1, **args}
    return resolve({"model_name": name, **given})


def scan(**options):
    return {"cell": "scan", **options}


PUSHED = {"ar_mode": True, "pushforward": True, "t_train": 9}
GROUPS, H5 = {"filename": "2D_rdb_NA_NA", "single_file": False}, {"filename": "2D_rdb_NA_NA.h5"}
DEEPEST, WALL = ["encoder4", "bottleneck", "decoder4"], {"condition": "Dirichlet", "value": 2.0}
NAMES = [
    # One option has others' defaults in its train: no two models share a name.
    ("chonn_unet", {}, {}, "2D_Darcy_chonn-unet-1-step"),
    ("chonn_unet", {"order": 0}, {}, "2D_Darcy_chonn-unet-order0-1-step"),
    ("chonn_unet", {"boundary": "dirichlet"}, {}, "2D_Darcy_chonn-unet-boundarydirichlet-1-step"),
    ("chonn_unet", {"inner": "robin"}, {}, "2D_Darcy_chonn-unet-1-step"),
    ("chonn_unet", scan(), {}, "2D_Darcy_chonn-unet-cellscan-1-step"),
    ("chonn_unet", scan(order=1), {}, "2D_Darcy_chonn-unet-cellscan-order1-1-step"),
    ("chonn_unet", scan(order=2), {}, "2D_Darcy_chonn-unet-cellscan-1-step"),
    ("chonn_unet", scan(stages=DEEPEST), {}, "2D_Darcy_chonn-unet-cellscan-1-step"),
    ("chonn_unet", scan(stages=["encoder1", "decoder1"]), {},
     "2D_Darcy_chonn-unet-cellscan-stagesencoder1-decoder1-1-step"),
    ("chonn_unet", scan(constrained=False), {"seed": 1},
     "2D_Darcy_chonn-unet-cellscan-constrainedFalse-seed1-1-step"),
    ("chonn_unet", {}, {"ar_mode": True}, "2D_Darcy_chonn-unet-AR"),
    ("chonn_unet", {}, PUSHED, "2D_Darcy_chonn-unet-PF-1"),
    ("chonn_unet", {}, {**PUSHED, "unroll_step": 7}, "2D_Darcy_chonn-unet-PF-4"),
    ("chonn_unet", {}, GROUPS, "2D_rdb_NA_NA_chonn-unet-1-step"),
    ("chonn_fno", {}, {}, "2D_Darcy_chonn-fno"),
    ("chonn_fno", scan(downsample=2), {}, "2D_Darcy_chonn-fno-cellscan-downsample2"),
    ("chonn_fno", {}, H5, "2D_rdb_NA_NA_chonn-fno"),
    ("chonn_network", {}, {}, "2D_Darcy_chonn-network"),
    ("chonn_network", {"width": 32, "boundary": ["periodic", "robin"]}, {},
     "2D_Darcy_chonn-network-boundaryperiodic-robin-width32"),
    ("chonn_network", {"inner": WALL}, {},
     "2D_Darcy_chonn-network-innercondition-Dirichlet-value-2.0"),
    ("chonn_network", {}, {"seed": 1}, "2D_Darcy_chonn-network-seed1"),
    ("FNO", {}, {}, "2D_Darcy_FNO"),
    ("FNO", {}, H5, "2D_rdb_NA__FNO"),
    ("Unet", {}, {"seed": 1}, "2D_Darcy_Unet-1-step"),
]  # fmt: skip


@pytest.mark.parametrize(("model", "ckb", "args", "name"), NAMES)
def test_result_names(model, ckb, args, name):
    given = {**args, "ckb": ckb} if ckb else args
    assert a_job(model, **given).result_name(frames=5) == name


def test_data_name_redirects_only_the_result():
    name = DataName.of(a_job(ckb={"order": 0}))
    assert name[:-5] + "_Unet" == "2D_Darcy_chonn-unet-order0"
    assert name + ".h5" == "2D_Darcy.hdf5.h5"
    assert "data/" + name == "data/2D_Darcy.hdf5"
    assert name[-2:] == "f5"
    grouped = DataName.of(a_job(filename="rdb", single_file=False))
    assert grouped + "_Unet" + "-AR" == "rdb_chonn-unet-AR"


ALL = "FNO, Unet, PINN, chonn_fno, chonn_network, chonn_unet"


@pytest.mark.parametrize(
    ("model", "ckb", "texts"),
    [
        ("chonn_unet", {"oder": 2}, ["unknown option oder for", "Known options: boundary, inner,"]),
        ("chonn_unet", {"order": -1}, ["order: expected an integer of at least 0, got -1"]),
        ("chonn_unet", scan(norm="batch"), ["norm: expected one of", "got 'batch'"]),
        ("chonn_unet", 3, ["expected options (known: boundary, inner,", "got 3"]),
        ("chonn_unet", {"downsample": 2}, ["unknown option downsample for chonn_unet"]),
        ("chonn_unet", scan(stages=["encoder5"]), ["stages: expected names out of", "encoder5"]),
        ("chonn_unet", {"d_state": 8}, ["d_state: expected to be left out without cell='scan'"]),
        ("chonn_unet", {"order": 2}, ["ckb: expected CKBOptions('scan')", "for a circuit head"]),
        ("chonn_unet", {"cell": "network"}, ["ckb: expected CKBOptions('scan')"]),
        ("chonn_unet", {"cell": "scna"}, ["expected one of ('network', 'scan'), got 'scna'"]),
        ("chonn_unet", scan(inner="robin"), ["inner: expected options of a block"]),
        ("chonn_network", {"cell": "scan"}, ["unknown option cell"]),
        ("chonn_network", {"width": 0}, ["width: expected an integer of at least 1"]),
        ("chonn_network", {"mode": "lift"}, ["unknown option mode"]),
        (
            "chonn_network",
            {"boundary": {"condition": "Wall"}},
            ["condition: expected one of ('Neum"],
        ),
        ("chonn_fno", {"inner": "robin"}, ["unknown option inner"]),
        ("chonn_fno", scan(downsample=0), ["downsample: expected an integer of at least 1"]),
        ("unet", {}, [f"one of {ALL}", "got 'unet'", "did you mean Unet?"]),
    ],
)
def test_bad_options_and_names(model, ckb, texts):
    with pytest.raises(JobError) as caught:
        a_job(model, ckb=ckb)
    for text in texts:
        assert text in str(caught.value)


UNET = ({}, {"boundary": "neumann"}, {"cell": "scan", "stages": ["encoder1"]}, {"order": 0})
FNO = ({}, {"boundary": "neumann"}, {"cell": "scan", "downsample": 2}, {"order": 0})


def host_of(ndim, modes=77, **more):
    """Keywords of PDEBench's FNO of so many axes."""
    names = ("modes",) if ndim == 1 else ("modes1", "modes2", "modes3")[:ndim]
    host = {"num_channels": 2, "width": 99, "initial_step": 3}
    return {**host, **dict.fromkeys(names, modes), **more}


def places(*lines):
    """Coordinates (*grid, axes) of the points on these lines."""
    return torch.stack(torch.meshgrid(*lines, indexing="ij"), -1)


@pytest.mark.parametrize("ndim", [1, 2, 3])
def test_builds_with_pdebench_keywords(ndim):
    grid = (32,) * ndim
    x, coordinates = torch.rand(2, *grid, 4), torch.rand(2, *grid, ndim).sort(1).values
    for options in UNET:
        host = {"in_channels": 4, "out_channels": 2}
        unet = registry.load("chonn_unet").build(ndim, host, options)
        assert unet(x.movedim(-1, 1)).shape == (2, 2, *grid)
    for options in FNO:
        host = host_of(ndim, 3, width=4, initial_step=2)
        fno = registry.load("chonn_fno").build(ndim, host, options)
        assert fno(x, coordinates).shape == (2, *grid, 1, 2)


@pytest.mark.parametrize(
    ("kind", "ndim"), [("steady", 1), ("steady", 2), ("steady", 3), ("step", 1), ("step", 2)]
)
def test_the_network_model_is_ours_under_pdebenchs_call(kind, ndim):
    """Same parameters by name, and the spacing and nodes that the coordinates say. A step gets the
    last two of the given frames, channels last."""
    entry = registry.load("chonn_network")
    options = {"model": kind, "width": 6, **({"depth": 1} if kind == "steady" else {})}
    entry.check(options)
    model = entry.build(ndim, host_of(ndim), options)
    if kind == "steady":
        ours = getattr(chonn_ops, f"CHONNNetwork{ndim}d")(6, 2, 6, 1)
        frames, off, given = 3, 0.0, {"nodes": "left"}
    else:
        ours = getattr(chonn_ops, f"CHONNStep{ndim}d")(2, 6)
        torch.nn.init.constant_(model.model.diffusivity, 0.5)
        frames, off, given = 2, 0.5, {}
        assert not model.decays
        single = entry.build(ndim, host_of(ndim, initial_step=1), {})
        assert type(single.model).__name__ == f"CHONNNetwork{ndim}d"
    ours.load_state_dict(model.model.state_dict())
    grid = (8, 12, 6)[:ndim]
    # The second axis is twice as long as the first: cells of 1/16 by 1/12, in its unit.
    lines = [(torch.arange(n) + off) * 5 * x / n for n, x in zip(grid, (1, 2, 2), strict=False)]
    spacing = {1: (1 / 8,), 2: (1 / 16, 1 / 12), 3: (1 / 16, 1 / 12, 1 / 6)}[ndim]
    x = torch.rand(3, *grid, 6)
    last = x[..., -2 * frames :].movedim(-1, 1)
    expected = ours(last, spacing=spacing, **given).movedim(1, -1)
    found = model(x, places(*lines).expand(3, *grid, ndim))
    torch.testing.assert_close(found, expected.unsqueeze(-2))
    if ndim > 1:
        unit = ours(last, **given).movedim(1, -1)
        assert not torch.allclose(expected, unit, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("steps", [1, 2])
def test_nodes_of_a_second_grid_are_those_of_its_coordinates(steps):
    """A steady model and one of time series on a ring."""
    host = {"num_channels": 1, "width": 6, "initial_step": steps, "modes": 3}
    entry = registry.load("chonn_network")
    options = {"width": 6} if steps == 1 else {"width": 6, "boundary": "periodic"}
    model = entry.build(1, host, options)
    said = entry.build(1, host, {**options, "nodes": "left"})
    said.load_state_dict(dict(model.state_dict()))
    for n in (8, 12):
        x, place = torch.rand(1, n, steps), (torch.arange(n) / n)[None, :, None]
        assert torch.equal(model(x, place), said(x, place))
        # Coordinates that do not start at 0 tell nothing: the option counts, where there are walls.
        unlike = not torch.equal(model(x, 3 + place), said(x, 3 + place))
        assert unlike == (steps == 1)


@pytest.mark.parametrize("ndim", [1, 2])
def test_one_circuit_a_frame_is_calibrated_by_whole_series(ndim):
    model = registry.load("chonn_network").build(ndim, host_of(ndim), {})
    ours = getattr(chonn_ops, f"CHONNStep{ndim}d")(2)
    ours.load_state_dict(model.model.state_dict())
    grid = places(*[(torch.arange(8) + 0.5) / 8] * ndim).expand(4, *[8] * ndim, ndim)
    x = torch.rand(4, *[8] * ndim, 10)  # five frames
    assert model.series
    found = model.calibrate(x[..., :8], x[..., 8:].unsqueeze(-2), grid)
    right = ours.calibrate(x.unflatten(-1, (5, 2)).movedim((-2, -1), (1, 2)))
    torch.testing.assert_close(found, right)
    expected = ours(x[..., :4].movedim(-1, 1)).movedim(1, -1)
    torch.testing.assert_close(model(x[..., :4], grid), expected.unsqueeze(-2))


def test_options_of_kinds():
    entry = registry.load("chonn_network")
    host = {"num_channels": 1, "width": 9, "initial_step": 2, "modes": 7}
    for axes, name in ((1, "Step1d"), (2, "Step2d"), (3, "Network3d")):
        assert type(entry.build(axes, host, {}).model).__name__ == f"CHONN{name}"
    for either in ({"inner": "robin"}, {"boundary": "auto"}):
        entry.check(either)
    for options, text in (
        ({"model": "step", "inner": "robin"}, "inner: expected to be left out with model='step'"),
        ({"model": "river"}, "model: expected one of ('auto', 'steady', 'step')"),
        ({"model": "step", "boundary": "dirichlet"}, "boundary: expected one of"),
    ):
        with pytest.raises(ValueError, match=re.escape(text)):
            entry.check(options)
    with pytest.raises(ValueError, match="inner: expected to be left out"):
        entry.build(1, host, {"inner": "robin"})
    wall = {"condition": "Dirichlet", "value": 1.0}
    walls = {"boundary": ["periodic", [wall, "robin"]]}
    steps = ("auto", "Step", {"width": 8}), ("step", "Step", {"boundary": "robin"})
    for kind, name, options in (*steps, ("steady", "Network", walls)):
        options["model"] = kind
        entry.check(options)
        axes = 2 if kind == "steady" else 1
        built = entry.build(axes, {**host, "modes1": 2, "modes2": 2}, options)
        assert type(built.model).__name__ == f"CHONN{name}{axes}d"
        # All that a checkpoint says of its model builds it again.
        said = {**entry.complete(options), **built.recorded}
        assert entry.defaults.keys() == said.keys() == entry.defaults_of(options).keys()
        again = entry.build(axes, host, json.loads(json.dumps(said)))
        assert repr(again) == repr(built)
        assert again.recorded == built.recorded
    assert entry.defaults_of({"model": "steady"})["boundary"] == "robin"
    assert entry.defaults_of({"model": "step"})["boundary"] == "auto"


def test_third_parties(tmp_path, monkeypatch):
    """Broken and duplicate entry points concern only who asks for them."""
    write_dist_info(tmp_path / "one", "one", ["mine = their_module:model", "gone = no_module:m",
                                              "wrong = their_module:number"])  # fmt: skip
    write_dist_info(tmp_path / "two", "two", ["mine = other_module:model", "FNO = other_module:m"])
    code = "from chonn_plugins.pdebench import HostModel\nnumber = 3\n"
    code += "model = HostModel('fno', build=print, options_key='my', defaults={'depth': 4})\n"
    (tmp_path / "their_module.py").write_text(code)
    for folder in (tmp_path, tmp_path / "one"):
        monkeypatch.syspath_prepend(str(folder))
    job = a_job("mine", my={"depth": 5})
    assert isinstance(job.model, HostModel)
    assert job.result_name(5) == "2D_Darcy_mine-depth5"
    assert {"gone", "mine", "chonn_unet"} <= set(names_in(registry.GROUP))

    def refused(name: str, *texts: str) -> None:
        with pytest.raises(JobError) as caught:
            a_job(name)
        for text in texts:
            assert text in str(caught.value)

    refused("gone", "no_module:m (one)", "ModuleNotFoundError")
    refused("wrong", "expected a chonn_plugins.pdebench.HostModel, got int")
    monkeypatch.syspath_prepend(str(tmp_path / "two"))
    refused("mine", "got several", "their_module:model (one)", "other_module:model (two)")
    refused("FNO", "got several", "the host itself")
    assert a_job("chonn_unet").family == "unet"
    assert "other_module" not in sys.modules


def test_bad_family():
    with pytest.raises(ValueError, match=r"expected one of \('unet', 'fno'\), got 'gan'"):
        HostModel("gan", build=print)  # pyright: ignore[reportArgumentType]
