"""The Triton kernels of networks, run by Triton's interpreter on the CPU, against the reference.

In a process of their own, as Triton chooses its interpreter when it is imported. The interpreter
takes a millisecond for what a GPU does in a microsecond: networks are tiny, and coarsest grids are
made smaller than usual for there to be levels. `test_on_cuda` runs compiled, where CUDA is.
"""

from __future__ import annotations

import math
import os
import warnings
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from unittest import mock

import pytest
import torch
from network_cases import (
    assert_equal,
    make_network,
    relative_residual,
    rounding_floor,
    run,
    truth,
)
from torch.utils._python_dispatch import TorchDispatchMode

from chonn_ops import kirchhoff_network
from chonn_ops.network import reference
from chonn_ops.network import torch as on_torch

needs_triton = pytest.mark.skipif(find_spec("triton") is None, reason="Triton is not installed")


@contextmanager
def _levels(coarsest: int, alone: int = 4096):
    """Coarsest grids of so many nodes; larger ones than `alone` are shared by many programs."""
    with ExitStack() as stack:
        stack.enter_context(
            mock.patch("chonn_ops.network.multigrid._bottom", return_value=coarsest)
        )
        stack.enter_context(mock.patch("chonn_ops.network.triton._NODES_ALONE", alone))
        block = 32 if alone == 4096 else 16
        stack.enter_context(mock.patch("chonn_ops.network.triton._BLOCK", block))
        yield


def check_levels(grid, periodic, dtype, *, coarsest, alone=4096, stretch=1.0, channels=1):
    """To the tolerance, and in as many iterations as the PyTorch backend, whose cycle it is."""
    from chonn_ops.network import triton as on_triton

    source, conductance, leak = make_network(grid, B=1, C=channels, dtype=dtype)
    conductance = (conductance[0] * stretch, *conductance[1:])
    tol = 1e-12 if dtype == torch.float64 else 1e-5
    case = (source, conductance, leak, periodic)
    with _levels(coarsest, alone):
        v, iterations, residual = on_triton.solve(*case, tol, 50)
        expected = on_torch.solve(*case, tol, 50)
    assert iterations.dtype == torch.int32
    assert torch.equal(iterations, expected[1])
    assert iterations.min() > 1, "one level is all there was"
    assert (residual <= tol).all()
    assert (relative_residual(v, *case) <= tol + 4 * rounding_floor(*case)).all()
    exact = reference.solve(*case)[0]
    limit = 1e-8 if dtype == torch.float64 else 1e-3
    assert (v - exact).norm() <= limit * exact.norm()


@needs_triton
@pytest.mark.parametrize(
    ("grid", "periodic", "dtype", "options"),
    [
        ((4, 5), (False, False), torch.float64, {"coarsest": 6}),
        ((6, 5), (True, True), torch.float32, {"coarsest": 10, "channels": 2}),
        ((5, 6), (False, True), torch.float32, {"coarsest": 5}),
        ((4, 8), (False, False), torch.float32, {"coarsest": 16, "stretch": 1e4}),
        ((3, 3, 4), (False, True, True), torch.float32, {"coarsest": 12}),
        ((5, 6), (True, False), torch.float32, {"coarsest": 9, "alone": 9}),
    ],
    ids=["plane", "torus", "three levels", "one axis halved alone", "space", "shared"],
)
def test_levels(interpreted, grid, periodic, dtype, options):
    interpreted(check_levels, grid, periodic, dtype, **options)


def check_operator(grid, boundary, dtype):
    """Potentials and all gradients, with entries that are no edges and are never read."""
    source, conductance, leak = make_network(grid, B=2, C=2)
    expected = truth(source, conductance, leak, boundary=boundary)
    for axis, g in enumerate(conductance):
        if boundary != "periodic":
            g.select(axis + 1, -1).fill_(math.nan)
    case = (source.to(dtype), tuple(g.to(dtype) for g in conductance), leak.to(dtype))
    actual = run(*case, boundary=boundary, tol=1e-12, max_iterations=4, backend="triton")
    assert_equal(actual, expected, 1e-8)


@needs_triton
@pytest.mark.parametrize(
    ("grid", "boundary"),
    [((9,), "periodic"), ((1, 6), "neumann"), ((5, 6), "neumann"), ((2, 3, 4), "periodic")],
)
def test_equals_the_reference(interpreted, grid, boundary):
    interpreted(check_operator, grid, boundary, torch.float64)


def check_narrow(dtype):
    """bfloat16 and float16 are read as they are, at any strides, and solved in float32."""
    source, conductance, leak = make_network((5, 6), dtype=dtype)
    turned = [x.transpose(0, -1).contiguous().transpose(0, -1) for x in (source, *conductance)]
    leak = leak[:1, :1, :1].expand(leak.shape)
    v = kirchhoff_network(turned[0], turned[1:], leak, backend="triton")
    assert v.dtype == dtype
    exact = kirchhoff_network(
        source.double(), [g.double() for g in conductance], leak.double(), backend="reference"
    )
    torch.testing.assert_close(v.double(), exact, rtol=torch.finfo(dtype).eps, atol=1e-4)


@needs_triton
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_narrow_inputs(interpreted, dtype):
    interpreted(check_narrow, dtype)


