"""What PDEBench does silently, or dies of cryptically, is an error with expected and actual before
a job starts: its settings, those that nobody would read, and data that are not finite."""

import math
import shutil

import h5py
import numpy as np
import pytest
import torch

from chonn_plugins._entry_points import closest
from chonn_plugins.pdebench import JobError, arguments, preflight
from chonn_plugins.pdebench.data import LAYOUTS
from chonn_plugins.pdebench.job import Job, resolve
from chonn_plugins.pdebench.registry import HOST_MODELS
from conftest import POINTS, PROBLEMS, SAMPLES


@pytest.fixture
def job(make_job, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return make_job


def refused(job: Job, *texts: str) -> None:
    with pytest.raises(JobError) as caught:
        preflight.check(job)
    for text in texts:
        assert text in str(caught.value)


@pytest.mark.parametrize("family", ["unet", "fno"])
@pytest.mark.parametrize("problem", PROBLEMS)
def test_layouts(job, problem, family):
    layout = preflight.check(job(problem, family))
    expected = {"1d": ((32,), 5, 1), "darcy": ((16, 16), 2, 1), "3d": ((16, 16, 16), 3, 5)}
    expected["groups"] = (16, 16), 5, 1
    assert (layout.space, layout.frames, layout.channels) == expected[problem]
    assert (layout.train, layout.validation) == (18, 2)
    spacing = 1 / 31 if problem == "1d" else 1 / 16
    assert layout.spacing == pytest.approx((spacing,) * len(layout.space), rel=1e-5)


def test_reductions(job):
    reduced = {"reduced_resolution": 2, "reduced_resolution_t": 2, "reduced_batch": 2}
    layout = preflight.check(job("1d", **{**reduced, "initial_step": 1}))
    assert (layout.train, layout.validation, layout.space, layout.frames) == (9, 1, (16,), 3)
    assert layout.spacing == pytest.approx((2 / 31,), rel=1e-5)


@pytest.mark.parametrize("grouped", [False, True])
def test_a_wrong_suffix_names_the_right_ones(job, data, tmp_path, grouped):
    name, wrong = ("2D_rdb_NA_NA.h5", "x.hdf5") if grouped else ("2D_Darcy.hdf5", "x.h5")
    shutil.copy(data / name, tmp_path / wrong)
    refused(job("groups", data_path=tmp_path, filename="x"), LAYOUTS)
    refused(job("darcy", data_path=tmp_path, filename=wrong), LAYOUTS)


@pytest.mark.parametrize("name", ["FNO", "chonn_fno", "chonn_network"])
@pytest.mark.parametrize(
    ("problem", "key", "line", "reason"),
    [
        ("darcy", "x-coordinate", np.arange(17) / 16, "expected 16 coordinates, one for each"),
        ("groups", "0000/grid/y", np.arange(12) / 12, "expected 16 coordinates, one for each"),
        ("darcy", "y-coordinate", np.cos(np.arange(16) / 6), "expected equally spaced"),
        ("darcy", "x-coordinate", np.zeros(16), "expected equally spaced"),
        ("groups", "0007/grid/x", np.arange(16) / 8, "the coordinates of the first group"),
    ],
)
def test_coordinates_that_do_not_fit(job, data, tmp_path, name, problem, key, line, reason):
    filename = "2D_Darcy.hdf5" if problem == "darcy" else "2D_rdb_NA_NA.h5"
    shutil.copy(data / filename, tmp_path)
    with h5py.File(tmp_path / filename, "r+") as file:
        del file[key]
        file[key] = line
    refused(job(problem, data_path=tmp_path, model_name=name), reason)
    if problem == "darcy":  # The U-Net gets none.
        unet = job(problem, "unet", data_path=tmp_path)
        preflight.check(unet)


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3])
def test_coordinates_in_single_precision_are_equally_spaced(job, tmp_path, scale):
    with h5py.File(tmp_path / "fine.hdf5", "w") as file:
        file["tensor"] = np.ones((20, 5, 4096), "f4")
        file["x-coordinate"] = (scale * (1 + (np.arange(4096) + 0.5) / 4096)).astype("f4")
    layout = preflight.check(job("1d", data_path=tmp_path, filename="fine.hdf5"))
    assert layout.spacing == pytest.approx((scale / 4096,), rel=1e-4)


