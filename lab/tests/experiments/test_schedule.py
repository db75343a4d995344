"""Which runs a command stands for, how fields are set, and what is said at the end."""

import dataclasses
import pickle
import re

import pytest
import result_files
from running import NAME, job, numbers, prepared
from tiny import EXPERIMENT

pytest.importorskip("filelock")
from chonn_lab.experiments import schedule
from chonn_lab.experiments.jobs import folder_name, parse_settings
from chonn_lab.experiments.records import Run
from chonn_lab.experiments.schedule import Finished
from chonn_lab.experiments.training import explain
from chonn_lab.report.comparison import Statistic
from chonn_lab.report.tables import run_table

CONFIG = EXPERIMENT.scales["smoke"]


def plan(folder, scale="smoke", **options):
    return schedule.plan(NAME, scale, output=folder / "runs", data=folder / "data", **options)


def test_plan(tmp_path):
    jobs = plan(tmp_path, seeds=2, assignments=["seed=5"])
    assert [(job.variant_name, job.seed) for job in jobs] == [
        ("order1", 5),
        ("order2", 5),
        ("order1", 6),
        ("order2", 6),
    ]
    assert {job.scale for job in jobs} == {"smoke"}
    (only,) = plan(tmp_path, variants=["order2"])
    assert only.config.learning_rate == 2e-3


def test_set_wins_over_the_variant(tmp_path):
    jobs = plan(tmp_path, assignments=["learning_rate=0.5", "modes=10,5,3", "noisy=True"])
    for found in jobs:
        config = found.config
        assert (config.learning_rate, config.modes, config.noisy) == (0.5, (10, 5, 3), True)
        assert found.scale == "smoke+learning_rate=0.5,modes=10-5-3,noisy=True"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"scale": "tiny"}, "scale: expected one of smoke, small, paper, got 'tiny'"),
        ({"variants": ["cno"]}, "variant: expected one of order1, order2, got 'cno'"),
        ({"assignments": ["epochs"]}, "expected field=value, got 'epochs'"),
        ({"assignments": ["epoks=3"]}, "epoks: no such field, expected one of n_train, .*, modes"),
        ({"assignments": ["epochs=3.5"]}, "epochs: expected an integer, got '3.5'"),
        ({"assignments": ["learning_rate=nan"]}, "learning_rate: expected a finite number"),
        (
            {"assignments": ["learning_rate=fast"]},
            "learning_rate: expected a finite number, got 'fast'",
        ),
        ({"assignments": ["noisy=1"]}, "noisy: expected true or false, got '1'"),
        ({"assignments": ["modes=1,x"]}, "modes: expected an integer, got 'x'"),
        ({"assignments": ["epochs=0"]}, "epochs: expected at least 1, got 0"),
        ({"assignments": ["schedule=linear"]}, "schedule: expected one of .* got 'linear'"),
    ],
)
def test_wrong_plans(tmp_path, options, message):
    with pytest.raises(ValueError, match=message):
        plan(tmp_path, **options)


def test_folder_names_tell_settings_apart():
    def name(**values):
        return folder_name("small", CONFIG, values)

    assert name() == "small"
    assert name(seed=3, epochs=CONFIG.epochs) == "small"
    assert name(n_train=4, epochs=1) == "small+epochs=1,n_train=4"
    assert name(schedule="a/b c") == "small+schedule=a_b_c"


def test_fields_of_other_types_cannot_be_set():
    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Odd(type(CONFIG)):
        table: dict = dataclasses.field(default_factory=dict)

    with pytest.raises(ValueError, match="table: cannot be set from text"):
        parse_settings(Odd(**vars(CONFIG)), ["table=1"])


