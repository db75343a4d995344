"""What only the compiled kernel does: vectors of networks, threads, processes, its multigrid."""

import os
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from network_cases import make_network, solve_network

from chonn_ops.network.solve import cpu

pytestmark = pytest.mark.skipif(cpu.kernel() is None, reason="no compiled kernel")


def test_four_threads_at_once_are_exact():
    # By the default backend, because threads share the variable that names one.
    network = make_network((64, 64), B=1, C=20, dtype=torch.float32)
    expected = solve_network(*network)
    with ThreadPoolExecutor(4) as threads:
        for v in threads.map(lambda _: solve_network(*network), range(20)):
            assert torch.equal(v, expected)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_after_fork_it_is_exact():
    """As in a DataLoader's workers, after the parent has used its threads."""
    network = make_network((64, 64), B=1, C=20, dtype=torch.float32)
    expected = solve_network(*network)
    child = os.fork()
    if child == 0:
        torch.set_num_threads(1)  # as DataLoader does
        same = torch.equal(solve_network(*network), expected)
        os._exit(0 if same else 1)
    assert os.waitpid(child, 0)[1] == 0


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
