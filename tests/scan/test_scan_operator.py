"""The scan as PyTorch sees it beside test_operators.py: opcheck, export, long lines, memory."""

import functools

import commands
import pytest
import torch
from scan_cases import (
    BACKENDS,
    EACH_BACKEND,
    EACH_IMPLEMENTATION,
    MODES,
    QUICK_MODES,
    TOLERANCE,
    make_case,
    rms_ratio,
    scan,
    thorough,
    within,
)
from torch.library import opcheck

from chonn_ops import CKB, Scan
from chonn_ops.scan import DIRECTIONS, kirchhoff_scan, scan_field

OPERATOR = torch.ops.chonn_ops.kirchhoff_scan.default
OPERATOR_BACKWARD = torch.ops.chonn_ops.kirchhoff_scan_backward.default
# Keywords of scans: of lines, and of fields, which have directions.
LINES = [{"reverse": x, "boundary": b} for x in (False, True) for b in ("matched", "periodic")]
FIELDS = [{"directions": directions, "boundary": boundary} for directions, boundary in MODES]
QUICK = [LINES[0], *({"directions": x, "boundary": b} for x, b in QUICK_MODES)]
EACH_SCAN = pytest.mark.parametrize("options", [*LINES, *FIELDS], ids=str)


def case_of(options, grid, D, N, dtype=torch.float64, seed=0):
    """A case of this grid, or of the line of its size; a ring has no initial state."""
    if "directions" in options:
        return make_case(2, grid, D, N, dtype, seed)
    case = make_case(2, grid[0] * grid[1], D, N, dtype, seed)
    if options["boundary"] == "periodic":
        del case["initial_state"]
    return case


def leaves_of(*arguments, **options):
    return {k: x.requires_grad_() for k, x in case_of(*arguments, **options).items()}


def loss(leaves, **options):
    return sum(x.sin().sum() for x in scan(leaves, **options).values())


def gradients(function, leaves, **options):
    return torch.autograd.grad(function(leaves, **options), list(leaves.values()))


def flat(case):
    """Arguments of the operator: streams with the grid flattened; None where there is none."""
    streams = {k: x.flatten(1, -2) if k in ("u", "delta", "b", "c") else x for k, x in case.items()}
    return [streams.get(x) for x in ("u", "delta", "decay", "b", "c", "d", "initial_state")]


def settings(options, grid, backend):
    """Its other arguments up to the backend."""
    directions, reverse = options.get("directions", "raster"), options.get("reverse", False)
    grid = list(grid) if "directions" in options else [grid[0] * grid[1]]
    return grid, directions, reverse, options["boundary"], backend


