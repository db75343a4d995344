"""What circuits are, whatever their size, boundary, direction, precision and backend.

Drawn by hypothesis: the same examples in every run, and the smallest that fails.
"""

from __future__ import annotations

import os
from unittest import mock

import pytest
import torch

pytest.importorskip("hypothesis")
from hypothesis import given, settings
from hypothesis import strategies as st

from chonn_ops import Auto, Circuit, Grid, kirchhoff_scan
from chonn_ops.network import available_backends as network_backends
from chonn_ops.scan import available_backends as scan_backends
from chonn_ops.scan import scan_field

# "cuda" is held to the same truth by tests of its own.
SCANS = tuple(name for name in scan_backends() if name not in ("cuda", "reference"))
NETWORKS = tuple(name for name in network_backends() if name != "reference")
draws = settings(max_examples=40, deadline=None, derandomize=True, database=None)
sizes = st.integers(1, 40)
seeds = st.integers(0, 2**31)


@st.composite
def lines(draw, dtype=torch.float64):
    """u, delta, decay, b, c of a line; steps and rates over seven orders of magnitude."""
    B, L, D, N = (draw(s) for s in (st.integers(1, 3), st.integers(1, 70), sizes, sizes))
    generator = torch.Generator().manual_seed(draw(seeds))
    spread = draw(st.floats(0, 7))

    def positive(*shape):
        exponents = torch.rand(*shape, generator=generator, dtype=torch.float64) - 0.5
        return (10 ** (spread * exponents)).to(dtype)

    def normal(*shape):
        return torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype)

    return normal(B, L, D), positive(B, L, D), positive(D, N), normal(B, L, N), normal(B, L, N)


def close(one, other, scale, tolerance):
    error = (one.double() - other.double()).abs().max().item()
    assert error <= tolerance * (scale.double().abs().max().item() + 1e-300)


@draws
@given(line=lines(), backend=st.sampled_from(SCANS), periodic=st.booleans(), reverse=st.booleans())
def test_scan_is_the_reference(line, backend, periodic, reverse):
    """From any state. Lines that are cut, and those turned round, are the reference's then, too."""
    options = {"boundary": "periodic" if periodic else "matched", "reverse": reverse}
    if not periodic:
        options["initial_state"] = line[0][:, 0, :, None] * line[3][:, 0, None]
    truth, state = kirchhoff_scan(*line, **options, return_state=True, backend="reference")
    y, end = kirchhoff_scan(*line, **options, return_state=True, backend=backend)
    # Sums of N terms of either sign: their size is that of the terms.
    terms = state.abs().amax() * line[4].abs().amax() * line[2].shape[1]
    close(y, truth, terms + truth.abs().amax(), 1e-10)
    close(end, state, state, 1e-10)


@draws
@given(line=lines(), backend=st.sampled_from(SCANS))
def test_capacitors_hold_no_more_than_was_fed_in(line, backend):
    """Every step is a mean of the state and of what feeds it: |v| <= max |b u| / decay."""
    u, delta, decay, b, c = line
    _, state = kirchhoff_scan(u, delta, decay, b, c, return_state=True, backend=backend)
    fed = (b[:, :, None] * u[..., None]).abs().amax(1) / decay
    assert bool((state.abs() <= fed * (1 + 1e-9)).all())


@draws
@given(
    grid=st.lists(st.integers(1, 9), min_size=1, max_size=3),
    directions=st.sampled_from(("raster", "bidirectional", "cross", "axial")),
    boundary=st.sampled_from(("matched", "periodic", "neumann", "dirichlet")),
    seed=seeds,
    dtype=st.sampled_from((torch.float32, torch.float64, torch.bfloat16)),
    backend=st.sampled_from(SCANS),
)
def test_field_is_the_reference(grid, directions, boundary, seed, dtype, backend):
    generator = torch.Generator().manual_seed(seed)
    u, delta = torch.randn(2, 2, *grid, 3, generator=generator, dtype=torch.float64)
    b, c = torch.randn(2, 2, *grid, 4, generator=generator, dtype=torch.float64)
    decay = torch.rand(3, 4, generator=generator, dtype=torch.float64) + 0.05
    line = [x.to(dtype) for x in (u, delta.abs() + 0.01, decay, b, c)]
    options = {"directions": directions, "boundary": boundary}
    if directions == "raster" and boundary in ("neumann", "dirichlet"):
        with pytest.raises(ValueError, match="in one direction"):
            scan_field(*line, **options, backend=backend)
        return
    truth = scan_field(*line, **options, backend="reference")
    tolerance = {torch.float64: 1e-10, torch.float32: 1e-4, torch.bfloat16: 2e-2}[dtype]
    close(scan_field(*line, **options, backend=backend), truth, truth.abs() + 1, tolerance)


@st.composite
def networks(draw):
    """Source, conductances, leak and periodic axes of networks whose conductances differ up to
    10^4; the ends of other axes may be grounded."""
    grid = draw(
        st.lists(st.integers(1, 12), min_size=1, max_size=3).filter(
            lambda g: len(g) < 3 or max(g) < 7
        )
    )
    generator = torch.Generator().manual_seed(draw(seeds))
    contrast = 10 ** draw(st.floats(0, 4))
    shape = (draw(st.integers(1, 2)), *grid, draw(st.integers(1, 5)))

    def uniform():
        return torch.rand(*shape, generator=generator, dtype=torch.float64)

    conductance = tuple(contrast ** (uniform() - 0.5) for _ in grid)
    leak, periodic = 0.05 + uniform(), []
    for axis, n in enumerate(grid, 1):
        word = draw(st.sampled_from(("open", "grounded", "periodic")))
        periodic.append(word == "periodic")
        if word == "grounded":
            for node in (0, n - 1):
                leak.select(axis, node).add_(2 * conductance[axis - 1].select(axis, node))
    return uniform() - 0.5, conductance, leak, periodic


def solve(source, conductance, leak, periodic, backend):
    with mock.patch.dict(os.environ, CHONN_NETWORK_BACKEND=backend):
        return Circuit(conductance, leak, Grid(leak.shape[1:-1], periodic)).solve(
            source, Auto(1e-12)
        )


@draws
@given(network=networks(), backend=st.sampled_from(NETWORKS))
def test_backends_solve_the_same_network(network, backend):
    truth = solve(*network, "reference" if "reference" in network_backends() else "torch")
    close(solve(*network, backend), truth, truth, 1e-10)


@draws
@given(network=networks(), backend=st.sampled_from(NETWORKS))
def test_maximum_principle_and_dissipation(network, backend):
    source, conductance, leak, periodic = network
    v = solve(source, conductance, leak, periodic, backend)
    bound = source.abs().amax(tuple(range(1, source.ndim - 1))) / leak.amin(
        tuple(range(1, source.ndim - 1))
    )
    highest = v.abs().amax(tuple(range(1, v.ndim - 1)))
    assert bool((highest <= bound * (1 + 1e-8)).all())
    assert bool(((source * v).sum(tuple(range(1, v.ndim - 1))) >= -1e-12).all())
    fed = solve(source.abs(), conductance, leak, periodic, backend)
    assert bool((fed >= -1e-9 * fed.abs().amax()).all())


@draws
@given(network=networks(), backend=st.sampled_from(NETWORKS), more=st.floats(0.01, 100))
def test_more_leak_is_less_potential(network, backend, more):
    source, conductance, leak, periodic = network
    v = solve(source.abs(), conductance, leak, periodic, backend)
    w = solve(source.abs(), conductance, leak + more, periodic, backend)
    assert bool((w <= v * (1 + 1e-7) + 1e-10 * v.amax()).all())