def test_damaged_files(job, tmp_path, data):
    (tmp_path / "text.hdf5").write_text("<html>404</html>")
    refused(job("1d", data_path=tmp_path, filename="text.hdf5"), "not a readable HDF5", "16 bytes")
    half = (data / "2D_Darcy.hdf5").read_bytes()[:9000]
    (tmp_path / "half.hdf5").write_bytes(half)
    refused(job("1d", data_path=tmp_path, filename="half.hdf5"), "9000 bytes")


def test_missing_keys(job, tmp_path):
    with h5py.File(tmp_path / "no_nu.hdf5", "w") as file:
        file["tensor"] = np.zeros((20, 1, 16, 16), "f4")
    with h5py.File(tmp_path / "other.hdf5", "w") as file:
        file["velocity"] = np.zeros((20, 5, 16), "f4")
    with h5py.File(tmp_path / "flow.hdf5", "w") as file:
        for name in ("density", "pressure"):
            file[name] = np.zeros((20, 5, 16), "f4")
    with h5py.File(tmp_path / "groups.h5", "w") as file:
        for name in ("0000", "0001"):
            file[f"{name}/fields"] = np.zeros((5, 16, 16, 1), "f4")

    def at(name: str, problem: str = "darcy", **args: object) -> Job:
        return job(problem, data_path=tmp_path, filename=name, **args)

    refused(at("no_nu.hdf5"), "expected the keys tensor, nu", "missing nu", "found tensor")
    refused(at("other.hdf5"), "expected the key tensor, or density", "found velocity")
    refused(at("flow.hdf5"), "density, pressure, Vx", "missing Vx")
    refused(at("groups", "groups"), "group 0000", "keys data", "found fields")
    refused(at("groups.h5", "darcy", family="unet"), "single_file=False")
    shutil.copy(tmp_path / "groups.h5", tmp_path / "groups.hdf5")
    refused(at("groups.hdf5"), "one group a sample")


def test_ragged_batches(job, tmp_path):
    with h5py.File(tmp_path / "odd.hdf5", "w") as file:
        file["tensor"] = np.zeros((40, 5, 16), "f4")
        file["x-coordinate"] = np.linspace(0, 1, 16)
    settings = {"data_path": tmp_path, "filename": "odd.hdf5", "batch_size": 10}
    said = "args.batch_size=10", "36 training and 4 validation", "6 in training and 4 in validation"
    refused(job("1d", "unet", **settings), *said, "Expected a size that divides both.")
    preflight.check(job("1d", "fno", **settings))
    # The trainer's reshape to (batch_size, -1) happens to work: no reason to stop.
    preflight.check(job("1d", "unet", **{**settings, "batch_size": 8}))


def test_checkpoint_to_evaluate(job, tmp_path):
    (tmp_path / "2D_Darcy_FNO.pt").touch()
    expected = f"expected the checkpoint {tmp_path / '2D_Darcy_Unet-1-step.pt'}"
    refused(job("darcy", "unet", if_training=False), expected, "there are 2D_Darcy_FNO.pt")
    refused(job("darcy", "unet", continue_training=True), "args.continue_training=True")
    # PDEBench's own models keep its behaviour: an existing checkpoint is no obstacle.
    preflight.check(job("darcy"))