@thorough
@pytest.mark.parametrize(
    ("backend", "options"),
    [
        ("reference", LINES[0]),  # whose loops are slow
        *((x, y) for x in BACKENDS if x != "reference" for y in QUICK),
    ],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_opcheck(backend, options, dtype):
    modes = settings(options, (3, 40), backend)
    leaves = flat(leaves_of(options, (3, 40), 3, 2, dtype=dtype))
    for inputs in (leaves, [*leaves[:5], None, None]):
        for keep in (False, True):
            close = within(0.05 if dtype == torch.bfloat16 else 1e-5)
            opcheck(OPERATOR, (*inputs, *modes, True, keep), **close)
        still = [x if x is None else x.detach() for x in inputs]
        checkpoints = OPERATOR(*still, *modes, True, True)[2]
        opcheck(OPERATOR_BACKWARD, (torch.ones_like(still[0]), None, checkpoints, *still, *modes))


@EACH_BACKEND
@EACH_SCAN
@pytest.mark.parametrize(("grid", "states"), [((1, 1), 2), ((3, 40), 40), ((5, 40), 2)], ids=str)
def test_gradients_need_no_kept_checkpoints(backend, options, grid, states):
    """A caller that records the operator without `keep` gets the same gradients."""
    inputs = flat(leaves_of(options, grid, 3, states, dtype=torch.float32))
    leaves, grads = [x for x in inputs if x is not None], []
    for keep in (False, True):
        y, state, _ = OPERATOR(*inputs, *settings(options, grid, backend), True, keep)
        grads.append(torch.autograd.grad(y.sum() + state.sum(), leaves))
    torch.testing.assert_close(*grads)


@thorough
@pytest.mark.parametrize("directions", DIRECTIONS)
def test_compile_with_a_dynamic_grid(directions):
    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager", dynamic=True)
    options = {"directions": directions}
    for grid in ((3, 4), (5, 40), (35, 2)):
        leaves = leaves_of(options, grid, 3, 2, dtype=torch.float32)
        found, eager = (gradients(f, leaves, **options) for f in (compiled, loss))
        torch.testing.assert_close(found, eager)
    torch._dynamo.reset()


class _Learnt(torch.nn.Module):
    def __init__(self, options):
        super().__init__()
        self.decay = torch.nn.Parameter(torch.tensor([[0.5, 2.0], [1.0, 3.0], [0.1, 0.7]]))
        self.options = options

    def forward(self, u, delta, b, c):
        case = {"u": u, "delta": delta, "decay": self.decay, "b": b, "c": c}
        return tuple(scan(case, **self.options).values())


@thorough
@pytest.mark.parametrize("length", [40, 600])
@pytest.mark.parametrize("options", [LINES[1], *QUICK[1:], FIELDS[-2]], ids=str)
def test_export_with_gradients_on_takes_lines_of_any_length(options, length):
    """The compiled kernel keeps nothing for lines up to 512 steps, and something beyond."""

    def inputs(*grid):
        case = case_of(options, grid, 3, 2, torch.float32)
        return tuple(case[name] for name in ("u", "delta", "b", "c"))

    module, axes = _Learnt(options), 1 + ("directions" in options)
    grid = {i + 1: torch.export.Dim(f"n{i}", min=2) for i in range(axes)}
    exported = torch.export.export(module, inputs(2, length // 2), dynamic_shapes=(grid,) * 4)
    program = exported.module()
    for sizes in ((4, 5), (16, 32), (27, 19), (40, 30)):
        found, expected = program(*inputs(*sizes)), module(*inputs(*sizes))
        torch.testing.assert_close(found, expected)
        results = []
        for y, made in ((found, program), (expected, module)):
            total = sum(x.sin().sum() for x in y)
            results.append(torch.autograd.grad(total, list(made.parameters()))[0])
        torch.testing.assert_close(*results)


@EACH_IMPLEMENTATION
def test_only_the_asked_gradients_are_needed(backend):
    case = make_case(2, 20, 3, 2)
    found = []
    for leaves, name in ((case, backend), ({k: x.double() for k, x in case.items()}, "reference")):
        decay = leaves["decay"].requires_grad_()
        state = scan(leaves, backend=name)["state"]
        found += torch.autograd.grad(state.sum(), decay)
    assert rms_ratio(*found) < TOLERANCE[torch.float32]


@EACH_IMPLEMENTATION
@pytest.mark.parametrize("reverse", [False, True])
def test_results_may_be_changed_in_place(backend, reverse):
    case = make_case(2, 7, 3, 2)
    u = case["u"].requires_grad_()
    y, state = scan(case, reverse=reverse, backend=backend).values()
    (expected,) = torch.autograd.grad(3 * y.sum() + 2 * state.sum(), u, retain_graph=True)
    y *= 3
    state *= 2
    (found,) = torch.autograd.grad(y.sum() + state.sum(), u)
    torch.testing.assert_close(found, expected)


@thorough
@pytest.mark.parametrize("mode", [torch.enable_grad, torch.no_grad, torch.inference_mode])
def test_calls_beside_a_compiled_graph(mode):
    case = list(make_case(2, (3, 4), 3, 2).values())

    def call(*tensors):
        doubled = tensors[0] * 2
        with torch.autograd.profiler.record_function("here"):  # from here on there is no graph
            torch._dynamo.graph_break()
            return scan_field(doubled, *tensors[1:])

    with mode():
        torch.testing.assert_close(torch.compile(call, backend="eager")(*case), call(*case))


@EACH_BACKEND
@pytest.mark.parametrize("boundary", ["matched", "periodic"])
def test_a_line_is_a_field_of_one_axis(backend, boundary):
    case = make_case(2, (40,), 3, 2)
    results = []
    for function in (kirchhoff_scan, functools.partial(scan_field, directions="raster")):
        leaves = [x.clone().requires_grad_() for x in case.values()]
        y = function(*leaves, boundary=boundary, backend=backend)
        results.append((y, *torch.autograd.grad(y.square().sum(), leaves)))
    for of_line, of_field in zip(*results, strict=True):
        assert torch.equal(of_line, of_field)


def test_long_lines_have_the_tangent_of_differences():
    """Groups of groups of steps; z from 1e-9 to 1e3."""
    case = make_case(1, 700, 2, 2, torch.float64)
    case["delta"] = case["delta"] * torch.logspace(-9, 3, 700, dtype=torch.float64)[:, None]
    names, primals = list(case), tuple(case.values())
    tangents = tuple(x * torch.randn_like(x) for x in primals)

    def scan(*tensors):
        return kirchhoff_scan(**dict(zip(names, tensors, strict=True)))

    y, tangent = torch.func.jvp(scan, primals, tangents)
    torch.testing.assert_close(y, scan(*primals))
    h = 1e-6
    up, down = (
        scan(*(x + s * h * t for x, t in zip(primals, tangents, strict=True))) for s in (1, -1)
    )
    torch.testing.assert_close(tangent, (up - down) / (2 * h), rtol=1e-6, atol=1e-6)


@thorough
def test_tangents_pass_through_exported_blocks():
    block = CKB(2, cell=Scan(2), order=1, dtype=torch.float64)
    x, tangent = torch.randn(2, 1, 5, 2, dtype=torch.float64)
    _, expected = torch.func.jvp(block, (x,), (tangent,))
    exported = torch.export.export(block, (x,)).module()
    torch.testing.assert_close(torch.func.jvp(exported, (x,), (tangent,))[1], expected)


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
        peaks[states] = int(commands.python(PEAK, backend, states).stdout)
    narrow = 4 * 2 * 2048 * 64 * 4  # b, c and their gradients at N = 64
    # Four outputs, the gradient of y, one chunk and its checkpoints; (B, L, D, N) is 64 units.
    assert peaks[16] < 12 * unit
    assert peaks[64] < peaks[16] + narrow + 2 * unit
