"""Every backend and instruction set against the float64 loop: output, state, all gradients."""

from __future__ import annotations

import shutil
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from scan_cases import (
    BACKENDS,
    FASTEST,
    TOLERANCE,
    assert_close,
    functional_weights,
    make_case,
    rms_ratio,
    run,
    truth,
)

from chonn_ops.scan import cpu, kirchhoff_scan, reference, scan_field

ISAS = cpu.available_isas()
DTYPES = (torch.float64, torch.float32, torch.float16, torch.bfloat16)
DIRECTIONS = pytest.mark.parametrize("reverse", [False, True], ids=["forth", "back"])


@pytest.fixture(autouse=True)
def _poisoned_memory():
    """`torch.empty` returns NaN: nothing may be read, or returned, before it is written."""
    torch.use_deterministic_algorithms(True)
    assert torch.utils.deterministic.fill_uninitialized_memory
    assert torch.empty(3).isnan().all()
    yield
    torch.use_deterministic_algorithms(False)


def test_kernel_is_built_where_there_is_a_compiler():
    if shutil.which("cc") is None:
        pytest.skip("no C compiler")
    assert "cpu" in BACKENDS, "run `python hatch_build.py`"
    assert "generic" in ISAS


@pytest.mark.thorough
@DIRECTIONS
@pytest.mark.parametrize("L", [1, 2, 63, 1000])
def test_lengths(L, reverse):
    case = make_case(2, L, 5, 3)
    expected = truth(case, reverse)
    for backend in BACKENDS:
        actual = run(case, backend=backend, reverse=reverse)
        assert_close(actual, expected, TOLERANCE[torch.float32])


# All sizes of vectors for the compiled kernel; more states than are taken at once for all.
SIZES = [
    pytest.param(
        *(backend, D, N),
        marks=() if backend == FASTEST or (D, N) == (33, 64) else pytest.mark.thorough,
    )
    for backend in BACKENDS
    for D in (1, 3, 33, 64)
    for N in (1, 3, 16, 64)
]


@pytest.mark.parametrize(("backend", "D", "N"), SIZES)
def test_sizes(backend, D, N):
    case = make_case(3, 40, D, N)
    expected = run({name: x.double() for name, x in case.items()}, backend="reference")
    assert_close(run(case, backend=backend), expected, TOLERANCE[torch.float32])


@DIRECTIONS
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("isa", ISAS)
def test_instruction_sets(isa, dtype, reverse, monkeypatch):
    monkeypatch.setenv("CHONN_SCAN_ISA", isa)
    for shape in ((2, 70, 33, 3), (1, 33, 64, 20), (5, 2, 1, 1)):
        case = make_case(*shape, dtype=dtype)
        assert_close(
            run(case, backend="cpu", reverse=reverse), truth(case, reverse), TOLERANCE[dtype]
        )


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("backend", BACKENDS)
def test_dtypes(backend, dtype):
    case = make_case(2, 100, 20, 4, dtype=dtype)
    actual = run(case, backend=backend)
    assert_close(actual, truth(case), TOLERANCE[dtype])
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    assert actual["y"].dtype == dtype
    assert actual["state"].dtype == wide
    assert all(actual[f"grad_{name}"].dtype == dtype for name in case)


@pytest.mark.parametrize("backend", BACKENDS)
def test_mixed_dtypes(backend):
    case = make_case(2, 30, 8, 4, dtype=torch.bfloat16)
    case |= {name: case[name].float() for name in ("delta", "decay")}
    actual = run(case, backend=backend)
    assert_close(actual, truth(case), TOLERANCE[torch.bfloat16])
    assert actual["grad_delta"].dtype == torch.float32
    case["b"] = case["b"].double()
    assert run(case, backend=backend)["state"].dtype == torch.float64


def _transposed(x):
    return x.transpose(0, -1).contiguous().transpose(0, -1)


def _strided(x):
    return torch.stack([x, torch.full_like(x, float("nan"))], dim=-1)[..., 0]


def _offset(x):
    return torch.cat([torch.full_like(x, float("nan")), x], dim=-1)[..., x.shape[-1] :]


@pytest.mark.parametrize("layout", [_transposed, _strided, _offset])
@pytest.mark.parametrize("backend", BACKENDS)
def test_non_contiguous_inputs(backend, layout):
    case = make_case(3, 37, 20, 5)
    laid_out = {name: layout(tensor) for name, tensor in case.items()}
    assert not laid_out["u"].is_contiguous()
    assert_close(run(laid_out, backend=backend), truth(case), TOLERANCE[torch.float32])


