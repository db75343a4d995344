"""Two processes of torchrun give the numbers of one."""

import os

import pytest
from running import TWO_PROCESSES, job, read, start

pytest.importorskip("filelock")
from chonn_ops.experiments import runs

pytestmark = pytest.mark.skipif(os.name != "posix", reason="gloo and sessions of POSIX")


@pytest.mark.slow
def test_two_processes(tmp_path):
    process = start(
        tmp_path,
        *("--scale", "smoke", "--set", "dropout=0", "--set", "noisy=true", "--accelerator", "cpu"),
        launcher=TWO_PROCESSES,
        OMP_NUM_THREADS="1",
    )
    out, errors = process.communicate(timeout=240)
    assert process.returncode == 0, errors
    assert "Traceback" not in errors
    # Lines come from one process only.
    assert out.count("run 1 of 2: order1 seed 0") == 1
    assert out.count("results in") == 1
    for variant in ("order1", "order2"):
        work = job(
            tmp_path / "single", "dropout=0", "noisy=true", variant=variant, accelerator="cpu"
        )
        alone = runs.execute(work)
        both = read(tmp_path / "runs" / "tiny" / work.scale / f"{variant}-seed0.json")
        assert both["hardware"]["processes"] == 2
        assert both["curve"]["epoch"] == alone.curve["epoch"]
        for name in ("train_loss", "validation_error"):
            assert both["curve"][name] == pytest.approx(alone.curve[name], rel=1e-5)
        assert both["metrics"]["test"] == pytest.approx(alone.metrics["test"], rel=1e-5)
        assert both["curves"]["by_sample"] == pytest.approx(alone.curves["by_sample"], rel=1e-5)


def test_refuses_several_workers_in_a_distributed_run(tmp_path):
    process = start(tmp_path, "--jobs", "2", "--accelerator", "cpu", WORLD_SIZE="2", RANK="0")
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 1
    assert "chonn: error: jobs: expected 1 in a distributed run, got 2" in errors
