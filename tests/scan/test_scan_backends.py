"""Every implementation against the float64 loop: outputs and all gradients of lines and fields."""

import math
import shutil
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from scan_cases import (
    BACKENDS,
    EACH_BUT_EMULATED,
    EACH_IMPLEMENTATION,
    EACH_MODE,
    ISAS,
    MODES,
    STREAMS,
    TOLERANCE,
    assert_close,
    case_and_truth,
    functional_weights,
    make_case,
    rms_ratio,
    run,
    thorough,
    truth,
)

from chonn_ops.scan import (
    BOUNDARIES,
    DIRECTIONS,
    api,
    autograd,
    kirchhoff_scan,
    reference,
    scan_field,
)

pytestmark = pytest.mark.usefixtures("poisoned_memory")
DTYPES = (torch.float64, torch.float32, torch.float16, torch.bfloat16)
LINES = [{"reverse": False}, {"reverse": True}]
AXIAL = [{"directions": "axial", "boundary": boundary} for boundary in BOUNDARIES]
CROSS = [{"directions": "cross", "boundary": boundary} for boundary in BOUNDARIES]
EACH_STEP = pytest.mark.parametrize("step", [10.0, 60.0, 100.0, 1000.0])
FLOATS = pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)


def test_kernel_is_built_where_there_is_a_compiler():
    if shutil.which("cc") is None:
        pytest.skip("no C compiler")
    assert "cpu" in BACKENDS, "run `python hatch_build.py`"
    assert "generic" in ISAS


WAYS = ("bidirectional", "cross", "axial")
SIZES = [
    # Lengths of lines, and of the first axis of a field.
    *(((2, n, 5, 3), options) for n in (2, 63) for options in LINES),
    *(((2, (n, 2), 5, 3), options) for n in (2, 63) for options in AXIAL),
    *(pytest.param((2, 1000, 5, 3), options, marks=thorough) for options in LINES),
    *(pytest.param((2, (1000, 2), 5, 3), options, marks=thorough) for options in AXIAL),
    # All sizes of vectors for the compiled kernel; more states than are taken at once for all.
    *(((3, 40, D, N), {}) for D in (1, 3, 33, 64) for N in (1, 3, 16, 64)),
    *(
        ((2, (2, 35), *sizes), {"directions": x, "boundary": "neumann"})
        for sizes in ((1, 1), (3, 16), (33, 20))
        for x in WAYS
    ),
    *(
        pytest.param((2, (2, 35), 64, 40), {"directions": x, "boundary": "neumann"}, marks=thorough)
        for x in WAYS
    ),
]


# The decorator above all others varies first, so that implementations share a truth.
@EACH_BUT_EMULATED
@pytest.mark.parametrize(("sizes", "options"), SIZES, ids=str)
def test_lengths_channels_and_states(backend, sizes, options):
    case, expected = case_and_truth(*sizes, **options)
    assert_close(run(case, backend=backend, **options), expected, TOLERANCE[torch.float32])


@EACH_IMPLEMENTATION
@EACH_MODE
@pytest.mark.parametrize(
    "sizes",
    [
        *(((7,), 5, 3), ((5, 18), 9, 16), ((1,), 5, 3)),
        pytest.param(((3, 4, 2), 5, 3), marks=thorough),
    ],
    ids=str,
)
def test_modes(backend, directions, boundary, sizes):
    modes = {"directions": directions, "boundary": boundary}
    case, expected = case_and_truth(2, *sizes, **modes)
    actual = run(case, backend=backend, **modes)
    if boundary == "periodic" and sizes[0] == (1,):
        # A ring of one step rests at b u / decay whatever the step: a difference of equals.
        left = actual.pop("grad_delta").norm()
        assert left <= TOLERANCE[torch.float32] * expected["grad_decay"].norm()
        actual["grad_delta"] = expected["grad_delta"]
    # Odd walls subtract states: on a line of one step almost all of them.
    factor = 3 if boundary == "dirichlet" and sizes[0] == (1,) else 1
    assert_close(actual, expected, factor * TOLERANCE[torch.float32])


@EACH_BUT_EMULATED
@pytest.mark.parametrize("options", [*LINES, *CROSS], ids=str)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_dtypes(backend, options, dtype):
    grid = (5, 8) if "directions" in options else 100
    case, expected = case_and_truth(2, grid, 20, 4, dtype, **options)
    actual = run(case, backend=backend, **options)
    assert_close(actual, expected, TOLERANCE[dtype])
    assert actual["y"].dtype == dtype
    assert all(actual[f"grad_{name}"].dtype == dtype for name in case)
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    assert actual.get("state", torch.empty(0, dtype=wide)).dtype == wide


