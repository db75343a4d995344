"""PDEBench's own runner, unchanged, trains and evaluates our models and its own."""

import itertools
import json
import pickle
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch

import chonn_ops
from chonn_ops import CKBOptions
from chonn_ops.inspect import load_checkpoint
from conftest import PROBLEMS, SMALL

pytestmark = pytest.mark.host

MODELS = ("chonn_unet", "chonn_fno", "chonn_network", "Unet", "FNO")
DIMS = {"1d": 1, "darcy": 2, "3d": 3, "groups": 2}
STEPS = {"1d": (2, "-PF-1"), "darcy": (1, "-1-step"), "3d": (1, "-PF-1"), "groups": (2, "-PF-1")}


@pytest.fixture(scope="module", params=DIMS)
def trained(request, tmp_path_factory, pdebench):
    """Five models trained in one sweep and evaluated in another, for one layout of data."""
    problem = request.param
    folder = tmp_path_factory.mktemp(problem)
    sweep = ("--multirun", f"args.model_name={','.join(MODELS)}")
    training = pdebench(folder, problem, *sweep, pushforward=problem != "darcy")
    assert training.count("epoch: 0, loss: ") == len(MODELS)
    printed = pdebench(folder, problem, *sweep, pushforward=problem != "darcy", if_training=False)
    yield problem, folder, printed
    for checkpoint in folder.glob("*.pt"):
        checkpoint.unlink()


def validation_data(data: Path, problem: str) -> np.ndarray:
    """(samples, \\*space, time, channels) of PDEBench's validation split."""
    name = PROBLEMS[problem][1]
    with h5py.File(data / (f"{name}.h5" if problem == "groups" else name)) as file:
        if problem == "groups":
            fields = np.stack([file[name]["data"][:] for name in sorted(file)[-2:]])
            return np.moveaxis(fields, 1, -2)
        if problem == "darcy":
            fields = np.concatenate([file["nu"][:2][:, None], file["tensor"][:2]], 1)[..., None]
        elif problem == "1d":
            fields = file["tensor"][:2][..., None]
        else:
            names = ("density", "pressure", "Vx", "Vy", "Vz")
            fields = np.stack([file[name][:2] for name in names], axis=-1)
    return np.moveaxis(fields, 1, -2)


def network_model(dims: int, start: int, channels: int):
    """What `chonn_network` is: for time series one circuit a frame."""
    if start == 1 or dims == 3:
        return getattr(chonn_ops, f"CHONNNetwork{dims}d")(channels * start, channels)
    return getattr(chonn_ops, f"CHONNStep{dims}d")(channels)


def roll_out(name: str, checkpoint: Path, fields: np.ndarray, problem: str):
    """Predictions of the trained model for all frames after the given ones, and the model."""
    dims, start, channels = DIMS[problem], STEPS[problem][0], fields.shape[-1]
    # Order 0 is PDEBench's own network, to the last parameter.
    ckb = None if name.startswith("chonn") else CKBOptions(order=0)
    if "fno" in name.lower():
        modes = (SMALL["modes"],) * dims
        build = getattr(chonn_ops, f"CHONNFNO{dims}d")
        model = build(channels, *modes, width=SMALL["width"], initial_step=start, ckb=ckb)
    elif name == "chonn_network":
        model = network_model(dims, start, channels)
    else:
        build = getattr(chonn_ops, f"CHONNUNet{dims}d")
        model = build(channels * start, channels, ckb=ckb)
    state = torch.load(checkpoint)["model_state_dict"]
    # `chonn_network` is behind an adapter, which PDEBench calls.
    model.load_state_dict({key.removeprefix("model."): value for key, value in state.items()})
    model.eval()

    axes = [np.arange(0.5, n) / n for n in fields.shape[1 : 1 + dims]]
    if problem == "1d":
        axes = [np.linspace(0, 1, fields.shape[1])]
    # The coordinates say how far apart the points of the file are, and where they lie.
    ends = {"spacing": [axes[0][1]], "nodes": "corners"}
    spaced = ends if problem == "1d" and name in ("chonn_network", "chonn_unet") else {}
    grid = torch.tensor(np.stack(np.meshgrid(*axes, indexing="ij"), -1), dtype=torch.float32)
    window = torch.tensor(fields[..., :start, :])
    frames = []
    for _ in range(fields.shape[-2] - start):
        x = window.flatten(-2)
        with torch.no_grad():
            if "fno" in name.lower():
                frame = model(x, grid.expand(len(x), *grid.shape))
            else:
                frame = model(x.movedim(-1, 1), **spaced).movedim(1, -1).unsqueeze(-2)
        frames.append(frame)
        window = torch.cat((window[..., 1:, :], frame), dim=-2)
    return torch.cat(frames, dim=-2).double().numpy(), model


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_table_is_what_the_checkpoint_predicts(trained, name, data):
    problem, folder, printed = trained
    result = f"{PROBLEMS[problem][1].removesuffix('.hdf5')}_{name.replace('_', '-')}"
    if "unet" in name.lower():
        result += STEPS[problem][1]
    report = json.loads((folder / f"{result}_metrics.json").read_text())

    fields = validation_data(data, problem)
    pred, model = roll_out(name, folder / f"{result}.pt", fields, problem)
    target = fields[..., STEPS[problem][0] :, :].astype(np.float64)
    space = tuple(range(1, 1 + DIMS[problem]))
    rmse = np.sqrt(np.mean((pred - target) ** 2, axis=space))
    nrmse = rmse / np.sqrt(np.mean(target**2, axis=space))
    metrics = report["metrics"]
    assert metrics["rmse"] == pytest.approx(rmse.mean(), rel=1e-4)
    assert metrics["nrmse"] == pytest.approx(nrmse.mean(), rel=1e-4)
    norms = [np.linalg.norm(f.reshape(len(f), -1), axis=1) for f in (pred - target, target)]
    assert metrics["relative_l2"] == pytest.approx((norms[0] / norms[1]).mean(), rel=1e-4)

    assert report["model"] == name
    # The checkpoint says it, too.
    if name.startswith("chonn"):
        built = load_checkpoint(folder / f"{result}.pt")
        assert json.loads(json.dumps(dict(built.options))) == report["options"]
    assert report["samples"] == len(fields)
    assert report["frames"]["first"] == STEPS[problem][0]
    assert metrics["fourier_rmse_high"] is None or problem == "1d"
    assert report["parameters"] == sum(p.numel() for p in model.parameters())
    text = (folder / f"{result}_metrics.txt").read_text()
    assert "predicted frames only" in text
    assert f"{metrics['rmse']:.6g}" in text

    # PDEBench's own numbers are left as they are.
    with (folder / f"{result}.pickle").open("rb") as file:
        own = pickle.load(file)
    # They count the given frames, with error zero.
    share = target.shape[-2] / fields.shape[-2]
    assert float(own[0]) == pytest.approx(metrics["rmse"] * share, rel=1e-3)
    assert report["pdebench_metrics"]["rmse"] == pytest.approx(float(own[0]))
    assert "include the input frames" in report["pdebench_note"]
    assert f"evaluating {name}" in printed


