"""Runs: result files, the trainer against a plain loop, resuming, launchers, what is in the way,
and checkpoints as `chonn inspect` reads them."""

import copy
import hashlib
import json
import os
import re
import signal

import commands
import h5py
import numpy as np
import pytest
import torch
from running import TINY, Work, command, numbers, places, read

from chonn_lab.experiments import provenance, runner
from chonn_lab.experiments.checkpoints import read_model
from chonn_lab.experiments.configuration import build_model, build_problem, compose, resolved
from chonn_lab.experiments.curves import curves
from chonn_lab.experiments.records import Run
from chonn_lab.experiments.runner import STATE


def spoil(path):
    """Other data of the same shape."""
    with h5py.File(path, "r+") as file:
        file["targets"][0] += 1


def test_result_file(tmp_path):
    work = Work(tmp_path, "train.epochs=3")
    run = work.run()
    content = read(work.result)
    assert content == {"generator": "chonn-ops", **vars(run)}
    assert (run.experiment, run.scale, run.variant) == ("tiny", "smoke", "order2")
    assert (run.label, run.tags) == ("Order 2", {"order": 2})
    expected = {"epochs": 3, "learning_rate": 2e-3, "n_train": 32}
    assert expected.items() <= run.config.items()
    assert {"width", "epochs"} <= set(run.changes)
    assert not {"n_train", "noisy"} & set(run.changes)
    assert run.versions["torch"] == torch.__version__.partition("+")[0]
    assert run.hardware["device"] == "cpu"
    assert run.parameters == 169
    assert 0 < run.seconds < 60
    assert 10 < run.peak_memory_mib < 10_000
    data = work.data.read_bytes()
    sha256 = hashlib.sha256(data).hexdigest()
    assert run.data == {"tiny32.hdf5": {"sha256": sha256, "size": len(data)}}
    assert (run.commit, run.dirty) == provenance.commit()
    assert run.code == provenance.digest()


def test_equals_a_plain_loop(tmp_path):
    """Two batches of 12 out of 32 samples: a last incomplete one is left out."""
    work = Work(tmp_path, "model.dropout=0", "train.epochs=3", "train.batch_size=12")
    run = work.run()
    problem = build_problem(work.found)
    data = problem.load(work.data.parent)
    torch.manual_seed(0)
    model = build_model(work.found, problem)
    optimizer = torch.optim.AdamW(model.parameters(), 2e-3, weight_decay=0)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 3)
    losses, errors = [], []
    for number in range(3):
        # The order is drawn from seed and epoch: the next seed's epochs are none of this one's.
        torch.manual_seed(int(np.random.SeedSequence((0, number)).generate_state(1)[0]))
        model.train()
        total = 0.0
        for chosen in torch.randperm(32).split(12)[:2]:
            loss = problem.loss(model, data.train[chosen])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item() / 2
        schedule.step()
        model.eval()
        losses.append(total)
        with torch.no_grad():
            errors.append(problem.errors(model, data.validation[:]).mean().item())
    assert run.curve["epoch"] == [1, 2, 3]
    assert run.curve["train_loss"] == pytest.approx(losses, rel=1e-6)
    assert run.curve["validation_error"] == pytest.approx(errors, rel=1e-6)
    scores = problem.evaluate(model, data)["metrics"]["test"]
    assert run.metrics["test"] == pytest.approx(scores, rel=1e-6)


def test_steps_as_the_paper_has_them(tmp_path):
    values = ("learning_rate=1", "beta2=0.5", "weight_decay=0.25", "optimizer=adam", "step_size=2")
    found = Work(tmp_path, *(f"train.{value}" for value in values), "train.schedule=step").found
    training = runner.Training(found, None, torch.nn.Linear(1, 1), provenance.Provenance())
    name, has = type(training.optimizer).__name__, training.optimizer.defaults
    assert (name, has["betas"], has["weight_decay"]) == ("Adam", (0.9, 0.5), 0.25)
    for rate in (1, 1, 0.5, 0.5):
        assert training.schedule.get_last_lr() == [rate]
        training.optimizer.step()
        training.schedule.step()