UNETS = ("Unet", "chonn_unet")
H5 = {"filename": "2D_rdb_NA_NA.h5", "single_file": True}
ADVICE = (LAYOUTS, "expects a .hdf5 file")
WHOLE = ("batch_size", "t_train", "epochs", "modes", "reduced_resolution_t")
FLAGS = ("if_training", "continue_training", "single_file", "ar_mode", "plot", "checkpointing")
# Problem, with the family of its model unless that is FNO; settings; parts of the message.
REFUSED = [
    ("darcy", {"reduced_batch": 4}, "at least 10 samples", "got 5", "0 for validation"),
    ("3d", {"reduced_batch": 3}, "reduced_batch to divide the 20 samples", "got 3 and 1"),
    ("1d", {"initial_step": 5}, "args.initial_step=5", "less than the 5 frames"),
    # Upstream's args/config_Darcy.yaml.
    ("darcy", {"initial_step": 10}, "args.initial_step=10", "less than the 2 frames"),
    ("1d unet", {"initial_step": 3, "t_train": 2}, "args.t_train=2", "args.initial_step=3"),
    ("3d", {"num_channels": 1}, "args.num_channels=1: expected 5"),
    ("3d unet", {"in_channels": 4, "out_channels": 3}, "in_channels=4, args.out_channels=3"),
    *(
        ("1d unet", {"model_name": x, "reduced_resolution": 3}, "multiples of 16", "got (11,)")
        for x in UNETS
    ),
    (
        "darcy unet",
        {"training_type": "single", "ar_mode": True},
        "args.training_type=single with args.ar_mode=True",
        *("++args.ar_mode=False", "++args.training_type=autoregressive"),
    ),
    ("1d", {"training_type": "single"}, "expected args.initial_step=1, got 2"),
    *(
        ("darcy", {"training_type": kind, "t_train": last}, f"args.t_train={last}")
        for last in (-1, 0, 1)
        for kind in ("single", "autoregressive")
    ),
    ("1d", {"training_type": "auto"}, "expected one of", "got 'auto'"),
    ("1d unet", {"training_type": "pushforward"}, "'single'), got 'pushforward'"),
    ("1d", {"batch_size": 0}, "args.batch_size: expected an integer of at least 1, got 0"),
    ("1d", {"seed": "x"}, "args.seed: expected an integer", "got 'x'"),
    *(("1d", {key: 2.5}, f"args.{key}: expected an integer", "got 2.5") for key in WHOLE),
    *(("1d", {key: "no"}, f"args.{key}: expected true or false, got 'no'") for key in FLAGS),
    *(
        ("1d", {key: value}, f"args.{key}: expected a number of at least 0")
        for key in ("learning_rate", "scheduler_gamma")
        for value in ("x", -1.0, None, math.nan, math.inf)
    ),
    ("groups", {"filename": "2D_rdb_NA_NA.h5"}, LAYOUTS),
    ("groups", {"filename": "2D_Darcy"}, LAYOUTS),
    ("groups unet", H5, *ADVICE),
    ("groups", H5, *ADVICE),
]


@pytest.mark.parametrize("case", REFUSED, ids=str)
def test_settings_that_do_not_fit_are_refused(job, case):
    problem, args, *texts = case
    problem, _, family = problem.partition(" ")
    refused(job(problem, family or "fno", **args), *texts)


def test_settings_without_a_place(job):
    without = {k: v for k, v in job("1d").args.items() if k != "t_train"}
    refused(resolve(without), "args.t_train", "none of the chosen configs")


def test_names_of_folders(job, data, tmp_path):
    for path in (str(data), f"{data}/"):
        preflight.check(job("darcy", data_path=path))
    missing = (str(data / "nowhere.hdf5"), f"args.data_path={str(data)!r}", str(tmp_path))
    refused(job("darcy", filename="nowhere.hdf5"), *missing)
    given = job("darcy", data_path=data.parent, filename=f"{data.name}/2D_Darcy.hdf5")
    refused(given, f"there is no folder {tmp_path / data.name}", "args.data_path")
    steady = job("darcy", "unet", training_type="single")
    preflight.check(steady)


def runner(config):
    """Stands for the runner of a copy of PDEBench with a setting of its own."""
    return config.args.epochs, config.args.warmup, [config.args.clip for _ in "a"]


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ({"order": 3}, "ckb.order"),
        ({"directions": "cross"}, "ckb.directions"),
        ({"cell": "scan"}, "ckb.cell"),
        ({"ckb_order": 3}, "ckb.order"),
        ({"cbk": {"order": 3}}, "ckb"),
        ({"epoch": 3}, "epochs"),
        ({"learning_rat": 1}, "learning_rate"),
        ({"batchsize": 1}, "batch_size"),
        ({"seeds": 1}, "seed"),
    ],
)
def test_slips_are_errors(make_job, given, meant):
    job = make_job("darcy", model_name="chonn_unet", **given)
    (name,) = given
    with pytest.raises(JobError) as caught:
        arguments.check(job, [], runner)
    assert str(caught.value) == (
        f"args.{name}: not a setting of PDEBench, it would be ignored; did you mean ++args.{meant}?"
    )


@pytest.mark.parametrize("name", ["epochs", "epoch", "seed", "ckb", "order", "model_name"])
def test_settings_outside_args_are_errors(make_job, name):
    with pytest.raises(JobError, match=rf"^{name}: settings outside args are ignored; did you"):
        arguments.check(make_job("darcy", model_name="chonn_unet"), [name], runner)


