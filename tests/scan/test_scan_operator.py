"""The operator as PyTorch sees it: gradcheck, opcheck, compile, export, vmap, autocast, memory."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
from scan_cases import (
    BACKENDS,
    EACH_BACKEND_THOROUGHLY,
    TOLERANCE,
    assert_close,
    make_case,
    rms_ratio,
    run,
    within,
)
from torch.library import opcheck

from chonn_ops.scan import kirchhoff_scan

EACH_BACKEND = pytest.mark.parametrize("backend", BACKENDS)
DIRECTIONS = pytest.mark.parametrize("reverse", [False, True], ids=["forth", "back"])
LINE = ([40], "raster")
BOUNDARIES = pytest.mark.parametrize("boundary", ["matched", "periodic"])


def _leaves(*shape, boundary="matched"):
    case = make_case(*shape, dtype=torch.float64)
    if boundary == "periodic":
        del case["initial_state"]
    return {name: tensor.requires_grad_() for name, tensor in case.items()}


@EACH_BACKEND_THOROUGHLY
@DIRECTIONS
@BOUNDARIES
def test_gradcheck(backend, reverse, boundary):
    leaves = _leaves(2, 5, 3, 2, boundary=boundary)

    def scan(*tensors):
        named = dict(zip(leaves, tensors, strict=True))
        options = {"backend": backend, "reverse": reverse, "boundary": boundary}
        return kirchhoff_scan(**named, return_state=True, **options)

    assert torch.autograd.gradcheck(scan, tuple(leaves.values()))


@pytest.mark.thorough
@EACH_BACKEND
@DIRECTIONS
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_opcheck(backend, reverse, dtype):
    case = make_case(2, 40, 3, 2, dtype=dtype)
    leaves = [tensor.requires_grad_() for tensor in case.values()]
    full, bare = tuple(leaves), (*leaves[:5], None, None)
    operator = torch.ops.chonn_ops.kirchhoff_scan.default
    for inputs in (full, bare):
        for keep in (False, True):
            opcheck(
                operator,
                (*inputs, *LINE, reverse, "matched", backend, True, keep),
                **within(0.05 if dtype == torch.bfloat16 else 1e-5),
            )
        still = [None if tensor is None else tensor.detach() for tensor in inputs]
        _, _, checkpoints = operator(*still, *LINE, reverse, "matched", backend, True, True)
        opcheck(
            torch.ops.chonn_ops.kirchhoff_scan_backward.default,
            (
                torch.ones_like(still[0]),
                None,
                checkpoints,
                *still,
                *LINE,
                reverse,
                "matched",
                backend,
            ),
        )


@EACH_BACKEND
@pytest.mark.parametrize("steps", [1, 63, 200])
@pytest.mark.parametrize("states", [2, 40])
def test_gradients_need_no_kept_checkpoints(backend, steps, states):
    """A caller that records the operator without `keep` gets the same gradients."""
    leaves = [x.requires_grad_() for x in make_case(2, steps, 3, states).values()]
    grads = []
    for keep in (False, True):
        y, state, _ = torch.ops.chonn_ops.kirchhoff_scan(
            *leaves, [steps], "raster", False, "matched", backend, True, keep
        )
        grads.append(torch.autograd.grad(y.sum() + state.sum(), leaves))
    for without, kept in zip(*grads, strict=True):
        torch.testing.assert_close(without, kept)


@pytest.mark.thorough
@EACH_BACKEND
@BOUNDARIES
def test_compile_without_graph_breaks(backend, boundary):
    leaves = _leaves(2, 6, 3, 2, boundary=boundary)

    def loss(leaves):
        y, state = kirchhoff_scan(**leaves, return_state=True, backend=backend, boundary=boundary)
        return y.sin().sum() + state.cos().sum()

    eager = torch.autograd.grad(loss(leaves), list(leaves.values()))
    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")(leaves)
    for grad, expected in zip(
        torch.autograd.grad(compiled, list(leaves.values())), eager, strict=True
    ):
        torch.testing.assert_close(grad, expected)


class _Ring(torch.nn.Module):
    def forward(self, u, delta, decay, b, c):
        return kirchhoff_scan(u, delta, decay, b, c, boundary="periodic", return_state=True)


@pytest.mark.thorough
def test_export_with_a_dynamic_length():
    case = make_case(2, 6, 3, 2)
    inputs = tuple(case[name] for name in ("u", "delta", "decay", "b", "c"))
    length = torch.export.Dim("length", min=2)
    line = {1: length}
    exported = torch.export.export(
        _Ring(), inputs, dynamic_shapes=(line, line, None, line, line)
    ).module()
    longer = make_case(2, 50, 3, 2)
    inputs = tuple(longer[name] for name in ("u", "delta", "decay", "b", "c"))
    for actual, expected in zip(exported(*inputs), _Ring()(*inputs), strict=True):
        torch.testing.assert_close(actual, expected)


@EACH_BACKEND
def test_vmap_equals_a_loop(backend):
    cases = [make_case(2, 7, 3, 2, seed=seed) for seed in range(3)]
    stacked = {name: torch.stack([case[name] for case in cases]) for name in cases[0]}
    leaves = [stacked["u"].requires_grad_(), stacked["decay"].requires_grad_()]

    def scan(u, decay):
        return kirchhoff_scan(**(cases[0] | {"u": u, "decay": decay}), backend=backend)

    actual = torch.vmap(scan)(*leaves)
    expected = torch.stack([scan(u, decay) for u, decay in zip(*leaves, strict=True)])
    torch.testing.assert_close(actual, expected)
    for grad, other in zip(
        torch.autograd.grad(actual.sum(), leaves),
        torch.autograd.grad(expected.sum(), leaves),
        strict=True,
    ):
        torch.testing.assert_close(grad, other)


@EACH_BACKEND
@BOUNDARIES
def test_autocast_keeps_the_state_in_float32(backend, boundary):
    case = make_case(2, 200, 8, 4)
    if boundary == "periodic":
        del case["initial_state"]
    plain = run(case, backend=backend, boundary=boundary)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        cast = run(case, backend=backend, boundary=boundary)
    assert cast["state"].dtype == torch.float32
    assert_close(cast, plain, TOLERANCE[torch.float32])


@EACH_BACKEND
def test_only_the_asked_gradients_are_needed(backend):
    case = make_case(2, 20, 3, 2)
    decay = case["decay"].requires_grad_()
    _, state = kirchhoff_scan(**case, return_state=True, backend=backend)
    (from_state,) = torch.autograd.grad(state.sum(), decay)
    full = {name: tensor.detach().double().requires_grad_() for name, tensor in case.items()}
    _, state = kirchhoff_scan(**full, return_state=True, backend="reference")
    (expected,) = torch.autograd.grad(state.sum(), full["decay"])
    assert rms_ratio(from_state, expected) < TOLERANCE[torch.float32]


@EACH_BACKEND
@pytest.mark.parametrize("reverse", [False, True])
def test_results_may_be_changed_in_place(backend, reverse):
    case = make_case(2, 7, 3, 2)
    u = case["u"].requires_grad_()
    y, state = kirchhoff_scan(**case, reverse=reverse, return_state=True, backend=backend)
    (expected,) = torch.autograd.grad(3 * y.sum() + 2 * state.sum(), u, retain_graph=True)
    y *= 3
    state *= 2
    (found,) = torch.autograd.grad(y.sum() + state.sum(), u)
    torch.testing.assert_close(found, expected)


PEAK = """
import resource, sys
import torch
from chonn_ops.scan import kirchhoff_scan
torch.set_num_threads(2)

