"""The Triton kernels, run by Triton's interpreter on the CPU, against the float64 loop.

The interpreter is chosen when Triton is first imported, and other tests may have imported it: so
the checks run in a process of their own. `test_on_cuda` runs them compiled, where CUDA is.
"""

from __future__ import annotations

import os
import subprocess
import sys
from unittest import mock

import pytest
import torch
from scan_cases import (
    MODES,
    TOLERANCE,
    assert_close,
    field_truth,
    make_case,
    make_field,
    run,
    run_field,
    truth,
)

from chonn_ops._backends import _has_triton

needs_triton = pytest.mark.skipif(not _has_triton((3, 3)), reason="needs Triton 3.3 or later")


def _programs(wanted: int):
    return mock.patch("chonn_ops.scan.triton.programs_wanted", return_value=wanted)


def check_line(sizes, dtype=torch.float32, wanted=1, scale=1.0, spread=0.0, **options):
    """One line with initial and final state; many `wanted` programs cut it into segments."""
    case = make_case(*sizes, dtype)
    case["delta"] = case["delta"] * scale
    if spread:
        low_to_high = torch.linspace(-spread, spread, sizes[1], dtype=torch.float64)
        case["delta"] = (case["delta"] * 10 ** low_to_high[:, None]).to(dtype)
    with _programs(wanted):
        actual = run(case, backend="triton", **options)
    assert_close(actual, truth(case, **options), TOLERANCE[dtype])


def check_field(sizes, directions, boundary, dtype=torch.float64, wanted=1):
    case = make_field(*sizes, dtype)
    modes = {"directions": directions, "boundary": boundary}
    with _programs(wanted):
        actual = run_field(case, backend="triton", **modes)
    assert_close(actual, field_truth(case, **modes), TOLERANCE[dtype])


def check_strides():
    """Rows far apart (parts of one projection), channels far apart, a gradient of stride 0."""
    from chonn_ops import kirchhoff_scan

    case = make_case(2, 9, 5, 3, torch.float64)
    wide = torch.cat([case["b"], case["c"], case["u"]], dim=2)
    b, c, u = wide[..., :3], wide[..., 3:6], wide[..., 6:]
    delta = case["delta"].transpose(1, 2).contiguous().transpose(1, 2)

    def gradients(backend, *inputs):
        leaves = [tensor.detach().requires_grad_() for tensor in inputs]
        y = kirchhoff_scan(*leaves, case["d"], backend=backend)
        grads = torch.autograd.grad(y.sum(), leaves)
        return {str(i): tensor for i, tensor in enumerate((y, *grads))}

    actual = gradients("triton", u, delta, case["decay"], b, c)
    assert_close(actual, gradients("reference", u, delta, case["decay"], b, c), 1e-12)


def check_segments_change_nothing():
    """The same line in one segment and in two, without d, twice: equal to rounding, to the bit
    when repeated."""
    case = make_case(1, 66, 3, 2)
    del case["d"], case["initial_state"]
    results = []
    for wanted in (1, 2, 2):
        with _programs(wanted):
            results.append(run(case, backend="triton", boundary="periodic"))
    assert_close(results[1], {k: v.double() for k, v in results[0].items()}, 2e-6)
    assert all(torch.equal(results[1][name], results[2][name]) for name in results[1])


@needs_triton
@pytest.mark.parametrize(
    "sizes",
    [(2, 1, 5, 3), (1, 2, 20, 16), (1, 63, 1, 1), (1, 33, 20, 16), (2, 5, 40, 1), (1, 70, 2, 40)],
)
def test_lines(interpreted, sizes):
    interpreted(check_line, sizes)


@pytest.mark.slow
@needs_triton
def test_a_line_cut_into_segments(interpreted):
    interpreted(check_line, (1, 130, 5, 3), torch.float64, wanted=16, reverse=True)


@needs_triton
def test_segments_and_repetition(interpreted):
    interpreted(check_segments_change_nothing)


@needs_triton
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_narrow_streams(interpreted, dtype):
    interpreted(check_line, (1, 40, 5, 3), dtype)


@needs_triton
@pytest.mark.parametrize("scale", [1e-12, 1e-8, 1e-4, 12.0, 1e4])
def test_extreme_steps(interpreted, scale):
    interpreted(check_line, (1, 9, 2, 3), scale=scale)


