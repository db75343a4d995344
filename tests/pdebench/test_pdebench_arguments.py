"""Settings that nobody would read are errors where another was meant, else notes."""

import pytest

from chonn_plugins._entry_points import closest
from chonn_plugins.pdebench import JobError, arguments
from chonn_plugins.pdebench.registry import HOST_MODELS


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