def scan(B, L, D, N):
    shapes = [(B, L, D), (B, L, D), (D, N), (B, L, N), (B, L, N), (D,)]
    leaves = [torch.rand(shape).add_(0.1).requires_grad_() for shape in shapes]
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    kirchhoff_scan(*leaves, backend=sys.argv[1]).sum().backward()
    return (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024

scan(1, 64, 16, 2)
print(scan(2, 2048, 256, int(sys.argv[2])))
"""


@pytest.mark.slow
@pytest.mark.parametrize("backend", [name for name in BACKENDS if name != "reference"])
def test_peak_memory_does_not_grow_with_the_states(backend):
    pytest.importorskip("resource")
    unit = 2 * 2048 * 256 * 4  # one (B, L, D) tensor
    peaks = {}
    for states in (16, 64):
        command = [sys.executable, "-c", PEAK, backend, str(states)]
        peaks[states] = int(subprocess.run(command, check=True, capture_output=True).stdout)
    narrow = 4 * 2 * 2048 * 64 * 4  # b, c and their gradients at N = 64
    # Four outputs, the gradient of y, one chunk and its checkpoints; (B, L, D, N) is 64 units.
    assert peaks[16] < 12 * unit
    assert peaks[64] < peaks[16] + narrow + 2 * unit