@pytest.mark.slow
def test_order_sweep_seeds_and_safety(tmp_path, pdebench):
    """Sweeps do not collide, nothing of the user's is overwritten, seeds repeat a run."""
    theirs = tmp_path / "2D_Darcy_FNO.pt"
    theirs.write_bytes(b"the user's own file")
    sweep = ("--multirun", "+args.ckb.cell=scan", "+args.ckb.order=0,1,3", "+args.seed=1,2")
    printed = pdebench(tmp_path, "darcy", *sweep, model_name="chonn_fno")
    assert "training chonn_fno (order 3, cell scan, seed 2) through PDEBench 0.1.0" in printed
    pairs = itertools.product((0, 1, 3), (1, 2))
    names = [f"2D_Darcy_chonn-fno-cellscan-order{o}-seed{s}.pt" for o, s in pairs]
    assert sorted(p.name for p in tmp_path.glob("*.pt")) == sorted([theirs.name, *names])
    assert theirs.read_bytes() == b"the user's own file"

    def weights(name: str) -> torch.Tensor:
        state = torch.load(tmp_path / name)["model_state_dict"]
        return torch.cat([torch.view_as_real(w).flatten() if w.is_complex() else w.flatten()
                          for w in state.values()])  # fmt: skip

    first = {name: weights(name) for name in names}
    assert not torch.equal(first[names[0]], first[names[1]])
    before = {name: (tmp_path / name).stat().st_mtime_ns for name in names}

    again = {"model_name": "chonn_fno", "ckb__cell": "scan", "ckb__order": 1, "seed": 1}
    refused = pdebench(tmp_path, "darcy", fails=True, **again)
    ways_out = "++args.continue_training=True", "++args.overwrite=True", "another directory"
    for expected in (f"the checkpoint {tmp_path / names[2]} exists", *ways_out):
        assert expected in refused
    assert {name: (tmp_path / name).stat().st_mtime_ns for name in names} == before

    pdebench(tmp_path, "darcy", overwrite=True, **again)
    assert torch.equal(first[names[2]], weights(names[2]))
    pdebench(tmp_path, "darcy", continue_training=True, epochs=2, model_update=1, **again)
    assert not torch.equal(first[names[2]], weights(names[2]))
    assert not list(tmp_path.glob(".*.tmp"))


@pytest.mark.slow
def test_stock_models_repeat_with_a_seed(tmp_path, pdebench):
    kept = []
    for seed in (7, 7, 8):
        pdebench(tmp_path, "1d", model_name="FNO", seed=seed)
        kept.append(torch.load(tmp_path / "1D_Advection_FNO.pt")["model_state_dict"])
    assert all(torch.equal(kept[0][k], kept[1][k]) for k in kept[0])
    assert not all(torch.equal(kept[0][k], kept[2][k]) for k in kept[0])


@pytest.mark.slow
def test_what_diverges_ends_in_a_line(tmp_path, pdebench):
    """A sweep goes on with its other jobs, and fails at its end; nothing is saved."""
    sweep = ("--multirun", f"args.model_name={','.join(MODELS)}")
    printed = pdebench(tmp_path, "darcy", *sweep, fails=True, learning_rate="1e30")
    for name in MODELS:
        assert f"chonn-ops: the training of {name} " in printed
    assert printed.count(" diverged in epoch 0 (the first is 0): ") == len(MODELS) + 1

    alone = pdebench(tmp_path, "darcy", fails=True, model_name="FNO", learning_rate="1e30")
    assert alone.strip().splitlines()[-1] == (
        "chonn-ops: the training of FNO diverged in epoch 0 (the first is 0): the loss of batch 2 "
        "is nan; 2D_Darcy_FNO.pt was not written. args.learning_rate is 1e+30."
    )
    assert "Traceback" not in printed + alone
    assert not list(tmp_path.glob("*.pt"))
