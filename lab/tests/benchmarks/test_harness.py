"""What the programs measure with: turns, rows, peaks, the file of a run; what they compare solves
the same problems."""

import functools
import json
import sys
from types import SimpleNamespace

import pytest
import torch

from chonn_lab.benchmarks import gpu, harness, network, scan
from chonn_lab.benchmarks.harness import Run
from chonn_lab.benchmarks.network import CONTENDERS, Case
from chonn_ops import Circuit, Direct
from chonn_ops.network import available_backends

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

    makes = {"ours": lambda: {"calls": {"forward": print, "both": print}, "error": 0.0}}
    makes["half"] = lambda: {"calls": {"forward": print}, "scale": 0.5}
    makes |= {"broken": broken, "missing": missing}
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


def test_scans_agree():
    inputs = scan.make_inputs((2, 37, 5, 3))
    expected = scan.loop(*inputs)
    for name, function in scan.SCANS.items():
        if name == "compiled loop" or (name == "chonn-ops" and "cpu" not in available_backends()):
            continue
        try:
            torch.testing.assert_close(function(*inputs), expected, rtol=1e-4, atol=1e-4, msg=name)
        except ImportError:
            assert name == "mambapy"


def test_gradients_of_a_peer_are_those_of_ours():
    networks = network.make(Case((5, 4), 2)).map(torch.Tensor.double)
    fields = networks.source, networks.leak, *networks.conductance
    source, leak, *g = leaves = [x[..., None].requires_grad_() for x in fields]
    v = Circuit(g, leak).solve(source, Direct())
    expected = torch.autograd.grad(v, leaves, torch.ones_like(v))
    found = network.spsolve(networks).both()
    for axis, (actual, truth) in enumerate(zip(found, expected, strict=True), -1):
        truth = truth[..., 0]
        if axis > 0:  # edges that are none
            truth.select(axis, -1).zero_()
        torch.testing.assert_close(torch.from_numpy(actual), truth, rtol=1e-9, atol=1e-9)


class DirectSolver:
    """Stands in for nvmath-python's solver of this name, which needs a GPU."""

    def __init__(self, a, b, options):
        assert (a.crow_indices().dtype, b.stride(1)) == (torch.int32, 1)  # it takes no others
        assert options == {"sparse_system_type": "SPD", "sparse_system_view": "UPPER"}
        self.a, self.b, self.planned = a, b, False

    def plan(self):
        self.planned = True

    def factorize(self):
        assert self.planned
        upper = self.a.to_dense()
        assert torch.equal(upper, upper.triu())
        self.matrices = upper + upper.triu(1).mT

    def solve(self):
        return torch.linalg.solve(self.matrices, self.b)


@pytest.mark.parametrize("build", [gpu.cholesky, gpu.cudss])
def test_peers_on_a_gpu_solve_our_networks(build, monkeypatch):
    """Values and gradients, of entries and of the source."""
    kinds = {"DirectSolverMatrixType": SimpleNamespace(SPD="SPD")}
    kinds["DirectSolverMatrixViewType"] = SimpleNamespace(UPPER="UPPER")
    advanced = SimpleNamespace(DirectSolver=DirectSolver, **kinds)
    monkeypatch.setitem(sys.modules, "nvmath", SimpleNamespace())
    monkeypatch.setitem(sys.modules, "nvmath.sparse", SimpleNamespace(advanced=advanced))
    networks = network.make(Case((5, 4), 3)).map(torch.Tensor.double)
    made = build(networks)
    truth = network.ours(networks, solver=Direct()).forward()
    torch.testing.assert_close(made.forward(), truth, rtol=1e-9, atol=1e-9)
    row, column, values = network.entries(networks)
    leaves = [x.requires_grad_() for x in (values, networks.source.flatten(1).clone())]
    entries = torch.arange(3)[:, None], row, column
    matrices = torch.zeros(3, 20, 20, dtype=values.dtype).index_put(entries, values)
    v = torch.linalg.solve(matrices, leaves[1])
    expected = torch.autograd.grad(v, leaves, torch.ones_like(v))
    torch.testing.assert_close(made.both(), expected, rtol=1e-9, atol=1e-9)


def test_long_calls_are_timed_on_fewer_networks_or_left_out(monkeypatch):
    networks, builds = network.make(Case((6, 5), 4)), {"torch": CONTENDERS["torch"]}
    monkeypatch.setattr(network, "CALL_MS", 1e-3)
    (row,) = network.measure(Run(), networks, builds, {}, 4)["rows"]
    assert row["timed_networks"] == 1
    monkeypatch.setattr(network, "TOO_LONG_MS", 0.0)
    run = Run()
    assert network.measure(run, networks, builds, {}, 4)["rows"] == []
    assert run.notes == ["torch left out: TimeoutError: 0 s for one network"]
