"""The CUDA kernels: emulated on the CPU against the float64 loop, and compiled by NVRTC.

`test_on_cuda` runs them where a GPU is.
"""

import itertools
import math
import re
import sys
from pathlib import Path

import commands
import emulated
import pytest
import torch
from scan_cases import MODES, TOLERANCE, assert_close, make_case, run, thorough, truth

from chonn_ops import kirchhoff_scan
from chonn_ops.scan import cuda, operator
from chonn_ops.scan.cuda import nvrtc

needs_nvrtc = pytest.mark.skipif(
    not nvrtc.is_installed(), reason="needs NVRTC: pip install nvidia-cuda-nvrtc"
)
needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="CUDA is not available")


@pytest.fixture
def emulate(monkeypatch):
    """Runs "cuda" on CPU tensors, as on a GPU with so much shared memory; the launches so far."""
    if emulated.COMPILER is None:
        pytest.skip("needs g++")
    yield lambda *shared: emulated.install(monkeypatch, emulated.card(*shared))
    cuda.plan_of.cache_clear()


def check(sizes, dtype=torch.float32, scale=1.0, spread=0.0, unit=1.0, **options):
    """Outputs, of a line with its initial and final state, and all gradients."""
    case = make_case(*sizes, dtype)
    case["delta"] = case["delta"] * scale * unit
    case["decay"] = case["decay"] / unit
    if spread:
        low_to_high = torch.linspace(-spread, spread, sizes[1], dtype=torch.float64)
        case["delta"] = (case["delta"] * 10 ** low_to_high[:, None]).to(dtype)
    actual = run(case, backend="cuda", **options)
    assert_close(actual, truth(case, **options), TOLERANCE[dtype])


F32, F64, F16, BF16 = torch.float32, torch.float64, torch.float16, torch.bfloat16
LINES = [
    *((x, F32) for x in ((1, 37, 9, 16), (2, 1, 5, 3), (1, 2, 20, 16), (1, 63, 1, 1))),
    *((x, F32) for x in ((2, 5, 40, 1), (1, 35, 40, 2), (1, 35, 7, 8), (1, 35, 7, 20))),
    *((x, F32) for x in ((1, 17, 7, 40), (1, 35, 5, 64), (1, 20, 2, 128))),
    *(((2, 39, 9, N), BF16) for N in (16, 1, 5, 64)),
    *(((2, 39, 9, N), F64) for N in (3, 16, 64)),
    ((2, 39, 9, 16), F16),
]
RINGS = [((1, 170, 40, 2), BF16), ((1, 140, 3, 3), F64), ((1, 140, 3, 64), F32)]
ONE_WARP = 16384  # bytes of shared memory that one warp of a backward fits in, and two do not
SCALES = (1e-12, 1e-8, 1e-4, 12.0, 1e4)
RING = {"directions": "raster", "boundary": "periodic"}
SPACE = (2, (2, 3, 4), 5, 3)


def fields(row):
    """A row of lines as one of fields of one axis, which may be rings."""
    (B, L, D, N), dtype = row
    return (B, (L,), D, N), dtype, RING


@pytest.mark.parametrize(
    ("sizes", "dtype", "options"),
    [
        ((2, 70, 40, 16), F32, {"reverse": True}),
        fields(((1, 70, 9, 16), F32)),
        ((1, 33, 9, 16), F32, {"spread": 6.0}),  # steps of all sizes
        (SPACE, F32, {"directions": "axial", "boundary": "neumann"}),
        *(
            pytest.param(*row, marks=thorough)
            for row in (
                ((2, 70, 40, 16), F32, {"reverse": False}),
                *((*x, {"reverse": y}) for x in LINES for y in (True, False)),
                *map(fields, RINGS),
                *(((1, 33, 9, 16), F32, {"scale": x}) for x in SCALES),
                *(((1, 33, 9, 3), F64, {"scale": x}) for x in SCALES),
                # Fast and slow decays of which third powers are no numbers of float32.
                *(
                    ((1, 33, 9, 16), dtype, {"scale": 0.1, "unit": x})
                    for dtype in (F32, BF16)
                    for x in (1e-13, 1e-9, 1e9, 1e13)
                ),
                (SPACE, F64, {"directions": "cross", "boundary": "dirichlet"}),
                (SPACE, BF16, {"directions": "cross", "boundary": "periodic"}),
                # Walks of narrow fields are added up in float32.
                *(
                    ((2, (4, 18), 9, 16), BF16, {"directions": x, "boundary": "neumann"})
                    for x in ("axial", "cross")
                ),
                # Gradients of the decay are sums over a hundred lines.
                ((2, (30, 20), 3, 2), F32, {"directions": "axial", "boundary": "matched"}),
            )
        ),
    ],
    ids=str,
)
def test_the_loop_in_float64(emulate, sizes, dtype, options):
    emulate()
    check(sizes, dtype, **options)


