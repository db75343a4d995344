"""Results say what they were made of; those of other data or settings are not mixed."""

import copy
import dataclasses
import hashlib
import json
import subprocess

import h5py
import pytest
import result_files
import tiny
from running import NAME, job, prepared, read

pytest.importorskip("filelock")
from chonn_lab import cli
from chonn_lab.experiments import get, provenance, schedule, training
from chonn_lab.problems import darcy
from chonn_lab.report.page import content, write_report
from chonn_lab.report.results import read_study
from chonn_lab.report.tables import run_table
from chonn_lab.studies.keep_results import collect

COMMIT = "a" * 40, False


class Filed(tiny.Tiny):
    """The tiny experiment with files by name, as the paper's experiments have them."""

    def files(self, config, folder):
        return (self.path(config, folder),)


FILED = Filed()


@pytest.fixture
def known(monkeypatch):
    """Experiments by name without a module, and a commit that does not depend on the checkout."""
    monkeypatch.setattr(tiny, "EXPERIMENT", FILED)
    monkeypatch.setattr(provenance, "commit", lambda: COMMIT)


def spoil(path):
    """Other data of the same shape."""
    with h5py.File(path, "r+") as file:
        file["targets"][0] += 1


@pytest.mark.usefixtures("known")
def test_result_says_what_it_was_made_of(tmp_path):
    work = job(tmp_path)
    run = training.execute(work)
    content = (tmp_path / "data" / "tiny" / "tiny32.hdf5").read_bytes()
    expected = hashlib.sha256(content).hexdigest()
    assert run.data == {"tiny32.hdf5": {"sha256": expected, "size": len(content)}}
    assert (run.commit, run.dirty) == COMMIT
    assert run.code == provenance.digest()
    assert (run.changes, run.notes) == (["learning_rate"], [])
    assert provenance.flags([run]) == {}


def test_generated_data_of_a_result_name_their_generator(tmp_path):
    experiment = get("darcy")
    config = dataclasses.replace(experiment.scales["smoke"], resolution=16)
    folder = tmp_path / "darcy"
    folder.mkdir()
    experiment.prepare(config, folder, progress=False)
    (path,) = experiment.files(config, folder)

    (work,) = schedule.plan(
        *("darcy", "smoke"),
        output=tmp_path,
        data=tmp_path,
        variants=["fno"],
        assignments=["resolution=16"],
    )
    (record,) = provenance.files(work.data_files).values()
    assert record["official"] is False
    assert (record["generator"], record["generator_version"]) == ("darcy", darcy.GENERATOR_VERSION)
    assert (record["seed"], record["settings"]["n_samples"]) == (0, 16)
    assert record["sha256"] == hashlib.sha256(path.read_bytes()).hexdigest()


def test_data_that_are_no_files_have_a_checksum_too(tmp_path):
    first, other = (training.execute(job(tmp_path / name, variant="order1")) for name in "ab")
    assert first.data.keys() == {"as loaded"}
    assert first.data == other.data
    work = job(tmp_path / "c", variant="order1")
    spoil(tmp_path / "c" / "data" / "tiny" / "tiny32.hdf5")
    assert training.execute(work).data != first.data


def test_commit_and_changes_of_the_checkout(tmp_path, monkeypatch):
    def git(*arguments):
        name = ("-c", "user.name=a", "-c", "user.email=a@b.c")
        command = ["git", *name, *arguments]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
        return done.stdout.strip()

    module = tmp_path / "chonn_ops" / "__init__.py"
    module.parent.mkdir()
    module.write_text("")
    monkeypatch.setattr(provenance.chonn_ops, "__file__", str(module))
    asked = provenance.commit.__wrapped__
    assert asked() == (None, None)
    git("init", "-q")
    git("add", ".")
    git("commit", "-qm", "x")
    assert asked() == (git("rev-parse", "HEAD"), False)
    module.write_text("changed = True")
    assert asked() == (git("rev-parse", "HEAD"), True)