@EACH_IMPLEMENTATION
@pytest.mark.parametrize("options", [LINES[0], AXIAL[0]], ids=str)
@pytest.mark.parametrize("wide", [("delta", "decay"), ("u", "decay", "c")], ids=str)
def test_mixed_dtypes(backend, options, wide):
    """Autocast hands over bfloat16 projections beside float32 parameters."""
    case = make_case(2, (6, 5) if "directions" in options else 30, 9, 16, torch.bfloat16)
    case |= {name: case[name].float() for name in wide}
    actual = run(case, backend=backend, **options)
    assert_close(actual, truth(case, **options), TOLERANCE[torch.bfloat16])
    assert all(actual[f"grad_{name}"].dtype == case[name].dtype for name in case)
    assert actual["y"].dtype == case["u"].dtype
    case["b"] = case["b"].double()
    assert run(case, backend=backend, **options)["grad_b"].dtype == torch.float64
    if "directions" not in options:
        assert run(case, backend=backend)["state"].dtype == torch.float64


def offset(x):
    return torch.cat([torch.full_like(x, math.nan), x], dim=-1)[..., x.shape[-1] :]


LAYOUTS = {
    "transposed": lambda x: x.transpose(0, -1).contiguous().transpose(0, -1),
    "channels first": lambda x: x.movedim(-1, 1).contiguous().movedim(1, -1),
    "transposed grid": lambda x: x.transpose(1, 2).contiguous().transpose(1, 2),
    "strided": lambda x: torch.stack([x, torch.full_like(x, math.nan)], dim=-1)[..., 0],
    "offset": offset,
    "expanded": lambda x: x[:1].expand_as(x),
}


@EACH_IMPLEMENTATION
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(
    "options", [LINES[0], *({"directions": x, "boundary": "periodic"} for x in DIRECTIONS)], ids=str
)
def test_layouts(backend, layout, options):
    case = make_case(3, (2, 3) if "directions" in options else 37, 9, 16)
    narrow = layout in ("transposed", "strided", "offset")  # what has no positions, too
    laid_out = {k: LAYOUTS[layout](x) if narrow or x.dim() > 2 else x for k, x in case.items()}
    assert not laid_out["u"].is_contiguous()
    expected = truth({name: x.contiguous() for name, x in laid_out.items()}, **options)
    assert_close(run(laid_out, backend=backend, **options), expected, TOLERANCE[torch.float32])


@EACH_IMPLEMENTATION
def test_expanded_gradients(backend):
    """`sum` sends back an expanded gradient."""
    case = make_case(3, 37, 9, 16)
    u = case["u"].clone().requires_grad_()
    kirchhoff_scan(**(case | {"u": u}), backend=backend).sum().backward()
    wide = {name: tensor.double() for name, tensor in case.items()}
    expected = wide["u"].clone().requires_grad_()
    reference.forward(**(wide | {"u": expected}))[0].sum().backward()
    assert rms_ratio(u.grad, expected.grad) < TOLERANCE[torch.float32]


def test_fields_with_one_stride_are_not_copied(monkeypatch):
    case = make_case(2, (6, 7), 20, 5)
    case |= {"u": LAYOUTS["channels first"](case["u"]), "b": offset(case["b"])}
    addresses, run = [], autograd.scan

    def spy(inputs, modes):
        addresses.extend(tensor.data_ptr() for tensor in inputs[:5])
        return run(inputs, modes)

    monkeypatch.setattr(api, "scan", spy)
    scan_field(**case, directions="cross")
    assert addresses == [case[name].data_ptr() for name in ("u", "delta", "decay", "b", "c")]


@EACH_IMPLEMENTATION
@pytest.mark.parametrize(("dtype", "most"), [(torch.float32, 5e-7), (torch.float64, 1e-14)])
def test_injection_weight_is_accurate_at_every_scale(backend, dtype, most):
    z = torch.logspace(-12, 4, 20000, dtype=torch.float64).to(dtype)
    decay = torch.logspace(-3, 3, 20000, dtype=torch.float64)[torch.randperm(20000)].to(dtype)
    delta, one = z / decay, torch.ones(1, 1, 1, dtype=dtype)
    args = one.expand(1, 1, 20000), delta[None, None], decay[:, None], one, one
    y = kirchhoff_scan(*args, backend=backend)[0, 0]
    z = delta.double() * decay.double()
    assert (y.double() / (-torch.expm1(-z) / decay.double()) - 1).abs().max() < most