def test_others_are_notes(make_job):
    """A tag for a sweep does no harm, and a stock model has no use for another's options."""
    ours = {"my": {"depth": 2}, "ckb": {"order": 2}, "checkpointing": True}
    job = make_job("darcy", model_name="FNO", tag="a", order=3, **ours)
    assert arguments.check(job, ["note"], runner) == [
        "args.tag is ignored: neither PDEBench nor FNO has such a setting",
        "args.order is ignored: neither PDEBench nor FNO has such a setting",
        "args.my is ignored: neither PDEBench nor FNO has such a setting",
        "note is ignored: PDEBench's settings are ++args.<name>",
    ]
    unet = make_job("darcy", "unet", checkpointing=True)
    assert arguments.check(unet, [], runner) == [
        "args.checkpointing is ignored: neither PDEBench nor Unet has such a setting"
    ]


def test_a_setting_of_pdebench_that_the_model_has_under_its_own_key_is_a_note(make_job):
    asked = ["++args.width=32", "args.modes=4", "seed=1"]
    job = make_job("darcy", model_name="chonn_network", ckb={"depth": 3})
    assert arguments.check(job, [], runner, asked) == [
        "args.width is ignored: chonn_network has its own, ++args.ckb.width"
    ]
    assert arguments.check(make_job("darcy", model_name="chonn_fno"), [], runner, asked) == []


def test_all_that_pdebench_lists_or_a_copy_reads_is_known(make_job, tmp_path):
    listed = {"mcmc_num_samples": 3, "inverse_epochs": 2, "aux_params": {"a": 1}, "val_time": 1}
    ours = {"seed": 1, "overwrite": True, "base_path": "x", "registered_model": "chonn_unet"}
    read = {"warmup": 1, "clip": 2}
    job = make_job("darcy", model_name="chonn_unet", **listed, **ours, **read)
    assert arguments.check(job, [], runner) == []

    (tmp_path / "config" / "args").mkdir(parents=True)
    (tmp_path / "config" / "config.yaml").write_text("args: {epoch: 1}\n")
    (tmp_path / "config" / "args" / "config_Own.yaml").write_text("note: 1\n")
    (tmp_path / "config" / "broken.yaml").write_text("a: [")
    scope: dict = {}
    exec(compile("def main(config): config.wandb", str(tmp_path / "runner.py"), "exec"), scope)
    job = make_job("darcy", epoch=3, note=2)
    assert arguments.check(job, ["wandb"], scope["main"]) == []


@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("foo", None),
        ("fun", None),
        ("resnet", None),
        ("chon_unet", "chonn_unet"),
        ("CHONN_FNO", "chonn_fno"),
        ("UNet", "Unet"),
        ("fnno", "FNO"),
    ],
)
def test_only_close_names_are_suggested(name, known):
    assert closest(name, [*HOST_MODELS, "chonn_unet", "chonn_fno"], arguments.CLOSE) == known


@pytest.fixture
def spoiled(data, tmp_path, monkeypatch, make_job):
    """``spoiled("darcy", "nu", 7, np.nan)``: why the job is refused, empty if it is not."""
    monkeypatch.chdir(tmp_path)

    def check(problem, key, index, value, **args):
        filename = PROBLEMS[problem][1]
        name = filename if filename.endswith(".hdf5") else f"{filename}.h5"
        shutil.copy(data / name, tmp_path / name)
        with h5py.File(tmp_path / name, "r+") as file:
            if abs(value) > 1e38:
                array = file[key][:].astype("f8")
                del file[key]
                file[key] = array
            file[key][index] = value
        job = make_job(problem, data_path=tmp_path, **args)
        try:
            preflight.check(job)
        except JobError as error:
            return str(error).removeprefix(f"{tmp_path / name}: ")
        return ""

    return check


@pytest.mark.parametrize(
    ("problem", "key", "index", "named"),
    [
        ("1d", "tensor", (7, 2, 3), "tensor, sample 7 (1 of 96 values, first nan)"),
        ("darcy", "tensor", (1, 0, 3, 4), "tensor, sample 1 (1 of 256 values, first nan)"),
        ("darcy", "nu", (19, 3), "nu, sample 19 (16 of 256 values, first nan)"),
        ("3d", "Vy", (7, 1, 3, 4, 5), "Vy, sample 7 (1 of 8192 values, first nan)"),
        ("groups", "0003/data", (1, 3, 4, 0), "group 0003, data (1 of 768 values, first nan)"),
        ("darcy", "x-coordinate", 3, "x-coordinate (1 of 16 values, first nan)"),
        ("groups", "0003/grid/y", 3, "group 0003, grid/y (1 of 16 values, first nan)"),
    ],
)
def test_a_sample_that_is_not_finite_is_named(spoiled, problem, key, index, named):
    reason = spoiled(problem, key, index, np.nan)
    assert reason.startswith(f"expected finite values (float32) only; not finite: {named}. ")