@pytest.mark.parametrize("backend", BACKENDS)
def test_expanded_inputs_and_gradients(backend):
    case = make_case(1, 37, 20, 5)
    for name in ("u", "delta", "b", "c", "initial_state"):
        case[name] = case[name].expand(3, *case[name].shape[1:])
    assert case["u"].stride(0) == 0
    dense = {name: tensor.contiguous() for name, tensor in case.items()}
    assert_close(run(case, backend=backend), truth(dense), TOLERANCE[torch.float32])
    u = dense["u"].clone().requires_grad_()
    # sum() sends back an expanded gradient.
    kirchhoff_scan(**(dense | {"u": u}), backend=backend).sum().backward()
    expected = dense["u"].double().requires_grad_()
    wide = {name: tensor.double() for name, tensor in dense.items()}
    reference.forward(**(wide | {"u": expected}))[0].sum().backward()
    assert rms_ratio(u.grad, expected.grad) < TOLERANCE[torch.float32]


def _weights(isa_or_backend, dtype, monkeypatch):
    if isa_or_backend in ISAS:
        monkeypatch.setenv("CHONN_SCAN_ISA", isa_or_backend)
    backend = "cpu" if isa_or_backend in ISAS else isa_or_backend
    D = 20000
    z = torch.logspace(-12, 4, D, dtype=torch.float64).to(dtype)
    decay = torch.logspace(-3, 3, D, dtype=torch.float64)[torch.randperm(D)].to(dtype)
    delta = z / decay
    one = torch.ones(1, 1, 1, dtype=dtype)
    y = kirchhoff_scan(
        one.expand(1, 1, D), delta[None, None], decay[:, None], one, one, backend=backend
    )[0, 0]
    z = delta.double() * decay.double()
    return y.double() / (-torch.expm1(-z) / decay.double()) - 1


@pytest.mark.parametrize("where", [*ISAS, "torch", "reference"])
def test_injection_weight_is_accurate_at_every_scale(where, monkeypatch):
    assert _weights(where, torch.float32, monkeypatch).abs().max() < 5e-7
    assert _weights(where, torch.float64, monkeypatch).abs().max() < 1e-14


@pytest.mark.parametrize(
    "z",
    [
        *(1e-8, 0.3, 0.4, 100.0),  # 0.3 and 0.4: series and function
        *(
            pytest.param(z, marks=pytest.mark.thorough)
            for z in (1e-12, 1e-4, 0.1, 1.0, 10.0, 80.0, 1e4)
        ),
    ],
)
@pytest.mark.parametrize("where", [*ISAS, "torch", "reference"])
def test_gradients_at_every_scale(where, z, monkeypatch):
    """Against the handwritten adjoint: autograd of the loop itself cancels at small z."""
    if where in ISAS:
        monkeypatch.setenv("CHONN_SCAN_ISA", where)
    case = make_case(2, 40, 17, 1)
    case["delta"] = (z / case["decay"][:, 0] * torch.ones(2, 40, 1)).float()
    wide = {name: tensor.double() for name, tensor in case.items()}
    y, state = reference.forward(**wide)
    grads = reference.backward(*functional_weights(y, state), **wide, reverse=False)
    expected = {"y": y, "state": state}
    expected |= {f"grad_{name}": grad for name, grad in zip(case, grads, strict=True)}
    actual = run(case, backend="cpu" if where in ISAS else where)
    for name, tensor in actual.items():
        error = (tensor.double() - expected[name]).norm().item()
        # exp(-z) loses z ulp to the rounding of z, and ends where normal floats do.
        bound = (2e-6 + 2e-7 * z) * expected[name].norm().item() + 1e-30
        assert error <= bound, f"{name}: {error:.2e} above {bound:.2e}"