@EACH_IMPLEMENTATION
@pytest.mark.parametrize(
    "z",
    [
        *(1e-8, 0.3, 0.4, 100.0),  # 0.3 and 0.4: series and function
        *(pytest.param(z, marks=thorough) for z in (1e-12, 1e-4, 0.1, 1.0, 10.0, 80.0, 1e4)),
    ],
)
def test_gradients_at_every_scale(backend, z):
    """One line beside the handwritten adjoint: autograd of the loop itself cancels at small z."""
    case = make_case(2, 40, 17, 1)
    case["delta"] = (z / case["decay"][:, 0] * torch.ones(2, 40, 1)).float()
    wide = {name: tensor.double() for name, tensor in case.items()}
    y, state = reference.forward(**wide)
    grads = reference.backward(*functional_weights(y, state), **wide, reverse=False)
    expected = {"y": y, "state": state}
    expected |= {f"grad_{name}": grad for name, grad in zip(case, grads, strict=True)}
    assert_close_at(z, run(case, backend=backend), expected, 2e-6)


@thorough
@EACH_IMPLEMENTATION
@pytest.mark.parametrize("options", AXIAL, ids=str)
@pytest.mark.parametrize("z", [1e-8, 1e-4, 0.1, 1.0, 10.0, 100.0, 1e4])
def test_fields_at_every_scale(backend, options, z):
    """Steps from far below to far above the time constants; one size of z for all states."""
    case = make_case(2, (5, 6), 4, 1)
    case["delta"] = (z / case["decay"][:, 0]).expand(2, 5, 6, 4).contiguous()
    assert_close_at(z, run(case, backend=backend, **options), truth(case, **options), 5e-6)


def assert_close_at(z, actual, expected, tolerance):
    for name, tensor in actual.items():
        error = (tensor.double() - expected[name]).norm().item()
        # exp(-z) loses z ulp to the rounding of z, and ends where normal floats do.
        bound = (tolerance + 2e-7 * z) * expected[name].norm().item() + 1e-30
        assert error <= bound, f"{name}: {error:.2e} above {bound:.2e}"


@EACH_BUT_EMULATED
def test_weight_derivative_is_accurate_at_every_scale(backend):
    """One step from rest: the gradient of decay is the weight's derivative and nothing else."""
    D = 4000
    decay = torch.logspace(-3, 3, D, dtype=torch.float64)[torch.randperm(D)].float()[:, None]
    delta = torch.logspace(-12, 4, D, dtype=torch.float64).float()[None, None] / decay[:, 0]
    one = torch.ones(1, 1, 1)
    decay.requires_grad_()
    kirchhoff_scan(one.expand(1, 1, D), delta, decay, one, one, backend=backend).sum().backward()
    wide, step = decay.detach().double()[:, 0], delta.double()[0, 0]
    expected = -reference.weight_slope(step, wide, *reference.retention_and_weight(step, wide))
    assert (decay.grad[:, 0].double() / expected - 1).abs().max() < 3e-6


def test_tangents_of_time_steps_are_accurate_at_every_scale():
    """One step from rest: that of the weight is exp(-delta)."""
    delta, one = torch.logspace(-12, 1.9, 4000)[None, None], torch.ones(1, 1, 1)

    def weight(delta):
        return kirchhoff_scan(one.expand_as(delta), delta, torch.ones(4000, 1), one, one)

    _, tangent = torch.func.jvp(weight, (delta,), (torch.ones_like(delta),))
    torch.testing.assert_close(tangent, torch.exp(-delta), rtol=1e-5, atol=0)


@EACH_IMPLEMENTATION
@pytest.mark.parametrize("passive", [True, False])
@pytest.mark.parametrize("length", [12, pytest.param(700, marks=thorough)])
def test_a_large_state_is_forgotten(backend, passive, length):
    """After a pulse of 1e8 the outputs are 1 + 1e8 exp(-20 k), right to their own rounding."""
    u, delta, one = torch.ones(1, length, 20), torch.full((1, length, 20), 20.0), torch.ones(20, 1)
    u[:, 0] = 1e8
    b, c = torch.ones(1, length, 1), torch.ones(1, length, 1, requires_grad=True)
    args = [x.detach().double() for x in (u, delta, one, b, c)]
    expected, _ = reference.forward(*args)
    back, _ = reference.forward(*args, reverse=True)  # ends with the pulse
    for scan, right in ((kirchhoff_scan, expected), (scan_field, (expected + back) / 2)):
        y = scan(u, delta, one, b, c, backend=backend, passive=passive)
        torch.testing.assert_close(y.double(), right, rtol=1e-5, atol=0)
        (seen,) = torch.autograd.grad(y.sum(), c)
        right = right.sum(-1, keepdim=True)
        torch.testing.assert_close(seen.double(), right, rtol=1e-5, atol=0)