def test_a_training_by_seconds_ends_with_them(tmp_path):
    """The rate falls to 0 over the seconds; few samples are seen again and again."""
    work = Work(tmp_path, "train.seconds=0.5", "train.samples=3", "train.batch_size=16")
    problem, data = build_problem(work.found), []
    loss, model = problem.loss, build_model(work.found, problem)
    problem.loss = lambda model, batch: data.append(batch) or loss(model, batch)
    problem.prepare(work.data.parent)
    training = runner.Training(work.found, problem, model, provenance.Provenance())
    training.fit(problem.load(work.data.parent))
    assert 0.5 <= training.seconds < 1.5
    assert training.epochs > 1
    # How far from 0 depends on the seconds of the last step.
    assert training.optimizer.param_groups[0]["lr"] < 0.01 * work.found["train"]["learning_rate"]
    assert len(torch.cat([inputs for inputs, _ in data]).unique(dim=0)) == 3


def test_curves_are_trainings_on_more_samples_and_for_longer(tmp_path):
    """What is finished is read."""
    given = ["curves.samples=[4,8]", "curves.seconds=[0.02,0.05]", "curves.at=0.05"]
    given += ["problem.n_train=32", "train.batch_size=4"]
    config = compose([*TINY, *places(tmp_path), *given], "curves")
    runs = [*curves(config, tmp_path / "small+curves")]
    points = [(run.config["samples"], run.config["seconds"]) for run in runs]
    assert points == [(32, 0.02), (4, 0.05), (8, 0.05), (32, 0.05)]
    assert {run.scale for run in runs} == {"small+curves"}
    assert len({tuple(run.data) for run in runs}) == 1
    assert [*curves(config, tmp_path / "small+curves")] == runs


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("train.batch_size=33", "batch_size: expected at most the 32 training samples, got 33"),
        ("train.seconds=0", "seconds: expected a finite number > 0, got 0"),
        ("train.samples=33", "samples: expected at most 32, got 33"),
        ("train.epochs=two", "epochs: expected an integer of at least 1, got 'two'"),
        ("train.learning_rate=high", "learning_rate: expected a number, got 'high'"),
        ("train.learning_rate=-1", "Invalid learning rate: -1"),
        ("problem.noisy=no", "noisy: expected a bool, got 'no'"),
        ("train.optimizer=sgd", "optimizer: expected one of .*adamw.*, got 'sgd'"),
        ("problem.n_test=0", "n_test: expected an integer of at least 1, got 0"),
        ("+problem.n_tests=1", "Tiny: .* unexpected keyword argument 'n_tests'"),
        ("+model.widht=1", "network: .* unexpected keyword argument 'widht'"),
        ("+train.lr=1", "train: expected no settings lr$"),
        ("seed=one", "seed: expected an integer of at least 0, got 'one'"),
        ("threads=0", "threads: expected an integer of at least 1, got 0"),
        ("device=tpu", "device: expected one of .*cpu.*, got 'tpu'"),
    ],
)
def test_bad_settings(tmp_path, override, message):
    with pytest.raises(ValueError, match=message):
        Work(tmp_path, override).run()
    assert not list(tmp_path.glob("runs/**/*.json"))


def test_finished_runs_are_read_and_others_are_in_the_way(tmp_path):
    work = Work(tmp_path)
    record = work.run()
    kept, written = work.result.read_bytes(), work.result.stat().st_mtime_ns
    work.checkpoint.unlink()
    assert work.run() == record
    other = Work(tmp_path, "train.epochs=9", "model.width=5")
    message = "other settings .epochs: 2 there, 9 here, width: 4 there, 5 here.; move it away"
    with pytest.raises(ValueError, match=message) as caught:
        other.run()
    assert str(work.result) in str(caught.value)
    spoil(work.data)
    with pytest.raises(ValueError, match=r"of other data \(data tiny32.hdf5: .*; move it away"):
        work.run()
    assert (work.result.read_bytes(), work.result.stat().st_mtime_ns) == (kept, written)


def test_damaged_results(tmp_path):
    work = Work(tmp_path)
    work.run()
    record = read(work.result)
    del record["seconds"]
    text = json.dumps(record)
    for damaged in (text, text[:100]):
        work.result.write_text(damaged)
        with pytest.raises(ValueError, match=r"order2-seed0\.json: damaged, or no result .* away"):
            work.run()