@needs_triton
def test_steps_of_all_sizes(interpreted):
    interpreted(check_line, (1, 33, 2, 3), spread=6.0)


@needs_triton
@pytest.mark.parametrize(("directions", "boundary"), MODES)
def test_fields(interpreted, directions, boundary):
    interpreted(check_field, (1, (3, 4), 2, 2), directions, boundary)


@needs_triton
@pytest.mark.parametrize(
    ("directions", "boundary"),
    [("cross", "dirichlet"), ("axial", "neumann"), ("cross", "periodic")],
)
def test_volumes(interpreted, directions, boundary):
    interpreted(check_field, (1, (2, 3, 2), 2, 2), directions, boundary, torch.float32)


@needs_triton
def test_narrow_fields(interpreted):
    interpreted(check_field, (2, (3, 4), 2, 2), "cross", "neumann", torch.bfloat16)


@pytest.mark.slow
@needs_triton
@pytest.mark.parametrize(
    ("grid", "directions", "boundary", "wanted"),
    [((2, 17), "axial", "matched", 1), ((66,), "bidirectional", "dirichlet", 2)],
    ids=["several lines a program", "several segments a line"],
)
def test_work_is_shared_out(interpreted, grid, directions, boundary, wanted):
    options = {"dtype": torch.float32, "wanted": wanted}
    interpreted(check_field, (1, grid, 2, 1), directions, boundary, **options)


@needs_triton
def test_strides(interpreted):
    interpreted(check_strides)


def check_coefficients():
    """Both formulas in float32 against float64 over 16 decades of z."""
    from triton_kernels import coefficients

    z = torch.logspace(-12, 4, 4096)
    out = torch.empty(4, 4096)
    coefficients[(1,)](z, out, 4096)
    exact, loss = z.double(), -torch.expm1(-z.double())
    assert ((out[:2] / loss) - 1).abs().max() < 1e-6
    assert (out[2] - torch.exp(-exact)).abs().max() < 3e-7
    series = exact**2 * (0.5 - exact / 3 + exact**2 / 8 - exact**3 / 30)
    slope = torch.where(exact < 1e-3, series, loss - exact * torch.exp(-exact))
    assert ((out[3] / slope) - 1).abs().max() < 2e-6


@needs_triton
def test_coefficients(interpreted):
    interpreted(check_coefficients)


# Registers of a thread, bytes that it spills, and bytes of shared memory of a program. Tiles that
# changed registers through shared memory, 2 KB of it, would cost a barrier a step.
MOST = {
    "walk_forward": (220, 0, 64),
    "walk_backward": (255, 768, 128),
    "sweep_adjoint": (140, 0, 128),
    "join": (140, 0, 2048),
}


@needs_triton
@pytest.mark.skipif("TRITON_INTERPRET" in os.environ, reason="Triton interprets")
@pytest.mark.parametrize("capability", [80, 90])
@pytest.mark.parametrize("kernel", ["walk_forward", "walk_backward", "sweep_adjoint", "join"])
def test_kernels_compile(compile_triton, kernel, capability):
    """What the interpreter lets pass and the compiler does not; needs no GPU."""
    from triton_compile import arguments_of

    registers, spilled, shared = compile_triton(*arguments_of(kernel), capability)
    most_registers, most_spilled, most_shared = MOST[kernel]
    assert registers <= most_registers
    assert spilled <= most_spilled
    assert shared <= most_shared


def test_importing_the_package_leaves_triton_alone():
    command = "import sys, chonn_ops; assert 'triton' not in sys.modules"
    subprocess.run([sys.executable, "-c", command], check=True)


@needs_triton
@pytest.mark.skipif(not torch.cuda.is_available(), reason="CUDA is not available")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize(("directions", "boundary"), MODES)
def test_on_cuda(directions, boundary, dtype):
    """Long enough lines for several segments, compared on the CPU."""
    case = make_field(2, (9, 300), 20, 16, dtype)
    modes = {"directions": directions, "boundary": boundary}
    expected = field_truth(case, **modes)
    actual = run_field({k: v.cuda() for k, v in case.items()}, backend="triton", **modes)
    assert_close({k: v.cpu() for k, v in actual.items()}, expected, TOLERANCE[dtype])
