"""Interrupted runs end at the numbers of uninterrupted ones; damaged files say what to do."""

import multiprocessing
import os
import random
import re
import signal
import time

import pytest
import torch
from running import job, numbers, prepared, read, start

pytest.importorskip("filelock")
from chonn_lab.experiments import provenance, training
from chonn_lab.experiments.records import Run
from chonn_lab.experiments.training import Training
from chonn_ops import files

pytestmark = pytest.mark.skipif(os.name != "posix", reason="POSIX signals")

STEPS = 12  # Of an epoch at scale "small".


def _execute(folder, kill_at, kill_in_write):
    """In a process of its own, which kills itself at a step or as it writes a checkpoint."""
    if kill_at:
        os.environ["TINY_KILL"] = f"order2:{kill_at}"
    if kill_in_write:
        files.publish = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
    training.execute(job(folder, "noisy=true", scale="small"))


def _exit_code(*arguments):
    # Imports once, in the server that the processes fork from.
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    process = context.Process(target=_execute, args=arguments)
    process.start()
    process.join(60)
    return process.exitcode


def _epochs(run):
    state = torch.load(run.folder / "last.ckpt", weights_only=True)["chonn_ops"]
    return len(state["history"]["train_loss"])


@pytest.mark.slow
def test_killed_five_times_at_random(tmp_path):
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    for folder in (whole, killed):
        prepared(folder / "data")
    assert _exit_code(whole, 0, False) == 0
    seed = time.time_ns()
    draw = random.Random(seed)
    run = job(killed, "noisy=true", scale="small")
    done = 0
    for attempt in range(5):
        if in_write := attempt == 2:
            step = 0
        else:
            # Steps of this part; the last epochs are left to the last part.
            step = draw.randint(STEPS + 1 if attempt == 0 else 1, STEPS * (9 - done) // 2)
            done += (step - 1) // STEPS
        assert _exit_code(killed, step, in_write) == -signal.SIGKILL, f"seed {seed}"
        assert not run.result.exists()
        assert bool(list(run.folder.glob(".*.tmp"))) == in_write
        assert _epochs(run) == done, f"seed {seed}"
    assert _exit_code(killed, 0, False) == 0
    again = Run.parse(read(run.result))
    expected = Run.parse(read(job(whole, "noisy=true", scale="small").result))
    assert numbers(again) == numbers(expected), f"seed {seed}"
    assert len(again.curve["epoch"]) == 12
    assert not list(run.folder.glob(".*.tmp"))


def _wait_for(folder, pattern, process):
    deadline = time.monotonic() + 240
    while not list(folder.glob(pattern)):
        assert process.poll() is None, process.communicate()
        if time.monotonic() > deadline:
            os.killpg(process.pid, signal.SIGKILL)
            pytest.fail(f"no {pattern}: {process.communicate()}")
        time.sleep(0.02)


@pytest.mark.slow
@pytest.mark.parametrize("jobs", [1, 2])
@pytest.mark.parametrize(("sent", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_interrupted(tmp_path, wait_for_end, jobs, sent, code):
    options = ("--scale", "small", "--set", "epochs=3000", "--jobs", jobs, "--variants", "order1")
    process = start(tmp_path, *options, "--seeds", jobs)
    run = job(tmp_path, "epochs=3000", variant="order1", scale="small")
    _wait_for(tmp_path, "runs/tiny/*/order1-seed0/last.ckpt", process)
    # A terminal sends Ctrl-C to the workers too; a plain `kill` reaches the parent only.
    (os.killpg if sent == signal.SIGINT else os.kill)(process.pid, sent)
    sending = time.monotonic()
    _, errors = process.communicate(timeout=60)
    assert time.monotonic() - sending < 30
    assert process.returncode == code, errors
    assert "chonn-lab: stopped; the same command goes on from here" in errors
    assert "Traceback" not in errors
    assert not run.result.exists()
    assert (run.folder / "last.ckpt").exists()
    wait_for_end(process.pid, 20)


@pytest.mark.slow
def test_killed_command_leaves_no_worker_behind(tmp_path, wait_for_end):
    options = ("--scale", "small", "--set", "epochs=3000", "--jobs", 2, "--variants", "order1")
    process = start(tmp_path, *options)
    _wait_for(tmp_path, "runs/tiny/*/order1-seed0/.lock", process)
    process.kill()
    process.communicate(timeout=60)
    wait_for_end(process.pid, 20)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    """Content of the checkpoint of a finished run."""
    work = job(tmp_path_factory.mktemp("finished"))
    training.execute(work)
    return (work.folder / "last.ckpt").read_bytes()


def _left(tmp_path, content, *assignments):
    """A job that finds this checkpoint, and where it is."""
    work = job(tmp_path, *assignments)
    path = work.folder / "last.ckpt"
    path.parent.mkdir(parents=True)
    path.write_bytes(content)
    return work, path


@pytest.mark.parametrize("part", [0, 0.5, 0.99])
def test_truncated_checkpoint(tmp_path, checkpoint, part):
    work, path = _left(tmp_path, checkpoint[: int(len(checkpoint) * part)])
    with pytest.raises(ValueError, match=f"{path}: damaged .*; remove {path} to start"):
        training.execute(work)
    path.unlink()
    assert training.execute(work).metrics


class Evil:
    def __reduce__(self):
        return os.system, ("touch ran",)


def test_refused_checkpoint_is_not_advised_to_be_loaded(tmp_path, checkpoint, monkeypatch):
    monkeypatch.chdir(tmp_path)
    work, path = _left(tmp_path, checkpoint)
    content = torch.load(path, weights_only=True)
    torch.save({**content, "evil": Evil()}, path)
    with pytest.raises(ValueError, match=r"damaged or foreign checkpoint \(") as caught:
        training.execute(work)
    text = str(caught.value)
    assert text.startswith(f"{path}: ")
    assert text.endswith(f"; remove {path} to start this run afresh")
    assert "weights_only" not in text
    assert "trust" not in text
    assert not (tmp_path / "ran").exists()


def test_damaged_checkpoint_says_why(tmp_path, checkpoint):
    """Wherever a bit has changed: a file and a sentence, no bare key, or the run as it was."""
    work, path = _left(tmp_path, checkpoint)
    training = Training(work, work.variant.build(work.config), provenance.of(work))
    draw = random.Random(0)
    refused: list[str] = []
    for _ in range(60):
        spoiled = bytearray(checkpoint)
        for _ in range(draw.choice((1, 20))):
            spoiled[draw.randrange(len(spoiled))] ^= 1 << draw.randrange(8)
        path.write_bytes(spoiled)
        try:
            training.restore()
        except ValueError as error:
            refused.append(str(error))
    assert len(refused) > 30
    for text in refused:
        found = re.fullmatch(
            rf"{path}: damaged or foreign checkpoint \((.*)\); remove {path} to start .*", text
        )
        assert found, text
        assert re.search("[a-z]{3,} [a-z]", found[1]), text


@pytest.mark.parametrize("lost", ["chonn_ops", "optimizer"])
def test_checkpoint_without_its_parts(tmp_path, checkpoint, lost):
    work, path = _left(tmp_path, checkpoint)
    content = torch.load(path, weights_only=True)
    del content[lost]
    torch.save(content, path)
    with pytest.raises(ValueError, match=f"{path}: checkpoint of another model .*; remove {path}"):
        training.execute(work)


def test_checkpoint_of_other_settings(tmp_path, checkpoint):
    work, path = _left(tmp_path, checkpoint, "epochs=3", "width=5")
    with pytest.raises(
        ValueError, match=r"epochs: 2 there, 3 here, width: 4 there, 5 here"
    ) as info:
        training.execute(work)
    assert f"remove {path} to start this run afresh" in str(info.value)


def test_finished_checkpoint_without_result(tmp_path, checkpoint):
    expected = training.execute(job(tmp_path / "other"))
    work, _ = _left(tmp_path, checkpoint)
    epochs = []
    run = training.execute(work, on_epoch=lambda: epochs.append(1))
    assert epochs == []
    assert numbers(run) == numbers(expected)


@pytest.mark.slow
@pytest.mark.parametrize("jobs", [1, 2])
def test_damaged_files_give_one_line_and_stop_nothing_else(tmp_path, checkpoint, jobs):
    prepared(tmp_path / "data")
    _, path = _left(tmp_path, checkpoint[:1000])
    process = start(tmp_path, "--scale", "smoke", "--jobs", jobs)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 1
    (line,) = [line for line in errors.splitlines() if "error" in line]
    relative = path.relative_to(tmp_path)
    assert line.startswith(
        f"chonn-lab: error: order2 seed 0: {relative}: damaged or foreign checkpoint"
    )
    assert "Traceback" not in errors
    assert (tmp_path / "runs" / "tiny" / "smoke" / "order1-seed0.json").exists()


def test_truncated_data(tmp_path):
    work = job(tmp_path)
    data = tmp_path / "data" / "tiny" / "tiny32.hdf5"
    data.write_bytes(data.read_bytes()[:-1000])
    with pytest.raises(ValueError, match=f"{data}: damaged"):
        training.execute(work)


@pytest.mark.slow
def test_dead_worker_takes_one_run_with_it(tmp_path):
    process = start(
        tmp_path, "--scale", "smoke", "--seeds", "2", "--jobs", "2", TINY_KILL="order2:5"
    )
    out, errors = process.communicate(timeout=120)
    assert process.returncode == 1
    reason = "its process was ended by SIGKILL, perhaps for lack of memory"
    for seed in (0, 1):
        assert f"chonn-lab: error: order2 seed {seed}: {reason}" in errors
        assert (tmp_path / "runs" / "tiny" / "smoke" / f"order1-seed{seed}.json").exists()
    assert "order2 seed 0: failed" in out
    assert "Traceback" not in errors