@EACH_IMPLEMENTATION
def test_nan_and_inf_in_the_input_reach_the_output(backend):
    case = make_case(1, 8, 9, 16)
    for name in STREAMS:
        for value in (float("nan"), float("inf")):
            broken = {key: tensor.clone() for key, tensor in case.items()}
            broken[name][0, 4, 0] = value
            y = kirchhoff_scan(**broken, backend=backend)
            if name == "delta" and value == float("inf"):
                # An infinite step forgets the state and injects b u / decay.
                assert y.isfinite().all()
            else:
                assert not y[0, 4].isfinite().all()
            assert y[0, :4].isfinite().all()


@EACH_IMPLEMENTATION
@pytest.mark.parametrize(
    "options", [LINES[0], *({"directions": d, "boundary": b} for d, b in MODES)], ids=str
)
def test_empty_batch(backend, options):
    grid = (3, 2) if "directions" in options else 5
    case = make_case(0, grid, 3, 2)
    actual = run(case, backend=backend, **options)
    assert actual["y"].shape == case["u"].shape
    assert actual.get("state", case["d"]).shape in ((0, 3, 2), (3,))
    assert (actual["grad_decay"] == 0).all()
    assert (actual["grad_d"] == 0).all()


@EACH_IMPLEMENTATION
def test_without_d_and_initial_state(backend):
    case = make_case(2, 33, 9, 16)
    zeros = case | {name: torch.zeros_like(case[name]) for name in ("d", "initial_state")}
    bare = {name: case[name] for name in ("u", "delta", "decay", "b", "c")}
    expected = {k: x for k, x in truth(zeros).items() if k[5:] not in ("d", "initial_state")}
    assert_close(run(bare, backend=backend), expected, TOLERANCE[torch.float32])


@EACH_IMPLEMENTATION
def test_active_circuits(backend):
    """Decays of either sign, allowed by passive=False only."""
    case = make_case(2, 20, 17, 3)
    case["decay"] = case["decay"].clamp(0.1, 2) * torch.tensor([1.0, -1.0, -0.01])
    actual = run(case, backend=backend, passive=False)
    assert_close(actual, truth(case), TOLERANCE[torch.float32])


def test_slow_growth_has_the_gradient_of_slow_decay():
    one, decay = torch.ones(1, 5, 1), torch.tensor([[1e-25]], requires_grad=True)
    scans = (kirchhoff_scan(one, one, x * decay, one, one, passive=False) for x in (1, -1))
    decays, grows = (torch.autograd.grad(y.sum(), decay)[0] for y in scans)
    torch.testing.assert_close(grows, -decays)


@EACH_BUT_EMULATED
@pytest.mark.parametrize("boundary", ["matched", "periodic"])
def test_reverse_equals_flip(backend, boundary):
    case = make_case(2, 70, 18, 5, dtype=torch.float64)
    if boundary == "periodic":
        del case["initial_state"]
    options = {"return_state": True, "backend": backend, "boundary": boundary}
    y, state = kirchhoff_scan(**case, reverse=True, **options)
    turned = case | {name: case[name].flip(1) for name in STREAMS}
    flipped, same_state = kirchhoff_scan(**turned, **options)
    torch.testing.assert_close(y, flipped.flip(1))
    torch.testing.assert_close(state, same_state)


@EACH_BUT_EMULATED
def test_ring_that_hardly_decays_averages(backend):
    """As decay -> 0 the state tends to mean(delta b u) / (decay mean(delta)), not to 0 / 0."""
    case = make_case(1, 30, 4, 1, dtype=torch.float64)
    del case["initial_state"]
    case["decay"] = torch.full((4, 1), 1e-9, dtype=torch.float64)
    _, state = kirchhoff_scan(**case, boundary="periodic", return_state=True, backend=backend)
    delta = case["delta"]
    mean = (delta * case["b"] * case["u"]).sum(1) / delta.sum(1)
    assert rms_ratio(state[..., 0] * 1e-9, mean) < 1e-6