@pytest.mark.usefixtures("known")
def test_finished_result_of_other_data_is_refused(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    prepared(tmp_path / "data")
    command = ["run", NAME, "--scale", "smoke", "--jobs", "1", "--variants", "order2"]
    assert cli.main(command) == 0
    before = read(tmp_path / "runs/tiny/smoke/order2-seed0.json")
    spoil(tmp_path / "data" / "tiny" / "tiny32.hdf5")
    capsys.readouterr()
    assert cli.main(command) == 1
    error = capsys.readouterr().err
    old = before["data"]["tiny32.hdf5"]["sha256"][:12]
    assert f"other data (data tiny32.hdf5: SHA-256 {old} there, " in error
    assert "order2-seed0.json" in error
    assert error.rstrip().endswith("or accept it with --mixed")
    assert cli.main([*command, "--mixed"]) == 0
    assert f"finished before (data tiny32.hdf5: SHA-256 {old} there" in capsys.readouterr().out
    assert read(tmp_path / "runs/tiny/smoke/order2-seed0.json") == before


@pytest.mark.usefixtures("known")
def test_finished_result_of_another_commit_or_code_is_flagged(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    prepared(tmp_path / "data")
    command = ["run", NAME, "--scale", "smoke", "--jobs", "1", "--variants", "order1"]
    assert cli.main(command) == 0
    code = provenance.digest()
    monkeypatch.setattr(provenance, "digest", lambda: "0" * 12)
    assert cli.main(command) == 0
    said = f"order1 seed 0: finished before (code {code} there, 000000000000 here), "
    assert said in capsys.readouterr().out
    monkeypatch.setattr(provenance, "commit", lambda: ("b" * 40, True))
    assert cli.main(command) == 0
    said = "order1 seed 0: finished before (commit aaaaaaaaaaaa there, bbbbbbbbbbbb-dirty here), "
    assert said in capsys.readouterr().out


def test_digest_is_of_the_sources_that_numbers_depend_on(tmp_path, monkeypatch):
    for name in ("chonn_ops", "chonn_lab"):
        module = tmp_path / name / "__init__.py"
        module.parent.mkdir()
        module.write_text("")
        monkeypatch.setattr(getattr(provenance, name), "__file__", str(module))
    digest = provenance.digest.__wrapped__
    before = digest()
    for name, counts in (
        ("chonn_ops/scan/kernel.c", True),
        ("chonn_lab/baselines/mgno.py", True),
        ("chonn_lab/pages/results.py", False),
    ):
        path = tmp_path / name
        path.parent.mkdir(parents=True)
        path.write_text("x")
        assert (digest() != before) == counts, name
        before = digest()


def stopped(work, epochs=1):
    """Leave the checkpoint of a run that was stopped after so many epochs."""

    class Stop(Exception):
        pass

    done = []

    def stop():
        done.append(1)
        if len(done) == epochs + 1:
            raise Stop

    with pytest.raises(Stop):
        training.execute(work, on_epoch=stop)
    assert work.checkpoint.exists()


@pytest.mark.usefixtures("known")
def test_resuming_at_another_commit_is_said_and_noted(tmp_path, monkeypatch, capsys):
    work = job(tmp_path, "epochs=3")
    stopped(work)
    monkeypatch.setattr(provenance, "commit", lambda: ("b" * 40, False))
    run = training.execute(work)
    (note,) = run.notes
    assert "commit aaaaaaaaaaaa there, bbbbbbbbbbbb here" in note
    assert note.startswith("resumed after epoch ")
    assert f"order2 seed 0: {note}" in capsys.readouterr().out
    assert f"order2: {note}" in run_table([run])


@pytest.mark.usefixtures("known")
def test_resuming_with_other_data_is_refused(tmp_path):
    work = job(tmp_path, "epochs=3")
    stopped(work)
    kept = work.checkpoint.read_bytes()
    spoil(tmp_path / "data" / "tiny" / "tiny32.hdf5")
    with pytest.raises(ValueError, match=r"data tiny32\.hdf5: SHA-256 \w+ there, \w+ here\); rem"):
        training.execute(work)
    assert work.checkpoint.read_bytes() == kept
    assert not work.result.exists()
    run = training.execute(dataclasses.replace(work, mixed=True))
    assert "data tiny32.hdf5" in run.notes[0]
    assert len(run.curve["epoch"]) == 3


def study(folder, change=None, seeds=3):
    """Two baselines and a CHONN of some seeds, one result changed by `change`."""
    made = [
        result_files.record("darcy", family, {"family": family, "role": role}, 0.1, seed)
        for family, role in (("unet", "baseline"), ("fno", "baseline"), ("chonn", "paper"))
        for seed in range(seeds)
    ]
    if change:
        change(made[1])
    result_files.write(folder, made)
    return folder / "darcy" / "small"


def nested(*path, value):
    def change(record):
        for name in path[:-1]:
            record = record[name]
        record[path[-1]] = value

    return change


CHANGES = {
    "data": (nested("data", "data.hdf5", "sha256", value="0" * 64), r"data data\.hdf5 \(0000"),
    "setting": (nested("config", "epochs", value=3), r"setting epochs \(3 / 40\)"),
    "own setting": (nested("config", "batch_size", value=3), r"setting batch_size of unet \(3 / 8"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_study_of_different_origin_is_refused(tmp_path, name):
    change, what = CHANGES[name]
    folder = study(tmp_path, change)
    with pytest.raises(ValueError, match=f"small: expected results of the same .*{what}") as caught:
        read_study(folder)
    assert ": unet seed 1 differ from " in str(caught.value)
    assert "--mixed" in str(caught.value)
    for refused in (
        lambda: write_report(tmp_path, tmp_path / "r"),
        lambda: collect(read_study(folder), folder),
    ):
        with pytest.raises(ValueError, match="expected results of the same data and settings"):
            refused()
    assert not (tmp_path / "r").exists()
    (line,) = read_study(folder, mixed=True).mixed
    assert "unet seed 1" in line


def test_models_may_differ_in_what_they_change_and_are(tmp_path):
    """Own settings and files of its own belong to a model."""
    folder = study(tmp_path)
    sizes = {run.variant: run.config["batch_size"] for run in read_study(folder).runs}
    assert sizes == {"unet": 8, "fno": 8, "chonn": 4}
    assert read_study(folder).mixed == ()


def test_mixed_report_says_so(tmp_path):
    study(tmp_path, CHANGES["data"][0])
    page = write_report(tmp_path, tmp_path / "report", mixed=True)
    for path in (page, page.with_name("results.md")):
        assert "Not all runs have the same data and settings: data data.hdf5 (" in path.read_text()


def test_result_of_another_commit_is_flagged(tmp_path):
    folder = study(tmp_path, nested("commit", value="f" * 40))
    text = content([read_study(folder)])
    assert "- commit: 0123456789ab (8 runs) / ffffffffffff (1 runs)" in text
    dirty = study(tmp_path / "dirty", nested("dirty", value=True))
    text = content([read_study(dirty)])
    assert "- commit: 0123456789ab (8 runs) / 0123456789ab-dirty (1 runs)" in text


def test_old_results_are_marked(tmp_path):
    def forget(record):
        for name in ("data", "code", "dirty", "changes", "notes"):
            del record[name]

    folder = study(tmp_path, forget)
    text = content([read_study(folder)])
    assert "| unet † |" in text
    assert "| fno |" in text
    assert "† no record of data and code: unet\n" in text


def test_compact_file_keeps_the_origin(tmp_path):
    folder = study(tmp_path)
    kept = read_study(collect(read_study(folder), tmp_path))
    for before, after in zip(read_study(folder).groups, kept.groups, strict=True):
        for one, other in zip(before.runs, after.runs, strict=True):
            for name in ("data", "code", "dirty", "changes", "notes", "commit"):
                assert getattr(other, name) == getattr(one, name), name
    path = tmp_path / "darcy-small.json"
    content = json.loads(path.read_text())
    spoilt = copy.deepcopy(content)
    spoilt["runs"][0]["data"] = {"data.hdf5": {"sha256": "0" * 64}}
    path.write_text(json.dumps(spoilt))
    with pytest.raises(ValueError, match=r"data data\.hdf5"):
        read_study(path)
