"""The network benchmark runs whole at a tiny scale; its peers solve what ours solves."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
import torch

from chonn_lab.benchmarks import network, network_solvers
from chonn_lab.benchmarks.harness import Turns
from chonn_lab.benchmarks.network_solvers import Case
from chonn_lab.pages import blocks, files

CASES = (
    Case((9, 7), 3, 100.0, "field"),
    Case((5, 4, 3), 2),
    Case((20,), 2, 1.0),
)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """The folder of the results, and what the program printed."""
    folder = tmp_path_factory.mktemp("network") / "results"
    command = [
        sys.executable,
        "-m",
        "chonn_lab.cli",
        "bench",
        "network",
        "--smoke",
        "--rounds",
        "2",
    ]
    command += ["--visit-ms", "1", "--output", str(folder / "network.json")]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return folder, done.stdout


def result(run):
    return json.loads((run[0] / "network.json").read_text())


def test_the_run_leaves_one_whole_file(run):
    assert [path.name for path in run[0].iterdir()] == ["network.json"]
    found = result(run)
    assert set(network.SECTIONS) <= found.keys()
    assert "scipy" in found["environment"]["versions"]


def test_every_row_is_timed_and_solves_its_networks(run):
    sections = result(run)["peers"]
    assert len(sections) == len(network.SMOKE_PEER_CASES)
    for section in sections:
        names = [row["name"] for row in section["rows"]]
        assert {"torch", "spsolve"} <= set(names)
        assert ("solve_banded" in names) == (len(section["grid"]) == 1)
        for row in section["rows"]:
            assert row["forward_ms"] > 0
            assert row["both_ms"] > 0
            assert row["residual"] < 1e-3, row
        assert section["rows"][0]["forward_ratio"] == 1


def test_growth_and_contrast_are_measured(run):
    found = result(run)
    (series,) = found["growth"]
    assert len(series["points"]) == 2
    assert "forward_ms" in series["slopes"]
    kinds = {(section["contrast"], section["regions"]) for section in found["contrast"]}
    assert kinds == {(c, r) for c in (1.0, 100.0) for r in ("inclusions", "field")}


def test_tables_come_from_the_results(run, monkeypatch):
    monkeypatch.setattr(files, "RESULTS", run[0])
    for name in ("network peers", "network contrast", "network growth"):
        header, *rows = blocks.build(name).splitlines()
        assert len(rows) > 1, name
        assert all(row.count("|") == header.count("|") for row in rows), name


def test_a_part_of_the_run_does_not_replace_the_results(capsys):
    with pytest.raises(SystemExit):
        network.main(["--only", "peers"])
    assert "expected another --output" in capsys.readouterr().err


@pytest.mark.parametrize("case", CASES, ids=str)
def test_all_contenders_find_the_same_potentials(case):
    notes: list[str] = []
    networks = network_solvers.make(case)
    exact = network_solvers.scipy_spsolve(networks).forward()
    assert network_solvers.quality(networks, exact)["residual"] < 1e-12
    compared = set()
    for name, build in network_solvers.contenders(notes).items():
        try:
            solver = build(networks)
        except (network_solvers.NotFitting, OSError):  # no compiler
            continue
        v = solver.forward().double()
        assert (v - exact).norm() < 1e-3 * exact.norm(), name
        compared.add(name)
    assert {"chonn-ops", "torch", "spsolve"} <= compared


def test_gradients_of_a_peer_are_those_of_ours():
    from chonn_ops.network import kirchhoff_network

    case = Case((5, 4), 2)
    networks = network_solvers.make(case)
    source, leak, *conductance = (
        t.detach().double().requires_grad_() for t in network_solvers.channels_last(networks)
    )
    v = kirchhoff_network(source, tuple(conductance), leak, tol=1e-12, backend="reference")
    grad = torch.randn_like(v)
    w, *expected = torch.autograd.grad(v, [source, leak, *conductance], grad)
    first = network_solvers.networks_first
    found = network_solvers.gradients(first(v), first(w))
    for axis, (actual, truth) in enumerate(zip(found, map(first, expected), strict=True)):
        inner = truth.narrow(axis, 0, actual.shape[axis]) if axis else truth
        torch.testing.assert_close(actual, inner, rtol=1e-9, atol=1e-9 * float(truth.abs().max()))


def test_a_failing_peer_is_noted_and_left_out():
    def broken(_):
        raise RuntimeError("no such solver")

    notes: list[str] = []
    found = {"ours": network_solvers.ours("torch"), "broken": broken}
    bench = network.Bench(found, Turns(1, 1.0), notes)
    section = bench.measure(Case((6, 5), 2))
    assert [row["name"] for row in section["rows"]] == ["ours"]
    assert notes == ["broken left out at 6x5: RuntimeError: no such solver"]


def test_long_calls_are_timed_on_fewer_networks_and_scaled(monkeypatch):
    notes: list[str] = []
    bench = network.Bench({"ours": network_solvers.ours("torch")}, Turns(1, 1.0), notes)
    monkeypatch.setattr(network, "CALL_MS", 1e-3)
    (row,) = bench.measure(Case((6, 5), 4))["rows"]
    assert row["timed_networks"] == {"forward": 1, "both": 1}
    assert row["forward_ns"] == pytest.approx(row["forward_ms"] * 1e6 / (4 * 30))


def test_what_is_too_slow_for_one_network_is_left_out(monkeypatch):
    notes: list[str] = []
    bench = network.Bench({"ours": network_solvers.ours("torch")}, Turns(1, 1.0), notes)
    monkeypatch.setattr(network, "TOO_LONG_MS", 0.0)
    assert bench.measure(Case((6, 5), 4))["rows"] == []
    assert notes == ["ours left out at 6x5: TimeoutError: 0 s for one network"]


def test_rounding_is_the_residual_of_rounded_potentials():
    networks = network_solvers.make(Case((16, 16), 2))
    exact = network_solvers.scipy_spsolve(networks).forward()
    rounded = network_solvers.quality(networks, exact.float())
    assert 0.2 < rounded["residual"] / rounded["rounding"] < 5


def test_unavoidable_bytes_count_inputs_and_outputs_once():
    # source, leak, two conductances, potentials; then their gradient, potentials, leak and
    # conductances read, four gradients written.
    assert network_solvers.unavoidable_bytes(Case((4, 5), 3)) == {
        "forward": 5 * 240,
        "both": 14 * 240,
    }
