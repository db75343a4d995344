"""What the programs measure with: turns, rows, peaks, and the file of a run."""

import functools
import json
import sys

import pytest
import torch

from chonn_lab.benchmarks import harness

MEBIBYTE = 2**20


def test_contenders_take_turns():
    order = []
    calls = {name: functools.partial(order.append, name) for name in "ab"}
    times = harness.Run(rounds=2).times(calls)
    assert "".join(order) == "aabb" * 2  # one call to warm up, one that counts
    assert [len(values) for values in times.values()] == [2, 2]


def test_rows_are_scaled_and_compared_and_a_failing_peer_is_noted(monkeypatch):
    monkeypatch.setattr(harness.Run, "times", lambda _, calls: {k: [2.0, 4.0] for k in calls})

    def broken():
        raise RuntimeError("no such solver\nat all")

    def missing():
        raise ModuleNotFoundError("No module named 'peer'")

    makes = {
        "ours": lambda: {"calls": {"forward": print, "both": print}, "error": 0.0},
        "half": lambda: {"calls": {"forward": print}, "scale": 0.5},
        "broken": broken,
        "missing": missing,
    }
    run = harness.Run()
    for nodes in (5, 7):
        first, second = run.section(makes, nodes=nodes)["rows"]
    assert (first["name"], first["error"], first["both_ms"]) == ("ours", 0.0, 3.0)
    assert second["forward_quartiles_ms"] == [0.75, 2.25]
    assert (first["forward_ratio"], second["forward_ratio"]) == (1.0, 0.5)
    assert run.notes == [
        "broken left out at {'nodes': 5}: RuntimeError: no such solver",
        "missing left out: ModuleNotFoundError: No module named 'peer'",
        "broken left out at {'nodes': 7}: RuntimeError: no such solver",
    ]


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_peak_memory_is_that_of_the_call():
    peak = harness.fresh_peak(functools.partial, torch.ones, 48 * MEBIBYTE // 4)
    assert peak / MEBIBYTE == pytest.approx(48, abs=1)


def test_a_program_writes_one_whole_file_and_keeps_what_it_had_when_stopped(tmp_path, capsys):
    output = tmp_path / "results" / "name.json"

    def stopped(_):
        raise KeyboardInterrupt

    sections = {"rows": lambda run: [{"rounds": run.rounds}], "last": stopped}
    main = harness.main_of("What it is.", "name", sections, ["numpy"], rounds=3)
    with pytest.raises(KeyboardInterrupt):
        main(["--output", str(output)])
    (part,) = output.parent.iterdir()
    assert json.loads(part.read_text())["rows"] == [{"rounds": 3}]
    main(["--output", str(output), "--only", "rows", "--threads", "1"])
    assert [path.name for path in output.parent.iterdir()] == ["name.json"]
    environment = json.loads(output.read_text())["environment"]
    assert (environment["rounds"], environment["smoke"], environment["threads"]) == (3, False, 1)
    assert environment["versions"].keys() == {"torch", "numpy"}
    assert {"code", "commit", "changed", "processor", "kernel", "cores"} <= environment.keys()
    with pytest.raises(SystemExit):
        main(["--only", "rows"])
    assert "expected another --output" in capsys.readouterr().err
