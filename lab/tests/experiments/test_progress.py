"""Bars that end at the end: all runs, 100 %, no time left, epochs counted as people do."""

import io
import re

import pytest
import result_files
from running import NAME, job, prepared

pytest.importorskip("filelock")
from chonn_lab.experiments import schedule, training
from chonn_lab.experiments.records import Run


class Worker:
    """Stands for a process: gives what it is told to, in turn."""

    def __init__(self, work, messages):
        self.job = work
        self.messages = iter(messages)
        self.connection = object()
        self.process = self

    def receive(self):
        return next(self.messages)

    def is_alive(self):
        return False

    def close(self):
        pass


def bars(text):
    """Every state of the bar: (runs that ended, of how many, per cent, the rest)."""
    pattern = r"(\d+) of (\d+) runs +(\d+)%\|[^|]*\|([^\r\n]*)"
    return [(int(a), int(b), int(c), rest) for a, b, c, rest in re.findall(pattern, text)]


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    "epochs",
    [
        (3, 3, 3, 3, 3, 3, 3),
        # Resumed, failed at once, and none left to train.
        (3, 0, 1, 0, 0, 2, 3),
        (0,) * 7,
        (0,),
        (3,),
    ],
)
def test_bar_of_many_runs_ends_complete(tmp_path, monkeypatch, capsys, epochs):
    screen = io.StringIO()
    monkeypatch.setattr(schedule.sys, "stderr", screen)
    jobs = schedule.plan(
        NAME, "smoke", output=tmp_path, data=tmp_path, seeds=4, assignments=["epochs=3"]
    )[: len(epochs)]
    progress = schedule._Pool(jobs, schedule.Finished())
    run = Run.parse(result_files.record("mine", "order1", {"family": "x"}, 1.0))
    with progress._bar:
        for place, (work, count) in enumerate(zip(jobs, epochs, strict=True)):
            end = "a failure" if place % 3 == 1 else run
            worker = Worker(work, [*[None] * count, end])
            progress._waiting.clear()
            progress._workers[worker.connection] = worker
            for _ in range(count + 1):
                progress._receive(worker)
            progress._bar.refresh()
    states = bars(screen.getvalue())
    assert states[0][:3] == (0, len(jobs), 0)
    assert states[-1][:3] == (len(jobs), len(jobs), 100)
    for ended, total, percent, rest in states:
        assert (percent == 100) == (ended == total == len(jobs))
        assert "<-" not in rest
    capsys.readouterr()


@pytest.mark.parametrize("epochs", [1, 2])
def test_bar_of_one_run_counts_epochs_from_one(tmp_path, capsys, epochs):
    prepared(tmp_path / "data")
    training.execute(job(tmp_path, f"epochs={epochs}"), progress=True)
    captured = capsys.readouterr()
    shown = captured.out + captured.err
    lines = [line for line in re.split(r"[\r\n]", captured.err) if line.strip()]
    assert re.match(rf"Epoch {epochs}/{epochs}: 100%\|.*\| 4/4 ", lines[-1])
    assert "train_loss=" in lines[-1]
    assert {line.partition(":")[0] for line in lines} == {
        f"Epoch {epoch}/{epochs}" for epoch in range(1, epochs + 1)
    }
    assert "v_num" not in shown