def check_apart(alone):
    """NaN stays in its network; no source, no potential; dead nodes; neighbours change nothing."""
    source, conductance, leak = make_network((5, 6), dtype=torch.float32)
    source[0, ..., 1] = 0
    for x in (*conductance, leak):
        x[0, 2, 3, 0] = 0
    conductance[0][0, 1, 3, 0] = conductance[1][0, 2, 2, 0] = 0
    with _levels(128, alone), warnings.catch_warnings():
        warnings.simplefilter("error")
        options = {"backend": "triton", "return_info": True}
        expected = kirchhoff_network(source, conductance, leak, **options)[0]
        leak[1, 4, 0, 2] = math.inf
        v, info = kirchhoff_network(source, conductance, leak, **options)
    assert v[1, ..., 2].isnan().all()
    assert info.backward_error[1, 2].isnan()
    v[1, ..., 2] = expected[1, ..., 2]
    assert torch.equal(v, expected)
    assert v[0, 2, 3, 0] == 0
    assert v[0, ..., 1].abs().max() == 0
    assert info.iterations[0, 1] == info.backward_error[0, 1] == 0


@needs_triton
@pytest.mark.parametrize("alone", [4096, 4])
def test_networks_are_apart(interpreted, alone):
    interpreted(check_apart, alone)


def check_held(alone):
    """A node that a leak of 1e9 holds does not hide the others."""
    from chonn_ops.network import triton as on_triton

    source, conductance, leak = make_network((12, 10), B=1, C=1, contrast=4.0)
    leak *= 1e-3
    leak[0, 6, 5], source[0, 6, 5] = 1e9, 2e9
    case = (source, conductance, leak, (False, False))
    with _levels(20, alone):
        v, iterations, deviation = on_triton.solve(*case, 1e-5, 50)
        assert torch.equal(iterations, on_torch.solve(*case, 1e-5, 50)[1])
    assert iterations.item() > 2
    assert deviation.item() <= 1e-5
    exact = reference.solve(*case)[0]
    assert (v - exact).abs().max() <= 1e-4 * exact.abs().max()


@needs_triton
@pytest.mark.parametrize("alone", [4096, 4])
def test_no_node_outweighs_the_others(interpreted, alone):
    interpreted(check_held, alone)


def check_limit():
    from chonn_ops.network import triton as on_triton

    source, conductance, leak = make_network((5, 6), B=1, C=1)
    for alone in (4096, 4):
        with _levels(12, alone):
            _, iterations, residual = on_triton.solve(
                source, conductance, leak, (False, False), 1e-12, 2
            )
        assert iterations.item() == 2
        assert 1e-12 < residual.item() < 1


@needs_triton
def test_stops_at_the_limit_and_says_how_far_it_came(interpreted):
    interpreted(check_limit)


class _Unread(TorchDispatchMode):
    """Refuses what would wait for a GPU."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func.overloadpacket.__name__
        assert name not in ("_local_scalar_dense", "nonzero", "unique_dim", "_unique2"), name
        return func(*args, **(kwargs or {}))


def check_recording(alone):
    from chonn_ops.network import triton as on_triton

    source, conductance, leak = make_network((4, 5), B=1, C=2)
    conductance[0][..., 1] *= 1e4
    case = (source, conductance, leak, (False, False), 1e-12, 3)
    with _levels(20, alone), mock.patch("chonn_ops.network.torch.recording", return_value=True):
        on_triton.solve(*case)  # numbers are copied to the device by the first call
        with _Unread():
            v, iterations, _ = on_triton.solve(*case)
    exact = reference.solve(*case[:4])[0]
    assert (v - exact).norm() <= 1e-8 * exact.norm()
    assert iterations.max() < 3


@needs_triton
@pytest.mark.parametrize("alone", [4096, 4])
def test_nothing_is_read_while_a_graph_is_recorded(interpreted, alone):
    interpreted(check_recording, alone)


@needs_triton
@pytest.mark.skipif("TRITON_INTERPRET" in os.environ, reason="Triton interprets")
@pytest.mark.parametrize("kernel", ["solve_alone", "share_apply", "share_update", "stop_converged"])
def test_kernels_compile_for_hopper(kernel):
    """What the interpreter lets pass and the compiler does not; needs no GPU."""
    from network_triton_compile import compile_for_hopper

    assert compile_for_hopper(kernel, END=18, RINGS=1, PARTS=16).asm["cubin"]


@needs_triton
@pytest.mark.skipif(not torch.cuda.is_available(), reason="CUDA is not available")
@pytest.mark.parametrize("grid", [(33,), (31, 32), (100, 101), (17, 18, 19)], ids=str)
@pytest.mark.parametrize("boundary", ["neumann", "periodic"])
def test_on_cuda(grid, boundary):
    case = make_network(grid, contrast=1e4)
    source, conductance, leak = case[0].cuda(), [g.cuda() for g in case[1]], case[2].cuda()
    actual = run(source, conductance, leak, boundary=boundary, tol=1e-12, backend="triton")
    assert_equal({k: v.cpu() for k, v in actual.items()}, truth(*case, boundary=boundary), 1e-8)


@needs_triton
@pytest.mark.skipif(not torch.cuda.is_available(), reason="CUDA is not available")
@pytest.mark.parametrize("grid", [(31, 32), (100, 101)], ids=str)
def test_in_a_cuda_graph(grid):
    source, conductance, leak = make_network(grid, B=1, dtype=torch.float32)
    inputs = source.cuda(), [g.cuda() for g in conductance], leak.cuda()
    options = {"backend": "triton", "max_iterations": 20}
    kirchhoff_network(*inputs, **options)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        v = kirchhoff_network(*inputs, **options)
    inputs[0].mul_(2)
    graph.replay()
    expected = kirchhoff_network(*inputs, **options)
    torch.testing.assert_close(v, expected, rtol=1e-3, atol=1e-4)