# Four steps an epoch: the first to notice are the next step, validation, and again the next step.
@pytest.mark.parametrize(("step", "epochs"), [(1, 0), (4, 0), (6, 1)])
def test_divergence_is_a_result_without_scores(tmp_path, step, epochs):
    work = Work(tmp_path, f"problem.spoiled_step={step}")
    run = work.run()
    assert run.diverged == f"training loss or weights not finite in epoch {epochs + 1}"
    assert run.curve["epoch"] == list(range(1, epochs + 1))
    assert run.metrics == {}
    assert Run.parse(read(work.result)) == run


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="POSIX signals")
def test_killed_runs_end_at_the_same_numbers(tmp_path):
    """Killed in the second epoch and in the third one, of four steps each."""
    settings, found = ("problem.noisy=true", "train.epochs=6"), []
    for name, kills in (("whole", ()), ("killed", (6, 7))):
        folder = tmp_path / name
        folder.mkdir()
        for step in kills:
            command(folder, *settings, code=-signal.SIGKILL, TINY_KILL=f"order2:{step}")
            assert not list(folder.glob("runs/tiny/*/*.json"))
        command(folder, *settings)
        (result,) = folder.glob("runs/tiny/*/*.json")
        found.append(numbers(read(result)))
    assert found[0] == found[1]


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    """Content of the checkpoint of a finished run."""
    work = Work(tmp_path_factory.mktemp("finished"))
    work.run()
    return work.checkpoint.read_bytes()


def left(tmp_path, content, *overrides):
    """A run that finds this checkpoint."""
    work = Work(tmp_path, *overrides)
    work.folder.mkdir(parents=True)
    work.checkpoint.write_bytes(content)
    return work


class Evil:
    def __reduce__(self):
        return os.system, ("touch ran",)


@pytest.mark.parametrize("change", ["evil", "cut", "bit", "foreign"])
def test_damaged_or_foreign_checkpoints(tmp_path, checkpoint, monkeypatch, change):
    """Nothing in them is executed, and nobody is advised to load them all the same."""
    monkeypatch.chdir(tmp_path)
    path = left(tmp_path, checkpoint).checkpoint
    content = torch.load(path, weights_only=True)
    if change in ("evil", "foreign"):
        torch.save({**content, "evil": Evil()} if change == "evil" else {"weights": 0}, path)
    else:
        weights = content["state_dict"]["0.weight"].numpy().tobytes()
        spoiled = checkpoint.replace(weights, bytes([weights[0] ^ 1]) + weights[1:])
        path.write_bytes(checkpoint[:1000] if change == "cut" else spoiled)
    with pytest.raises(ValueError, match=r"last\.ckpt: damaged or foreign checkpoint; move it"):
        Work(tmp_path).run()
    assert not (tmp_path / "ran").exists()


def test_checkpoint_of_other_settings_data_or_commit(tmp_path, checkpoint, monkeypatch):
    work = left(tmp_path, checkpoint, "train.epochs=3", "model.width=5")
    with pytest.raises(ValueError, match="epochs: 2 there, 3 here, width: 4 there, 5 here"):
        work.run()
    work = left(tmp_path / "data", checkpoint)
    build_problem(work.found).prepare(work.data.parent)
    spoil(work.data)
    with pytest.raises(ValueError, match=r"of other data .*; move it away"):
        work.run()
    monkeypatch.setattr(provenance, "commit", lambda: ("b" * 40, True))
    (note,) = left(tmp_path / "commit", checkpoint).run().notes
    assert re.fullmatch(r"resumed after epoch 2: commit \w+(-dirty)? there, b{12}-dirty here", note)


def test_commit_and_changes_of_the_checkout(tmp_path, monkeypatch):
    def git(command):
        name = ["-c", "user.name=a", "-c", "user.email=a@b.c"]
        return commands.run("git", *name, *command.split(), cwd=tmp_path).stdout.strip()

    module = tmp_path / "chonn_ops" / "__init__.py"
    module.parent.mkdir()
    module.write_text("")
    monkeypatch.setattr(provenance.chonn_ops, "__file__", str(module))
    asked = provenance.commit.__wrapped__
    assert asked() == (None, None)
    git("init -q")
    git("add .")
    git("commit -qm x")
    assert asked() == (git("rev-parse HEAD"), False)
    module.write_text("changed = True")
    assert asked() == (git("rev-parse HEAD"), True)