@EACH_IMPLEMENTATION
def test_a_period_remembers_a_large_source(backend):
    """Almost a period later a pulse of 1e15 has decayed by 1e-12."""
    u, delta = torch.ones(1, 700, 20), torch.full((1, 700, 20), 0.04)
    decay, b = torch.ones(20, 1), torch.ones(1, 700, 1)
    seed = u.clone()
    u[:, 5], seed[:, 694] = 1e15, 1e15
    found = []
    for name in (backend, "reference"):
        leaf = u.clone().requires_grad_()
        y = kirchhoff_scan(leaf, delta, decay, b, b, boundary="periodic", backend=name)
        found.append((y, *torch.autograd.grad(y, leaf, seed)))
    torch.testing.assert_close(*found, rtol=2e-5, atol=0)


@thorough
@pytest.mark.parametrize("threads", [1, 2, 3, 8])
@pytest.mark.parametrize("B", [1, 3])
def test_thread_counts(set_threads, threads, B):
    """Groups of channels split a batch between threads: same sums, and the same every time."""
    case = make_case(B, 200, 100, 8)
    set_threads(threads)
    first, second = run(case), run(case)
    assert_close(first, truth(case), TOLERANCE[torch.float32])
    assert all(torch.equal(first[name], second[name]) for name in first)


@thorough
@EACH_BUT_EMULATED
@pytest.mark.parametrize("options", [LINES[0], CROSS[2], AXIAL[1]], ids=str)
def test_concurrent_calls(backend, options):
    """Long enough that the kernel, which lets go of the GIL, is in several threads at once."""
    cpu = backend == "cpu"
    grid = ((20, 15) if cpu else (3, 4)) if "directions" in options else (300 if cpu else 12)
    cases = [make_case(2, grid, 24, 8, seed=seed) for seed in range(2)]

    def work(case):
        return run(case, backend=backend, **options)

    alone, repeats = [work(case) for case in cases], 10 if cpu else 2
    with ThreadPoolExecutor(2) as pool:
        for i, actual in enumerate(pool.map(work, cases * repeats)):
            assert all(torch.equal(actual[name], alone[i % 2][name]) for name in actual)


def growing(step):
    """A negative decay rate, and one large time step."""
    case = make_case(1, 20, 3, 2, torch.float64)
    del case["initial_state"]
    case |= {"decay": -torch.ones(3, 2, dtype=torch.float64), "delta": case["delta"] * 0.1}
    case["delta"][0, 7] = step
    return case


@EACH_IMPLEMENTATION
@pytest.mark.parametrize("directions", ["raster", "bidirectional"])
@FLOATS
@EACH_STEP
def test_growth_of_active_circuits(backend, directions, dtype, step):
    """A negative decay rate amplifies; no time step amplifies by more than e^80."""
    case, options = growing(step), {"directions": directions, "passive": False}
    expected = scan_field(**case, **options, backend="reference").to(dtype)
    case = {name: x.to(dtype) for name, x in case.items()}
    actual = scan_field(**case, **options, backend=backend)
    assert expected.isfinite().all()
    torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-4)


@EACH_IMPLEMENTATION
@pytest.mark.parametrize("directions", ["raster", "bidirectional"])
@FLOATS
@EACH_STEP
def test_growth_is_right_or_not_finite(backend, directions, dtype, step):
    """The operator itself, without the limit of a step: e^100 overflows float32, e^1000 float64."""
    modes = ([20], directions, False, "matched")

    def scan(dtype, backend):
        inputs = [x.to(dtype) for x in growing(step).values()]
        return torch.ops.chonn_ops.kirchhoff_scan(*inputs, None, *modes, backend, False)[0]

    expected = scan(torch.float64, "reference").to(dtype)
    actual = scan(dtype, backend)
    finite = actual.isfinite()
    assert not (finite & ~expected.isfinite()).any()
    torch.testing.assert_close(actual[finite], expected[finite], rtol=1e-4, atol=1e-4)
    overflows = step > (80 if dtype == torch.float32 else 700)
    assert finite.all() != overflows


@EACH_IMPLEMENTATION
@pytest.mark.parametrize("rate", [1.2e-38, 1e-39, 1e-45])
def test_rates_below_the_normal_numbers(backend, rate):
    case = make_case(2, 40, 3, 2)
    case["decay"][0] = rate
    expected = run({name: x.double() for name, x in case.items()}, backend="reference")
    assert_close(run(case, backend=backend), expected, TOLERANCE[torch.float32])
