"""PDEBench's runner under torchrun: two processes end where one does, and one of them may die."""

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from chonn_plugins.pdebench import processes
from chonn_plugins.pdebench.contract import JobError
from conftest import SMALL

RUNNER = "pdebench.models.train_models_forward"
TWO = ("-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2", "-m", RUNNER)
SETTINGS = {"batch_size": 6, "epochs": 3, "model_update": 1, "seed": 0}


def validation_losses(printed: str) -> list[float]:
    return [float(loss) for loss in re.findall(r"testL2: ([\d.e+-]+)", printed)]


@pytest.mark.slow
@pytest.mark.host
@pytest.mark.parametrize("name", ["chonn_network", "chonn_fno", "FNO", "chonn_unet", "Unet"])
def test_two_processes_have_the_validation_losses_of_one(tmp_path, pdebench, name):
    """The batch norms of U-Nets take their statistics from the samples of their own process."""
    unet = "unet" in name.lower()
    problem, size = ("1d", 2) if unet else ("darcy", 6)  # U-Nets need equal batches
    settings = {**SETTINGS, "model_name": name, "batch_size": size}
    expected = validation_losses(pdebench(tmp_path, problem, **settings))
    (tmp_path / "two").mkdir()
    printed = pdebench(tmp_path / "two", problem, program=TWO, **settings)
    found = validation_losses(printed)
    assert found == pytest.approx(expected, rel=0.3 if unet else 1e-3)
    assert printed.count("Total parameters") == 1
    [checkpoint] = (tmp_path / "two").iterdir()
    assert torch.load(checkpoint)["loss"] == pytest.approx(min(found), rel=1e-3)


@pytest.mark.slow
@pytest.mark.host
@pytest.mark.skipif(not Path("/proc").is_dir(), reason="finds processes in /proc")
@pytest.mark.parametrize("name", ["chonn_fno", "FNO"])
def test_a_killed_training_ends_as_an_uninterrupted_one(
    tmp_path, pdebench, data, environment, name
):
    """One of two processes dies; the training goes on with one process, and with two."""
    cut = tmp_path / "cut"
    cut.mkdir()
    # The rate falls in every other epoch.
    schedule = {"scheduler_step": 2, "scheduler_gamma": 0.8}
    settings = {**SMALL, **SETTINGS, **schedule, "model_name": name}
    given = {**settings, "epochs": 10_000, "data_path": data, "filename": "2D_Darcy.hdf5"}
    overrides = [f"++args.{key}={value}" for key, value in given.items()]
    command = [sys.executable, *TWO, "+args=config_Darcy.yaml", *overrides]
    log = tmp_path / "log"
    with log.open("w") as out:
        started = subprocess.Popen(command, cwd=cut, env=environment(), stdout=out, stderr=out)
    deadline = time.monotonic() + 120
    while not re.search(r"epoch: [3-9]", log.read_text()):
        assert started.poll() is None, log.read_text()
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.01)
    os.kill(worker(started.pid, rank=1), signal.SIGKILL)
    assert started.wait(60) != 0
    [checkpoint] = cut.iterdir()
    epochs = torch.load(checkpoint)["epoch"] + 1
    shutil.copytree(cut, tmp_path / "alone")

    settings = {**settings, "epochs": epochs + 3}
    expected = validation_losses(pdebench(tmp_path, "darcy", **settings))[epochs:]
    for folder, program in (("cut", {"program": TWO}), ("alone", {})):
        resumed = {**settings, **program, "continue_training": True}
        found = validation_losses(pdebench(tmp_path / folder, "darcy", **resumed))
        assert len(found) == 3
        assert found == pytest.approx(expected, rel=1e-3)


def worker(launcher: int, rank: int) -> int:
    """The process of this rank that torchrun has started."""
    children = Path(f"/proc/{launcher}/task/{launcher}/children").read_text().split()
    wanted = f"\0RANK={rank}\0".encode()
    [found] = [c for c in children if wanted in Path(f"/proc/{c}/environ").read_bytes()]
    return int(found)


@pytest.mark.parametrize(
    ("settings", "sweep", "message"),
    [
        ({"if_training": False}, False, "if_training=False: expected one process, got 2; start it"),
        ({}, True, "--multirun: expected one job for each torchrun"),
        ({"batch_size": 5}, False, "batch_size=5: expected a multiple of the 2 processes"),
    ],
)
def test_what_only_one_process_can_do(make_job, monkeypatch, settings, sweep, message):
    job = make_job("darcy", **settings)
    processes.join(job, sweep=sweep)
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(JobError, match=message):
        processes.join(job, sweep=sweep)