def test_what_float32_cannot_hold_is_infinite(spoiled):
    reason = spoiled("darcy", "tensor", (7, 0, 3, 4), 1e300)
    assert "tensor, sample 7 (1 of 256 values, first inf)" in reason


def test_all_bad_samples_are_counted(spoiled):
    reason = spoiled("darcy", "nu", slice(4, 11), np.inf)
    assert "nu, sample 4 (" in reason
    assert "nu, sample 8 (" in reason
    assert "nu, sample 9" not in reason
    assert ", and 2 more. " in reason


@pytest.mark.parametrize(
    ("problem", "key", "index", "args"),
    [
        # PDEBench reads every second sample and point only.
        ("1d", "tensor", 7, {"reduced_batch": 2}),
        ("1d", "tensor", (7, 2, 3), {"reduced_resolution": 2}),
        ("1d", "tensor", (7, 1), {"reduced_resolution_t": 2, "initial_step": 1, "t_train": 2}),
        # Frames 3 and 4 are not trained on.
        ("1d", "tensor", (7, 3), {"t_train": 3}),
        ("groups", "0003/data", 4, {"t_train": 3}),
        # The U-Net sees no coordinates.
        ("darcy", "x-coordinate", 3, {"family": "unet"}),
    ],
)
def test_what_a_job_does_not_use_is_its_own_affair(spoiled, problem, key, index, args):
    assert spoiled(problem, key, index, np.nan, **args) == ""


@pytest.mark.parametrize(
    ("problem", "training", "validation"),
    [("1d", "tensor", "tensor"), ("groups", "0003/data", "0019/data")],
)
def test_evaluation_uses_the_validation_split(spoiled, tmp_path, problem, training, validation):
    for name in ("1D_Advection_FNO.pt", "2D_rdb_NA_NA_FNO.pt"):
        torch.save({"model_state_dict": {}}, tmp_path / name)
    # The first tenth of arrays, the last one of groups, each with all its frames.
    assert spoiled(problem, training, 3, np.nan, if_training=False) == ""
    last = (1, 4) if problem == "1d" else 4
    assert "not finite" in spoiled(problem, validation, last, np.nan, if_training=False)


@pytest.mark.parametrize("grouped", [False, True])
def test_a_damaged_chunk_is_named(make_job, tmp_path, monkeypatch, grouped):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    path = tmp_path / ("packed.h5" if grouped else "packed.hdf5")
    with h5py.File(path, "w") as file:
        if grouped:
            for sample in range(SAMPLES):
                group = file.create_group(f"{sample:04d}")
                group.create_dataset("data", data=rng.random((5, 16, 16, 1)), compression="gzip")
                group["grid/x"] = group["grid/y"] = np.arange(16.0)
            chunk = file["0011/data"].id.get_chunk_info(0)
        else:
            tensor = rng.random((SAMPLES, 5, 2 * POINTS), dtype="f4")
            file.create_dataset("tensor", data=tensor, chunks=(4, 5, 32), compression="gzip")
            file["x-coordinate"] = np.arange(2 * POINTS)
            chunk = file["tensor"].id.get_chunk_info(2)
    damaged = bytearray(path.read_bytes())
    damaged[chunk.byte_offset + 20 : chunk.byte_offset + 60] = bytes(40)
    path.write_bytes(damaged)
    name = "packed" if grouped else path.name
    job = make_job("groups" if grouped else "1d", data_path=tmp_path, filename=name)
    with pytest.raises(JobError) as caught:
        preflight.check(job)
    where = "group 0011, data" if grouped else "tensor, samples 0 to 19"
    assert str(caught.value).startswith(f"{path}: {where}: cannot be read, the file is damaged")


def test_coordinates_of_two_axes_are_refused_unread(data, tmp_path, make_job):
    path = tmp_path / "2D_Darcy.hdf5"
    shutil.copy(data / path.name, path)
    with h5py.File(path, "r+") as file:
        del file["y-coordinate"]
        # HDF5 takes minutes to fill a row of this.
        file.create_dataset("y-coordinate", (2**20, 2**20), "f4", chunks=(1, 1))
    with pytest.raises(JobError, match=r"2D_Darcy\.hdf5.*y-coordinate: expected 16 coordinates"):
        preflight.check(make_job("darcy", data_path=tmp_path))