@pytest.mark.parametrize("N", [3, pytest.param(16, marks=thorough)])
@pytest.mark.parametrize("step", [1e22, math.inf])
def test_steps_that_forget_all(emulate, N, step):
    """A step without end injects b u / decay; by a shorter one the decay has a gradient, too."""
    emulate()
    case = make_case(1, 20, 9, N)
    case["delta"][:, 7] = step
    if step < math.inf:  # all results follow from that step alone
        case |= {"u": torch.zeros(1, 20, 9), "initial_state": torch.zeros(1, 9, N)}
        case["u"][:, 7], case["c"][:, 8:] = 1.0, 0.0
    found = run(case, backend="cuda")
    wide = {name: tensor.double() for name, tensor in case.items()}
    expected = run(wide, backend="reference")
    if step == math.inf:
        del found["grad_decay"], expected["grad_decay"]
    assert all(tensor.isfinite().all() for tensor in found.values())
    assert_close(found, expected, TOLERANCE[torch.float32])


@pytest.mark.parametrize("dtype", [torch.float32, pytest.param(torch.bfloat16, marks=thorough)])
@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("name", ["b", "c", "grad_y"])
def test_what_is_not_finite_spreads_to_four_states_at_most(emulate, name, bad, dtype):
    """By tensor cores, in the gradients of b and c. It never becomes finite."""
    emulate()
    case = make_case(1, 20, 40, 16, dtype)
    del case["initial_state"]
    names = ("u", "delta", "decay", "b", "c")
    inputs = [case[x] for x in names]
    grad_y = torch.ones(1, 20, 40, dtype=dtype)
    (grad_y if name == "grad_y" else case[name])[0, 7, 5] = bad

    def finite(backend):
        leaves = [x.detach().requires_grad_() for x in inputs]
        y = kirchhoff_scan(*leaves, backend=backend)
        found = torch.autograd.grad(y, leaves, grad_y)
        return {k: x.isfinite() for k, x in zip(("y", *names), (y, *found), strict=True)}

    found, expected = finite("cuda"), finite("reference")
    groups = [expected[x].unflatten(-1, (4, 4)).all(-1) for x in ("b", "c")]
    spread = (groups[0] & groups[1]).repeat_interleave(4, -1)
    assert not spread.all()
    for key in expected:
        assert torch.equal(found[key], spread if key in ("b", "c") else expected[key])


@pytest.mark.parametrize("dtype", [torch.float32, pytest.param(torch.float64, marks=thorough)])
def test_decay_of_both_signs(emulate, dtype):
    emulate()
    case = make_case(1, 140, 9, 16, dtype)
    signs = 1 - 2 * (torch.arange(9 * 16).reshape(9, 16) % 2)
    case |= {"decay": case["decay"] * signs, "delta": case["delta"] * 0.01}
    case["delta"][:, 3] *= 20  # amplifies by up to e^6 in one step
    actual = run(case, backend="cuda", passive=False)
    assert_close(actual, truth(case), TOLERANCE[dtype])


@thorough
def test_the_check_of_a_device_passes(emulate):
    emulate()
    found = operator._small_results(cuda, torch.device("cpu"))
    expected = operator._small_results(operator.BACKENDS["torch"], torch.device("cpu"))
    torch.testing.assert_close([*found], [*expected], rtol=1e-4, atol=1e-4)


