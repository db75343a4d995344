"""What a job begins with: whole checkpoints of its own frames, and rates of its own settings. What
it leaves: every evaluation's metrics."""

import json

import pytest
import torch

from chonn_plugins.pdebench import JobError, patches, preflight
from chonn_plugins.pdebench.results import free_name

check = preflight.check
ONE = {"initial_step": 1}
CONTENT = {"model_state_dict": {}, "optimizer_state_dict": {}, "epoch": 3, "loss": 0.5}


@pytest.fixture
def job(make_job, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return make_job


def saved(job, **content):
    """The checkpoint that the job's training writes."""
    layout = preflight.read_layout(job)
    path = job.checkpoint(layout.frames)
    patches.WholeSave(job.settings(layout.space))({**CONTENT, **content}, path)
    return path


@pytest.mark.parametrize("use", [{"if_training": False}, {"continue_training": True}])
@pytest.mark.parametrize("name", ["chonn_network", "chonn_unet", "FNO", "Unet"])
def test_a_checkpoint_that_was_cut_short(job, use, name):
    family = "unet" if "unet" in name.lower() else "fno"
    path = saved(job("darcy", family, model_name=name))
    given = job("darcy", family, model_name=name, **use, batch_size=2)
    check(given)
    whole = path.read_bytes()
    for part in (whole[: len(whole) // 2], b"", b"text"):
        path.write_bytes(part)
        with pytest.raises(JobError) as caught:
            check(given)
        expected = f"{path.resolve()}: expected a checkpoint, got {len(part)} bytes that cannot be"
        assert str(caught.value).startswith(expected)


def test_a_checkpoint_of_something_else(job):
    path = saved(job("darcy"))
    torch.save({"model_state_dict": {}}, path)
    check(job("darcy", if_training=False))
    with pytest.raises(JobError, match="missing optimizer_state_dict, epoch, loss"):
        check(job("darcy", continue_training=True))
    torch.save([1], path)
    with pytest.raises(JobError, match="missing model_state_dict"):
        check(job("darcy", if_training=False))


@pytest.mark.parametrize("name", ["chonn_network", "chonn_fno", "FNO"])
@pytest.mark.parametrize(
    ("then", "now", "text"),
    [
        ({"initial_step": 2}, ONE, "expected initial_step=2, got 1"),
        ({**ONE, "reduced_resolution_t": 2}, ONE, "expected reduced_resolution_t=2, got 1"),
    ],
)
def test_frames_of_another_training(job, name, then, now, text):
    saved(job("1d", model_name=name, **then))
    for use in ({"if_training": False}, {"continue_training": True}):
        check(job("1d", model_name=name, **use, **then))
        with pytest.raises(JobError, match=text):
            check(job("1d", model_name=name, **use, **now))


def test_points_of_another_training(job):
    """Convolutions and scans belong to a grid; the others to the domain."""
    for name, ckb, fits in (
        ("chonn_network", {}, True),
        ("chonn_fno", {}, True),
        ("chonn_fno", {"cell": "scan"}, False),
        ("FNO", {}, True),
        ("chonn_unet", {}, False),
        ("Unet", {}, False),
    ):
        family = "unet" if "unet" in name.lower() else "fno"
        options = {"ckb": ckb} if ckb else {}
        saved(job("1d", family, model_name=name, reduced_resolution=2, **options))
        given = job("1d", family, model_name=name, if_training=False, **options)
        if fits:
            check(given)
            continue
        with pytest.raises(JobError, match=r"expected points=\[16\], got \[32\]"):
            check(given)


def test_the_reader_of_groups_keeps_all_frames(job):
    settings = {"model_name": "chonn_network"}
    saved(job("groups", **settings, reduced_resolution_t=2))
    check(job("groups", **settings, if_training=False))


def test_a_model_of_another_size_is_refused(job):
    saved(job("darcy", width=8, modes=3))
    with pytest.raises(JobError, match=r"belongs to them: expected width=8, got 6$"):
        check(job("darcy", width=6, modes=3, if_training=False))


def test_checkpoints_without_settings_are_taken(job):
    path = saved(job("1d"))
    torch.save(CONTENT, path)
    check(job("1d", initial_step=1, if_training=False))


@pytest.mark.parametrize(
    ("rate", "step", "gamma"), [(1e-2, 2, 0.8), (5e-3, 2, 0.8), (1e-2, 1, 0.5), (1e-2, 4, 0.5)]
)
def test_a_training_goes_on_with_the_rates_of_its_own_settings(rate, step, gamma):
    """Trained five epochs at 1e-2, times 0.8 after every second one."""

    def training(rate, step, gamma):
        optimizer = torch.optim.Adam([torch.zeros(1, requires_grad=True)], lr=rate)
        return optimizer, torch.optim.lr_scheduler.StepLR(optimizer, step, gamma)

    def rates(optimizer, schedule, epochs):
        found = []
        for _ in range(epochs):
            found.append(optimizer.param_groups[0]["lr"])
            optimizer.step()
            schedule.step()
        return found

    begun = training(1e-2, 2, 0.8)
    rates(*begun, 4)
    # PDEBench saves in an epoch, before the schedule's step.
    begun[0].step()
    state = {"epoch": 4, "optimizer_state_dict": begun[0].state_dict()}
    state[patches.RANDOM] = torch.get_rng_state()
    optimizer, schedule = training(rate, step, gamma)
    content = patches.after_its_epoch(state, schedule)
    optimizer.load_state_dict(content["optimizer_state_dict"])  # as PDEBench does
    assert content["epoch"] == 5
    found, expected = rates(optimizer, schedule, 6), rates(*training(rate, step, gamma), 11)[5:]
    assert found == pytest.approx(expected, rel=1e-12)
    if (rate, step, gamma) == (1e-2, 2, 0.8):
        assert found == expected  # to the last digit


def test_metrics_of_another_evaluation_are_kept(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    first, second = {"reduced_resolution": 2}, {"reduced_resolution": 1}

    def write(args):
        name = free_name("m", args)
        (tmp_path / f"{name}_metrics.json").write_text(json.dumps({"args": args}))
        return name

    assert [write(args) for args in (first, first, second, first, second)] == [
        *("m", "m", "m-2", "m", "m-2")
    ]
    for text in ("{}", "[]", "not JSON"):
        (tmp_path / "m_metrics.json").write_text(text)
        assert write(first) == "m-3"
        assert (tmp_path / "m_metrics.json").read_text() == text


@pytest.mark.host
@pytest.mark.slow
def test_evaluations_of_one_checkpoint(tmp_path, pdebench):
    """Through PDEBench's runner: what fits has a file for each grid, what does not is one line."""
    settings = {"model_name": "chonn_network", "reduced_resolution": 2, "t_train": 5}
    rollout = {"training_type": "pushforward", "checkpointing": True}
    printed = pdebench(tmp_path, "1d", **settings, **rollout)
    assert "epoch: 0, loss:" in printed
    assert "checkpointing" not in printed  # no note that it is ignored
    pdebench(tmp_path, "1d", **settings, if_training=False)
    settings["reduced_resolution"] = 1
    printed = pdebench(tmp_path, "1d", **settings, if_training=False)
    assert "chonn-network-2_metrics.txt and .json" in printed
    files = (f"1D_Advection_chonn-network{n}_metrics.json" for n in ("", "-2"))
    reports = [json.loads((tmp_path / name).read_text()) for name in files]
    assert [report["args"]["reduced_resolution"] for report in reports] == [2, 1]
    for wrong in ({"initial_step": 1}, {"reduced_resolution_t": 2, "initial_step": 2}):
        line = pdebench(tmp_path, "1d", fails=True, if_training=False, **{**settings, **wrong})
        assert "expected the settings of its training" in line
        assert "Traceback" not in line
    pdebench(tmp_path, "darcy", model_name="FNO")
    line = pdebench(tmp_path, "darcy", model_name="FNO", width=4, if_training=False, fails=True)
    assert "expected width=6, got 4" in line
    assert "Traceback" not in line
