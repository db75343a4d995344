"""The tables of calls: what a walk counts, and that following one leaves nothing behind."""

import sys

import torch

from chonn_lab.pages.walks import follow
from chonn_ops import Circuit


def test_a_walk_counts_what_runs_and_ends_in_c():
    circuit = Circuit([torch.ones(1, 3, 4, 1)] * 2, torch.ones(1, 3, 4, 1))
    walk = follow(lambda: circuit.solve(torch.ones(1, 3, 4, 1)))
    assert walk.chain[0][:2] == ("chonn_ops/network/circuit.py", "Circuit.solve")
    assert walk.chain[-1][:2] == ("chonn_ops/_library.c", "chonn_direct_run")
    assert len(set(walk.functions)) == len(walk.functions)
    assert set(walk.chain[:-1]) <= set(walk.functions)
    assert sys.getprofile() is None
    assert follow(lambda: circuit.solve(circuit.leak)) == walk  # nothing is left in the way to C