def test_results_repeat_to_the_bit_and_sizes_of_blocks_change_rounding_only(emulate):
    case = make_case(1, 40, 64, 16)
    results = []
    for shared in ((), (ONE_WARP,), (ONE_WARP,)):
        emulate(*shared)
        results.append(run(case, backend="cuda"))
    assert_close(results[1], results[0], 2e-6)
    assert all(torch.equal(results[1][name], results[2][name]) for name in results[1])
    assert not torch.equal(results[0]["grad_b"], results[1]["grad_b"])


def test_one_launch_forward_and_two_backward(emulate):
    launched = emulate()
    run(make_case(2, 37, 9, 16), backend="cuda")
    assert launched == ["scan_forward", "scan_backward", "scan_finish"]
    launched.clear()
    run(make_case(2, (5, 18), 9, 16), directions="axial", backend="cuda")
    assert launched == ["scan_forward"] * 4 + ["scan_backward"] * 4 + ["scan_finish"]


def test_more_states_than_the_kernels_take(emulate, monkeypatch):
    launched = emulate()
    case = make_case(1, 5, 2, 129)
    message = r"decay: expected at most 128 states a channel for backend 'cuda', got 129.*'torch'"
    with pytest.raises(ValueError, match=message):
        run(case, backend="cuda")
    monkeypatch.setattr(operator.BACKENDS, "name_for", lambda name, _: name or "cuda")
    assert_close(run(case), truth(case), TOLERANCE[torch.float32])
    assert not launched


def test_a_kernel_that_cannot_be_launched_is_replaced(emulate, monkeypatch):
    """Compilers and drivers may fail for one kind of scan after the first has passed its check."""
    emulate()
    case = make_case(1, 37, 9, 16)

    def fail(*_):
        raise nvrtc.CompilerError("no space")

    monkeypatch.setattr(cuda, "_kernels", fail)
    with pytest.raises(nvrtc.CompilerError, match="no space"):
        run(case, backend="cuda")
    monkeypatch.setattr(operator.BACKENDS, "_passed", {torch.device("cpu"): True})
    chosen = lambda _, device: "cuda" if operator.BACKENDS._passed[device] else "torch"  # noqa: E731
    monkeypatch.setattr(operator.BACKENDS, "name_for", chosen)
    with pytest.warns(RuntimeWarning, match="backend 'cuda' fails on cpu, the torch .*: no space"):
        found = run(case)
    assert_close(found, truth(case), TOLERANCE[torch.float32])


def test_a_ring_without_time_has_no_state(emulate):
    emulate()
    case = make_case(1, 140, 9, 3)
    del case["initial_state"]
    case["delta"][..., 4] = 0
    y = kirchhoff_scan(**case, boundary="periodic", backend="cuda")
    assert y[..., 4].isnan().all()
    assert y.isnan().sum() == 140


@pytest.mark.parametrize("shared", [65536, 101376, 166912, 232448])
def test_every_setting_fits_the_gpu(shared):
    """Shared memory of a block, from the smallest to the largest of GPUs."""
    for code, N in itertools.product(range(4), (1, 2, 3, 8, 16, 33, 64)):
        found = cuda.setting_of(2, N, code, False, emulated.card(shared))
        macros = dict(found.macros)
        assert N <= macros["NP"] < 2 * N
        assert 1 <= macros["GROUPS"] <= 4
        assert max(found.shared) <= shared


def test_a_gpu_with_too_little_shared_memory_is_named():
    with pytest.raises(ValueError, match=r"shared memory for 128 states.*got 65536.*'torch'"):
        cuda.setting_of(1, 128, 1, False, emulated.card(65536))


# States, dtype, whether steps are nested, registers of a thread at most, and bytes that it spills.
SETTINGS = {
    "float32": (16, 0, False, 168, 16),
    "bfloat16": (16, 2, False, 168, 128),
    "float16 nested": (16, 3, True, 168, 128),
    "float64": (16, 1, False, 255, 128),
    "one state": (1, 2, False, 168, 0),
    "64 states": (64, 0, False, 255, 512),
}