@pytest.mark.parametrize("where", [*ISAS, "torch", "reference"])
def test_weight_derivative_is_accurate_at_every_scale(where, monkeypatch):
    """One step from rest: the gradient of decay is the weight's derivative and nothing else."""
    if where in ISAS:
        monkeypatch.setenv("CHONN_SCAN_ISA", where)
    D = 4000
    decay = torch.logspace(-3, 3, D, dtype=torch.float64)[torch.randperm(D)].float()[:, None]
    delta = torch.logspace(-12, 4, D, dtype=torch.float64).float()[None, None] / decay[:, 0]
    one = torch.ones(1, 1, 1)
    decay.requires_grad_()
    backend = "cpu" if where in ISAS else where
    kirchhoff_scan(one.expand(1, 1, D), delta, decay, one, one, backend=backend).sum().backward()
    wide, step = decay.detach().double()[:, 0], delta.double()[0, 0]
    expected = -reference.weight_slope(step, wide, *reference.retention_and_weight(step, wide))
    assert (decay.grad[:, 0].double() / expected - 1).abs().max() < 3e-6


@pytest.mark.parametrize("where", [*ISAS, "torch", "reference"])
@pytest.mark.parametrize("length", [12, 700])
def test_a_large_state_is_forgotten(where, length, monkeypatch):
    """After a pulse of 1e8 the outputs are 1 + 1e8 exp(-20 k), right to their own rounding."""
    if where in ISAS:
        monkeypatch.setenv("CHONN_SCAN_ISA", where)
    backend = "cpu" if where in ISAS else where
    u, delta, one = torch.ones(1, length, 20), torch.full((1, length, 20), 20.0), torch.ones(20, 1)
    u[:, 0] = 1e8
    b, c = torch.ones(1, length, 1), torch.ones(1, length, 1, requires_grad=True)
    expected, _ = reference.forward(*(x.double() for x in (u, delta, one, b, c)))
    y = kirchhoff_scan(u, delta, one, b, c, backend=backend)
    torch.testing.assert_close(y.double(), expected, rtol=1e-5, atol=0)
    (seen,) = torch.autograd.grad(y.sum(), c)
    torch.testing.assert_close(seen.double(), expected.sum(-1, keepdim=True), rtol=1e-5, atol=0)
    # The reverse scan ends with the pulse.
    y = scan_field(u, delta, one, b, c, backend=backend).double()
    back, _ = reference.forward(*(x.double() for x in (u, delta, one, b, c)), reverse=True)
    torch.testing.assert_close(y, (expected + back) / 2, rtol=1e-5, atol=0)
    (seen,) = torch.autograd.grad(scan_field(u, delta, one, b, c, backend=backend).sum(), c)
    both = (expected + back).sum(-1, keepdim=True) / 2
    torch.testing.assert_close(seen.double(), both, rtol=1e-5, atol=0)


@pytest.mark.parametrize("backend", BACKENDS)
def test_nan_and_inf_in_the_input_reach_the_output(backend):
    case = make_case(1, 8, 3, 2)
    for name in ("u", "delta", "b", "c"):
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


@pytest.mark.parametrize("backend", BACKENDS)
def test_empty_batch(backend):
    actual = run(make_case(0, 5, 3, 2), backend=backend)
    assert actual["y"].shape == (0, 5, 3)
    assert actual["state"].shape == (0, 3, 2)
    assert (actual["grad_decay"] == 0).all()
    assert (actual["grad_d"] == 0).all()


@pytest.mark.parametrize("backend", BACKENDS)
def test_without_d_and_initial_state(backend):
    case = make_case(2, 33, 18, 3)
    zeros = case | {name: torch.zeros_like(case[name]) for name in ("d", "initial_state")}
    bare = {name: case[name] for name in ("u", "delta", "decay", "b", "c")}
    expected = {name: tensor for name, tensor in truth(zeros).items() if name[5:] not in zeros}
    expected |= {f"grad_{name}": truth(zeros)[f"grad_{name}"] for name in bare}
    assert_close(run(bare, backend=backend), expected, TOLERANCE[torch.float32])


@pytest.mark.parametrize("where", [*ISAS, "torch", "reference"])
def test_active_circuits(where, monkeypatch):
    """Decays of either sign, allowed by passive=False only."""
    if where in ISAS:
        monkeypatch.setenv("CHONN_SCAN_ISA", where)
    case = make_case(2, 20, 17, 3)
    case["decay"] = case["decay"].clamp(0.1, 2) * torch.tensor([1.0, -1.0, -0.01])
    actual = run(case, backend="cpu" if where in ISAS else where, passive=False)
    assert_close(actual, truth(case), TOLERANCE[torch.float32])


