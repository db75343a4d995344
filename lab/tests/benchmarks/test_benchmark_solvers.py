"""What the benchmarks compare solves the same problems."""

import sys
from types import SimpleNamespace

import torch

from chonn_lab.benchmarks import gpu, network, scan
from chonn_lab.benchmarks.harness import Run
from chonn_lab.benchmarks.network import CONTENDERS, Case
from chonn_ops import Circuit, Direct
from chonn_ops.network import available_backends


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


def test_a_peer_on_a_gpu_solves_our_networks(monkeypatch):
    """Values and gradients, of entries and of the source."""
    kinds = {"DirectSolverMatrixType": SimpleNamespace(SPD="SPD")}
    kinds["DirectSolverMatrixViewType"] = SimpleNamespace(UPPER="UPPER")
    advanced = SimpleNamespace(DirectSolver=DirectSolver, **kinds)
    monkeypatch.setitem(sys.modules, "nvmath", SimpleNamespace())
    monkeypatch.setitem(sys.modules, "nvmath.sparse", SimpleNamespace(advanced=advanced))
    networks = network.make(Case((5, 4), 3)).map(torch.Tensor.double)
    made = gpu.cudss(networks)
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