@needs_nvrtc
@pytest.mark.parametrize("capability", [(8, 0), (9, 0)])
@pytest.mark.parametrize(
    "name",
    [name if name == "bfloat16" else pytest.param(name, marks=thorough) for name in SETTINGS],
)
def test_kernels_compile(name, capability, monkeypatch, tmp_path):
    """What g++ lets pass and NVRTC does not; needs no GPU."""
    monkeypatch.setenv("CHONN_CACHE", str(tmp_path))
    *arguments, most_registers, most_spilled = SETTINGS[name]
    setting = cuda.setting_of(1, *arguments, emulated.card())
    found = nvrtc.machine_code(cuda.SOURCE.read_text(), setting.macros, capability)
    (kept,) = tmp_path.iterdir()
    used = resources(found, tmp_path / "kernels.cubin")
    assert len(found) + 32 == kept.stat().st_size
    for kernel, (registers, spilled) in used.items():
        assert registers <= most_registers, kernel
        assert spilled <= most_spilled, kernel


@needs_nvrtc
@pytest.mark.parametrize(
    "name", [pytest.param("float32", marks=thorough), pytest.param("bfloat16", marks=thorough)]
)
def test_instructions_of_a_state_step(name, monkeypatch, tmp_path):
    """The inner loops where all z are small, as long as those of the probe that an H100 timed: 8
    steps of 4 states forward, 4 steps of 4 states of the adjoint."""
    monkeypatch.setenv("CHONN_CACHE", str(tmp_path))
    setting = cuda.setting_of(1, *SETTINGS[name][:3], emulated.card())
    path = tmp_path / "kernels.cubin"
    path.write_bytes(nvrtc.machine_code(cuda.SOURCE.read_text(), setting.macros, (9, 0)))
    most = {"float32": (300, 515), "bfloat16": (265, 405)}[name]
    without = [x for x in blocks(path, "scan_forward") if not count(x, "MUFU")]
    (forward,) = [len(x) for x in without if count(x, "FFMA") >= 160]
    assert forward <= most[0]
    without = [x for x in blocks(path, "scan_backward") if not count(x, "MUFU")]
    (adjoint,) = [len(x) for x in without if count(x, "HMMA")]
    assert adjoint <= most[1]


def blocks(path, kernel):
    """The instructions of a kernel between branches and their targets."""
    command = [disassembler(), "-sass", "-fun", kernel, path]
    text = commands.run(*command).stdout
    found = re.findall(r"/\*([0-9a-f]{4,5})\*/\s+(.*?);", text)
    targets = {int(x, 16) for _, line in found for x in re.findall(r"BRA.*?(0x[0-9a-f]+)", line)}
    parts = [[]]
    for address, line in found:
        if int(address, 16) in targets:
            parts.append([])
        parts[-1].append(line)
        if "BRA" in line:
            parts.append([])
    return parts


def count(block, name):
    return sum(name in line for line in block)


def disassembler():
    triton = pytest.importorskip("triton", reason="needs Triton's cuobjdump")
    return Path(triton.__file__).parent / "backends/nvidia/bin/cuobjdump"


def resources(code, path):
    """Registers of a thread of each kernel and bytes that it spills, where Triton brings the tool
    that tells."""
    path.write_bytes(code)
    command = [disassembler(), "-res-usage", path]
    text = commands.run(*command).stdout
    pattern = r"Function (\w+):\s*REG:(\d+) STACK:(\d+)"
    found = {name: (int(a), int(b)) for name, a, b in re.findall(pattern, text)}
    assert sorted(found) == sorted(cuda.NAMES)
    return found


@needs_nvrtc
def test_an_error_of_the_compiler_is_told(monkeypatch, tmp_path):
    monkeypatch.setenv("CHONN_CACHE", str(tmp_path))
    with pytest.raises(nvrtc.CompilerError, match=r"NVRTC, error 6: scan\.cu\(1\): error: .*wrong"):
        nvrtc.machine_code("__device__ int f() { return wrong; }", (), (9, 0))
    assert not list(tmp_path.iterdir())