def test_slow_growth_has_the_gradient_of_slow_decay():
    one = torch.ones(1, 5, 1)
    decay = torch.tensor([[1e-25]], requires_grad=True)
    grads = [
        torch.autograd.grad(
            kirchhoff_scan(one, one, sign * decay, one, one, passive=False).sum(), decay
        )
        for sign in (1, -1)
    ]
    torch.testing.assert_close(grads[1][0], -grads[0][0])


@pytest.mark.parametrize("where", [*ISAS, "torch"])
def test_a_period_remembers_a_large_source(where, monkeypatch):
    """Almost a period later a pulse of 1e15 has decayed by 1e-12."""
    if where in ISAS:
        monkeypatch.setenv("CHONN_SCAN_ISA", where)
    u, delta = torch.ones(1, 700, 20), torch.full((1, 700, 20), 0.04)
    decay, b = torch.ones(20, 1), torch.ones(1, 700, 1)
    seed = u.clone()
    u[:, 5], seed[:, 694] = 1e15, 1e15
    found = []
    for backend in ("cpu" if where in ISAS else where, "reference"):
        leaf = u.clone().requires_grad_()
        y = kirchhoff_scan(leaf, delta, decay, b, b, boundary="periodic", backend=backend)
        found.append((y, *torch.autograd.grad(y, leaf, seed)))
    torch.testing.assert_close(*found, rtol=2e-5, atol=0)


@pytest.mark.thorough
@pytest.mark.parametrize("threads", [1, 2, 3, 8])
@pytest.mark.parametrize("B", [1, 3])
def test_thread_counts(set_threads, threads, B):
    """Groups of channels split a batch between threads: same sums, and the same every time."""
    case = make_case(B, 200, 100, 8)
    set_threads(threads)
    first, second = run(case), run(case)
    assert_close(first, truth(case), TOLERANCE[torch.float32])
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_concurrent_calls():
    cases = [make_case(2, 300, 40, 8, seed=seed) for seed in range(4)]
    expected = [run(case) for case in cases]
    with ThreadPoolExecutor(4) as pool:
        for _ in range(5):
            for actual, alone in zip(pool.map(run, cases), expected, strict=True):
                assert_close(actual, alone, 1e-6)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("directions", ["raster", "bidirectional"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("step", [10.0, 60.0, 100.0, 1000.0])
def test_growth_of_active_circuits(backend, directions, dtype, step):
    """A negative decay rate amplifies; no time step amplifies by more than e^80."""
    case = make_case(1, 20, 3, 2, torch.float64)
    del case["initial_state"]
    case |= {"decay": -torch.ones(3, 2, dtype=torch.float64), "delta": case["delta"] * 0.1}
    case["delta"][0, 7] = step
    options = {"directions": directions, "passive": False}
    expected = scan_field(**case, **options, backend="reference").to(dtype)
    case = {name: x.to(dtype) for name, x in case.items()}
    actual = scan_field(**case, **options, backend=backend)
    assert expected.isfinite().all()
    torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("directions", ["raster", "bidirectional"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("step", [10.0, 60.0, 100.0, 1000.0])
def test_growth_is_right_or_not_finite(backend, directions, dtype, step):
    """The operator itself, without the limit of a step: e^100 overflows float32, e^1000 float64."""
    case = make_case(1, 20, 3, 2, torch.float64)
    case |= {"decay": -torch.ones(3, 2, dtype=torch.float64), "delta": case["delta"] * 0.1}
    case["delta"][0, 7] = step

    def scan(dtype, backend):
        inputs = [case[name].to(dtype) for name in ("u", "delta", "decay", "b", "c", "d")]
        modes = ([20], directions, False, "matched", backend, False)
        return torch.ops.chonn_ops.kirchhoff_scan(*inputs, None, *modes)[0]

    expected = scan(torch.float64, "reference").to(dtype)
    actual = scan(dtype, backend)
    finite = actual.isfinite()
    assert not (finite & ~expected.isfinite()).any()
    torch.testing.assert_close(actual[finite], expected[finite], rtol=1e-4, atol=1e-4)
    overflows = step > (80 if dtype == torch.float32 else 700)
    assert finite.all() != overflows


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("rate", [1.2e-38, 1e-39, 1e-45])
def test_rates_below_the_normal_numbers(backend, rate):
    case = make_case(2, 40, 3, 2)
    case["decay"][0] = rate
    expected = run({name: x.double() for name, x in case.items()}, backend="reference")
    assert_close(run(case, backend=backend), expected, TOLERANCE[torch.float32])
