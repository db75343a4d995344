"""Every backend on fields: direction modes and boundaries against float64 loops over copies."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from scan_cases import (
    BACKENDS,
    EACH_BACKEND_THOROUGHLY,
    MODES,
    TOLERANCE,
    assert_close,
    field_and_truth,
    field_truth,
    make_field,
    run_field,
)

from chonn_ops.scan import BOUNDARIES, DIRECTIONS, api, autograd, kirchhoff_scan, scan_field

STREAMS = ("u", "delta", "b", "c")
TWO_WAYS = ("bidirectional", "cross", "axial")
# The decorator above all others varies first, so that backends share a truth.
EACH_BACKEND = pytest.mark.parametrize("backend", BACKENDS)
EACH_MODE = pytest.mark.parametrize(("directions", "boundary"), MODES)
THOROUGH = pytest.mark.thorough
GRIDS = [
    (7,),
    (4, 5),
    (3, 4, 2),
    (1,),
    *(pytest.param(x, marks=THOROUGH) for x in ((33,), (2, 65))),
]


@pytest.fixture(autouse=True)
def _poisoned_memory():
    """`torch.empty` returns NaN: nothing may be read, or returned, before it is written."""
    torch.use_deterministic_algorithms(True)
    assert torch.utils.deterministic.fill_uninitialized_memory
    yield
    torch.use_deterministic_algorithms(False)


@EACH_MODE
@pytest.mark.parametrize("grid", GRIDS, ids=str)
@pytest.mark.parametrize(
    "dtype", [torch.float32, pytest.param(torch.float64, marks=THOROUGH)], ids=str
)
def test_modes(directions, boundary, grid, dtype):
    modes = {"directions": directions, "boundary": boundary}
    case = make_field(2, grid, 5, 3, dtype)
    expected = field_truth(case, **modes)
    for backend in BACKENDS:
        actual = run_field(case, backend=backend, **modes)
        if boundary == "periodic" and grid == (1,):
            # A ring of one step rests at b u / decay whatever the step: a difference of equals.
            left = actual.pop("grad_delta").norm()
            assert left <= TOLERANCE[dtype] * expected["grad_decay"].norm()
            actual["grad_delta"] = expected["grad_delta"]
        # Odd walls subtract states: on a line of one step almost all of them.
        factor = 3 if boundary == "dirichlet" and grid == (1,) else 1
        assert_close(actual, expected, factor * TOLERANCE[dtype])


@EACH_BACKEND_THOROUGHLY
@pytest.mark.parametrize("boundary", BOUNDARIES)
@pytest.mark.parametrize("length", [2, 63, pytest.param(1000, marks=THOROUGH)])
def test_lengths(backend, boundary, length):
    modes = {"directions": "axial", "boundary": boundary}
    case, expected = field_and_truth(1, (length, 2), 3, 2, **modes)
    assert_close(run_field(case, backend=backend, **modes), expected, TOLERANCE[torch.float32])


@EACH_BACKEND_THOROUGHLY
@pytest.mark.parametrize("directions", TWO_WAYS)
@pytest.mark.parametrize(
    "shape", [(1, 1), (3, 16), (33, 20), pytest.param((64, 40), marks=THOROUGH)], ids=str
)
def test_channels_and_states(backend, shape, directions):
    modes = {"directions": directions, "boundary": "neumann"}
    case, expected = field_and_truth(2, (2, 35), *shape, **modes)
    assert_close(run_field(case, backend=backend, **modes), expected, TOLERANCE[torch.float32])


@EACH_BACKEND
@pytest.mark.parametrize("boundary", BOUNDARIES)
@pytest.mark.parametrize(
    "dtype", [torch.bfloat16, pytest.param(torch.float16, marks=THOROUGH)], ids=str
)
def test_narrow_dtypes(backend, boundary, dtype):
    modes = {"directions": "cross", "boundary": boundary}
    case, expected = field_and_truth(2, (5, 8), 20, 4, dtype, **modes)
    actual = run_field(case, backend=backend, **modes)
    assert all(actual[f"grad_{name}"].dtype == dtype for name in case)
    # Odd walls subtract states, so that roundings of the results weigh more.
    assert_close(actual, expected, TOLERANCE[dtype])


@EACH_BACKEND
def test_mixed_dtypes(backend):
    case = make_field(2, (6, 5), 8, 4, torch.bfloat16)
    case |= {name: case[name].float() for name in ("delta", "decay")}
    actual = run_field(case, backend=backend, directions="axial")
    assert_close(actual, field_truth(case, "axial"), TOLERANCE[torch.bfloat16])
    assert actual["grad_delta"].dtype == torch.float32


@pytest.mark.thorough
@EACH_BACKEND
@pytest.mark.parametrize("boundary", BOUNDARIES)
@pytest.mark.parametrize("z", [1e-8, 1e-4, 0.1, 1.0, 10.0, 100.0, 1e4])
def test_every_scale(backend, boundary, z):
    """Steps from far below to far above the time constants; one size of z for all states."""
    modes = {"directions": "axial", "boundary": boundary}
    case = make_field(2, (5, 6), 4, 1)
    case["delta"] = (z / case["decay"][:, 0]).expand(2, 5, 6, 4).contiguous()
    actual, expected = run_field(case, backend=backend, **modes), field_truth(case, **modes)
    for name, tensor in actual.items():
        error = (tensor.double() - expected[name]).norm().item()
        # exp(-z) loses z ulp to the rounding of z, and ends where normal floats do.
        bound = (5e-6 + 2e-7 * z) * expected[name].norm().item() + 1e-30
        assert error <= bound, f"{name}: {error:.2e} above {bound:.2e}"


def _channels_first(x):
    return x.movedim(-1, 1).contiguous().movedim(1, -1)


def _slice_of_wider(x):
    return torch.cat([torch.full_like(x, float("nan")), x], dim=-1)[..., x.shape[-1] :]


def _transposed_grid(x):
    return x.transpose(1, 2).contiguous().transpose(1, 2)


def _expanded(x):
    return x[:1].expand_as(x)


@pytest.mark.parametrize(
    "layout",
    [_channels_first, _slice_of_wider, _transposed_grid, _expanded],
    ids=lambda f: f.__name__,
)
def test_layouts(layout):
    case = make_field(2, (2, 3), 20, 5)
    laid_out = case | {name: layout(case[name]) for name in STREAMS}
    assert not laid_out["u"].is_contiguous()
    dense = {name: tensor.contiguous() for name, tensor in laid_out.items()}
    for directions in DIRECTIONS:
        modes = {"directions": directions, "boundary": "periodic"}
        expected = field_truth(dense, **modes)
        for backend in BACKENDS:
            actual = run_field(laid_out, backend=backend, **modes)
            assert_close(actual, expected, TOLERANCE[torch.float32])


def test_fields_with_one_stride_are_not_copied(monkeypatch):
    case = make_field(2, (6, 7), 20, 5)
    case |= {"u": _channels_first(case["u"]), "b": _slice_of_wider(case["b"])}
    addresses, run = [], autograd.scan

    def spy(inputs, modes):
        addresses.extend(tensor.data_ptr() for tensor in inputs[:5])
        return run(inputs, modes)

    monkeypatch.setattr(api, "scan", spy)
    scan_field(**case, directions="cross")
    assert addresses == [case[name].data_ptr() for name in ("u", "delta", "decay", "b", "c")]


def _twice(case, mirror_sign):
    """The line followed by its mirror image, with u of that sign."""
    signs = {"u": mirror_sign, "delta": 1, "b": 1, "c": 1}
    mirrored = {name: sign * case[name].flip(1) for name, sign in signs.items()}
    return case | {name: torch.cat([case[name], mirrored[name]], dim=1) for name in STREAMS}


@EACH_BACKEND
@pytest.mark.parametrize(("boundary", "sign"), [("neumann", 1), ("dirichlet", -1)])
def test_walls_equal_a_line_with_its_mirror_image(backend, boundary, sign):
    """The way back over a line is the way on over its image, seen with the image's sign."""
    case = make_field(2, (40,), 5, 3, torch.float64)
    there_and_on = kirchhoff_scan(**_twice(case, sign), backend=backend)
    forth, back = there_and_on[:, :40], sign * there_and_on[:, 40:].flip(1)
    y = scan_field(**case, directions="bidirectional", boundary=boundary, backend=backend)
    torch.testing.assert_close(y, (forth + back) / 2)