@needs_nvrtc
def test_a_gpu_that_nvrtc_does_not_know():
    with pytest.raises(nvrtc.CompilerError, match=r"expected a GPU of .*9\.0.*got 3\.5"):
        nvrtc.architecture((3, 5))


@pytest.fixture
def compiled(monkeypatch, tmp_path):
    """The cache in an empty folder, and a stand-in for the compiler that notes its calls."""
    calls = []
    monkeypatch.setenv("CHONN_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(nvrtc, "version", lambda: (13, 0))
    monkeypatch.setattr(nvrtc, "architecture", lambda _: "sm_90")
    monkeypatch.setattr(nvrtc, "_compile", lambda *x: calls.append(x) or b"code %d" % len(calls))
    return calls


def test_machine_code_is_kept(compiled, tmp_path, monkeypatch):
    macros = (("NP", 16),)
    assert nvrtc.machine_code("x", macros, (9, 0)) == b"code 1"
    assert nvrtc.machine_code("x", macros, (9, 0)) == b"code 1"
    assert nvrtc.machine_code("y", macros, (9, 0)) == b"code 2"
    assert nvrtc.machine_code("x", (("NP", 8),), (9, 0)) == b"code 3"
    monkeypatch.setattr(nvrtc, "version", lambda: (13, 1))
    assert nvrtc.machine_code("x", macros, (9, 0)) == b"code 4"
    monkeypatch.setattr(nvrtc, "architecture", lambda _: "sm_80")
    assert nvrtc.machine_code("x", macros, (8, 0)) == b"code 5"
    assert len(list((tmp_path / "cache").iterdir())) == len(compiled) == 5


@pytest.mark.parametrize("damage", [b"", b"short", b"x" * 100])
def test_a_damaged_file_is_compiled_again(damage, compiled, tmp_path):
    nvrtc.machine_code("x", (), (9, 0))
    (path,) = (tmp_path / "cache").iterdir()
    path.write_bytes(damage)
    assert nvrtc.machine_code("x", (), (9, 0)) == b"code 2"
    assert nvrtc.machine_code("x", (), (9, 0)) == b"code 2"
    assert len(compiled) == 2


def test_a_cache_that_cannot_be_written_costs_time_only(compiled, tmp_path):
    (tmp_path / "cache").write_text("a file where the folder should be")
    assert nvrtc.machine_code("x", (), (9, 0)) == b"code 1"
    assert nvrtc.machine_code("x", (), (9, 0)) == b"code 2"
    assert len(compiled) == 2


def test_the_cache_is_in_the_users_folder(monkeypatch):
    monkeypatch.delenv("CHONN_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    monkeypatch.setattr(sys, "platform", "linux")
    assert nvrtc.cache_folder() == Path("/somewhere/chonn-ops")


def test_a_scan_on_the_cpu_loads_nothing_of_this():
    command = (
        "import sys, torch, chonn_ops; x = torch.ones(1, 2, 3); "
        "chonn_ops.kirchhoff_scan(x, x, torch.ones(3, 3), x, x); "
        "assert 'chonn_ops.scan.cuda' not in sys.modules"
    )
    commands.python(command)


def check_on_cuda(sizes, dtype, **options):
    case = make_case(*sizes, dtype)
    actual = run({k: v.cuda() for k, v in case.items()}, backend="cuda", **options)
    assert_close({k: v.cpu() for k, v in actual.items()}, truth(case, **options), TOLERANCE[dtype])


@needs_cuda
@pytest.mark.parametrize("dtype", [F32, BF16, F16, F64])
@pytest.mark.parametrize(("directions", "boundary"), MODES)
def test_on_cuda(directions, boundary, dtype):
    check_on_cuda((2, (9, 300), 20, 16), dtype, directions=directions, boundary=boundary)


@needs_cuda
@pytest.mark.parametrize("N", [1, 3, 16, 64, 128])
@pytest.mark.parametrize("dtype", [F32, BF16, F64])
def test_lines_on_cuda(N, dtype):
    """With initial and final state."""
    check_on_cuda((2, 300, 700, N), dtype, reverse=True)