def test_workers_give_the_numbers_of_one_process(tmp_path, capsys):
    """Persistent workers leave nothing behind from one run to the next."""
    alone = schedule.run_all(plan(prepared_folder(tmp_path / "one"), seeds=2), 1)
    side_by_side = schedule.run_all(plan(prepared_folder(tmp_path / "two"), seeds=2), 2)
    assert not alone.failures
    assert not side_by_side.failures
    for one, other in zip(alone.runs, side_by_side.runs, strict=True):
        assert (one.variant, one.seed) == (other.variant, other.seed)
        assert one.curve["train_loss"] == pytest.approx(other.curve["train_loss"], rel=1e-4)
    assert {run.hardware["threads"] for run in side_by_side.runs} == {1}
    captured = capsys.readouterr()
    assert re.search(r"run 3 of 4: order1 seed 1, about \d\d:\d\d", captured.out)
    assert "4 runs" in captured.err

    again = schedule.run_all(plan(tmp_path / "one", seeds=2), 2)
    assert [numbers(r) for r in again.runs] == [numbers(r) for r in alone.runs]
    assert capsys.readouterr().out.count("finished before") == 4


def prepared_folder(folder):
    prepared(folder / "data")
    return folder


def test_table():
    def run(variant, seed, error):
        metrics = {} if error is None else {"test": {"l2": error}, "far": {"l2": 10 * error}}
        made = result_files.record("mine", variant, {"family": "x"}, 1.0, seed)
        return Run.parse({**made, "parameters": 12345, "metrics": metrics})

    runs = [run("a", 0, 1.0), run("a", 1, 3.0), run("b", 0, 0.5), run("b", 1, None)]
    header, *rows = (re.split(r" {2,}", line) for line in run_table(runs).splitlines())
    assert header == ["variant", "split", "runs", "parameters", "l2"]
    assert [row[:4] for row in rows] == [
        ["a", "test", "2", "12,345"],
        ["a", "far", "2", "12,345"],
        ["b", "test", "2", "12,345"],
        ["b", "far", "2", "12,345"],
    ]
    for row, values in zip(rows, [(1, 3), (10, 30), (0.5, None), (5, None)], strict=True):
        assert row[4] == str(Statistic.of(values))
    assert "1 of 2 diverged" in rows[2][4]
    assert run_table([run("b", 0, None)]).splitlines()[1].split() == ["b", "test", "1", "12,345"]


def test_unforeseen_errors_leave_their_traceback_in_a_file(tmp_path):
    work = job(tmp_path)
    assert explain(work, ValueError("first\n  second")) == "first second"
    try:
        raise RuntimeError("out of order")
    except RuntimeError as error:
        text = explain(work, error)
    (path,) = work.folder.glob("error-*.txt")
    assert text == f"RuntimeError: out of order (traceback in {path})"
    assert "test_unforeseen_errors" in path.read_text()


def test_what_happened_is_said(tmp_path, capsys):
    finished = Finished()
    work = job(tmp_path)
    run = Run.parse(result_files.record("mine", "order2", {"family": "x"}, 1.0))
    run = dataclasses.replace(run, seconds=7.2, metrics={"test": {"l2": 0.123456, "l1": None}})
    finished.add(work, run)
    finished.add(work, dataclasses.replace(run, metrics={}, diverged="in epoch 3"))
    finished.fail(work, "no reason")
    assert capsys.readouterr().out.splitlines() == [
        "order2 seed 0: l2 0.1235, l1 -; 7 s of training",
        "order2 seed 0: diverged: in epoch 3",
        "order2 seed 0: failed",
    ]
    assert finished.failures == {work: "no reason"}


def test_a_job_goes_to_another_process_by_its_names(tmp_path):
    work = job(tmp_path, "epochs=3")
    assert work.variant.build(work.config)  # what cannot be pickled is there
    again = pickle.loads(pickle.dumps(work))
    assert (again.variant_name, again.config, again.result) == (
        *(work.variant_name, work.config, work.result),
    )


def test_unknown_device(tmp_path):
    with pytest.raises(ValueError, match=r"accelerator: expected one of .*, got 'tpu'"):
        plan(tmp_path, accelerator="tpu")


def test_data_are_made_for_every_size_of_one_variant(tmp_path):
    few, many = (plan(tmp_path, variants=["order1"], assignments=[f"n_train={n}"]) for n in (8, 16))
    finished = schedule.run_all([*few, *many], 1)
    assert not finished.failures
    assert [run.config["n_train"] for run in finished.runs] == [8, 16]
