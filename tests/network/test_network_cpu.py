"""What only the compiled kernel does: vectors of networks, threads, processes, its multigrid."""

from __future__ import annotations

import os
import threading

import pytest
import torch
from network_cases import (
    edge_conductance,
    make_network,
    solve_network,
)

from chonn_ops.network.solve import cpu

pytestmark = pytest.mark.skipif(not cpu.available_isas(), reason="no compiled kernel")


def _inclusions(n: int, contrast: float, networks: int = 1, size: int = 8):
    """Random squares of nodes that conduct better, one wall with half an edge to ground."""
    generator = torch.Generator().manual_seed(0)
    coarse = -(-n // size)
    better = torch.randn(1, coarse, coarse, networks, generator=generator) > 0
    better = better.repeat_interleave(size, 1).repeat_interleave(size, 2)[:, :n, :n]
    conductivity = contrast ** better.float()
    leak = torch.full_like(conductivity, 0.05 * 256 / n**2)
    leak[:, 0] += 2 * conductivity[:, 0]
    source = torch.randn(conductivity.shape, generator=generator)
    return source, edge_conductance(conductivity), leak


def test_four_threads_at_once_are_exact():
    # By the default backend, because threads share the variable that names one.
    network = _inclusions(64, 100.0, networks=20)
    expected = solve_network(*network)
    wrong: list[int] = []

    def work(index: int) -> None:
        for _ in range(5):
            if not torch.equal(solve_network(*network), expected):
                wrong.append(index)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_after_fork_it_is_exact():
    """As in a DataLoader's workers, after the parent has used its threads."""
    network = _inclusions(64, 100.0, networks=20)
    expected = solve_network(*network)
    child = os.fork()
    if child == 0:
        torch.set_num_threads(1)  # as DataLoader does
        same = torch.equal(solve_network(*network), expected)
        os._exit(0 if same else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_repeats_to_the_bit():
    network = _inclusions(128, 10_000.0, networks=5)
    first, second = (solve_network(*network, backend="cpu") for _ in range(2))
    assert torch.equal(first, second)


@pytest.mark.slow
@pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="no /proc")
def test_ten_thousand_calls_keep_no_memory():
    network = make_network((5, 6), B=1, C=2, dtype=torch.float32)
    leaves = [t.requires_grad_() for t in (network[0], *network[1], network[2])]

    def pages() -> int:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1])

    def call(count: int) -> None:
        for _ in range(count):
            v = solve_network(leaves[0], tuple(leaves[1:3]), leaves[3], backend="cpu")
            torch.autograd.grad(v.sum(), leaves)

    call(1000)
    before = pages()
    call(4500)  # two solves each
    assert (pages() - before) * os.sysconf("SC_PAGE_SIZE") < 2**20