@EACH_BACKEND
@pytest.mark.parametrize("directions", DIRECTIONS)
def test_ring_equals_many_turns(backend, directions):
    case = make_field(2, (9,), 5, 3, torch.float64)
    y = scan_field(**case, directions=directions, boundary="periodic", backend=backend)
    turns = case | {name: case[name].repeat(1, 60, 1) for name in STREAMS}
    unrolled = scan_field(**turns, directions=directions, backend=backend)
    torch.testing.assert_close(y, unrolled[:, 30 * 9 : 31 * 9])


@EACH_BACKEND
def test_empty_batch(backend):
    for directions, boundary in MODES:
        case = make_field(0, (3, 2), 4, 2)
        actual = run_field(case, backend=backend, directions=directions, boundary=boundary)
        assert actual["y"].shape == (0, 3, 2, 4)
        assert (actual["grad_decay"] == 0).all()
        assert (actual["grad_d"] == 0).all()


@pytest.mark.thorough
@EACH_BACKEND
def test_two_threads_get_the_answers_of_one(backend):
    # Long enough that the kernel, which lets go of the GIL, is in both threads at once.
    grid = (20, 15) if backend == "cpu" else (3, 4)
    cases = [make_field(2, grid, 24, 8, seed=seed) for seed in range(2)]
    steps = 30 if backend == "cpu" else 5

    def work(case, modes):
        return run_field(case, backend=backend, directions=modes[0], boundary=modes[1])

    for modes in (("cross", "neumann"), ("axial", "periodic")):
        alone = [work(case, modes) for case in cases]
        with ThreadPoolExecutor(2) as pool:
            together = pool.map(work, cases * steps, [modes] * 2 * steps)
        for i, actual in enumerate(together):
            assert all(torch.equal(actual[name], alone[i % 2][name]) for name in actual)