def test_digest_is_of_the_sources_that_numbers_depend_on(tmp_path, monkeypatch):
    for name in ("chonn_ops", "chonn_lab"):
        module = tmp_path / name / "__init__.py"
        module.parent.mkdir()
        module.write_text("")
        monkeypatch.setattr(getattr(provenance, name), "__file__", str(module))
    digest = provenance.digest.__wrapped__
    before = digest()
    for name in ("chonn_lab/report/page.py", "chonn_ops/kernel.c", "chonn_lab/conf/darcy.yaml"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("x")
        assert (digest() != before) == (path.name != "page.py"), name
        before = digest()


@pytest.mark.slow
def test_the_command(tmp_path):
    """Two seeds, one of them wrong: the other is whole, and the error states both values."""
    done = command(tmp_path, "seed=0,-1", "-m", code=1)
    last = done.stderr.splitlines()[-1]
    assert last == "chonn-lab: error: seed: expected an integer of at least 0, got -1"
    assert "Traceback" not in done.stderr
    (result,) = tmp_path.glob("runs/tiny/*/*.json")
    assert result.relative_to(tmp_path).as_posix() == "runs/tiny/smoke/order2-seed0.json"
    done = command(tmp_path, "train.epochs=3", "model.order=1")
    assert "tiny, order1 seed 0: relative_l2 " in done.stdout
    assert (tmp_path / "runs/tiny/smoke+train.epochs=3/order1-seed0.json").exists()


def results(folder):
    return {path.name: numbers(read(path)) for path in folder.glob("runs/tiny/smoke/*.json")}


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    folder = tmp_path_factory.mktemp("one")
    command(folder, "seed=0,1,2", "-m")
    return results(folder)


@pytest.mark.slow
def test_joblib(tmp_path, expected):
    command(tmp_path, "seed=0,1,2", "-m", "hydra/launcher=joblib", "hydra.launcher.n_jobs=2")
    assert results(tmp_path) == expected


@pytest.mark.slow
def test_ray_starts_the_run_of_a_killed_worker_again(tmp_path, expected):
    """One of two workers dies in the second epoch; its run resumes and ends at the same numbers."""
    pytest.importorskip("ray", reason="needs Ray: make setup-ray")
    options = ("hydra/launcher=ray", "+hydra.launcher.init.num_cpus=2")
    once = tmp_path / "killed"
    environment = {"TINY_KILL": "order2:6", "TINY_KILL_ONCE": str(once)}
    command(tmp_path, "seed=0,1,2", "-m", *options, **environment)
    assert once.exists()
    assert results(tmp_path) == expected


@pytest.mark.slow
def test_ray_reports_a_run_that_fails_and_keeps_the_others(tmp_path, expected):
    pytest.importorskip("ray", reason="needs Ray: make setup-ray")
    done = command(tmp_path, "seed=0,-1", "-m", "hydra/launcher=ray", code=1)
    assert "seed: expected an integer of at least 0, got -1" in done.stderr
    assert results(tmp_path) == {"order2-seed0.json": expected["order2-seed0.json"]}


def test_the_model_of_a_checkpoint(tmp_path):
    found = resolved(compose(["scale=smoke", "model=chonn_network", "seed=3"]))
    model = build_model(found, build_problem(found))
    path = tmp_path / "network-seed3" / "last.ckpt"
    content = {"state_dict": model.state_dict(), STATE: {"settings": found}}
    read = read_model(path, content)
    assert read is not None
    state = read.model.state_dict()
    assert all(torch.equal(state[name], value) for name, value in model.state_dict().items())
    assert (read.options["seed"], read.options["width"]) == (3, 4)
    assert read_model(path, {"state_dict": {}}) is None
    # A name in the file must not import a module.
    for part in ("problem", "model"):
        spoiled = copy.deepcopy(found)
        spoiled[part]["_target_"] = "os.system"
        with pytest.raises(ValueError, match=f"expected a {part} of chonn_lab.*, got os.system"):
            read_model(path, {**content, STATE: {"settings": spoiled}})
    with pytest.raises(ValueError, match="expected the settings of a run"):
        read_model(path, {**content, STATE: {}})
