"""The operator on fields as PyTorch sees it: gradcheck, opcheck, compile, export, vmap, errors."""

from __future__ import annotations

import functools

import pytest
import torch
from scan_cases import (
    BACKENDS,
    EACH_BACKEND_THOROUGHLY,
    EACH_MODE_THOROUGHLY,
    MODES,
    TOLERANCE,
    assert_close,
    make_field,
    run_field,
    within,
)
from torch.library import opcheck

from chonn_ops.scan import (
    BOUNDARIES,
    DIRECTIONS,
    available_backends,
    kirchhoff_scan,
    scan_field,
)

EACH_BACKEND = pytest.mark.parametrize("backend", BACKENDS)
EACH_MODE = pytest.mark.parametrize(("directions", "boundary"), MODES)
OPERATOR = torch.ops.chonn_ops.kirchhoff_scan.default
OPERATOR_BACKWARD = torch.ops.chonn_ops.kirchhoff_scan_backward.default


def _flat(case):
    """Arguments of the operator: streams with the grid flattened, no initial state."""
    return [x.flatten(1, -2) if x.dim() > 2 else x for x in case.values()] + [None]


@EACH_BACKEND_THOROUGHLY
@EACH_MODE_THOROUGHLY
def test_gradcheck(backend, directions, boundary):
    case = make_field(1, (3, 2), 2, 2, torch.float64)

    def scan(*tensors):
        modes = {"directions": directions, "boundary": boundary, "backend": backend}
        return scan_field(*tensors, **modes)

    assert torch.autograd.gradcheck(scan, [x.requires_grad_() for x in case.values()])


@pytest.mark.thorough
@EACH_BACKEND
@pytest.mark.parametrize(
    ("directions", "boundary"),
    [("raster", "periodic"), ("cross", "matched"), ("axial", "dirichlet")],
)
def test_opcheck(backend, directions, boundary):
    modes = ([3, 40], directions, False, boundary, backend)
    inputs = _flat(make_field(2, (3, 40), 3, 2))
    leaves = [x if x is None else x.requires_grad_() for x in inputs]
    for keep in (False, True):
        opcheck(OPERATOR, (*leaves, *modes, True, keep), **within(1e-5))
    still = [x if x is None else x.detach() for x in leaves]
    checkpoints = OPERATOR(*still, *modes, True, True)[2]
    opcheck(OPERATOR_BACKWARD, (torch.ones_like(still[0]), None, checkpoints, *still, *modes))


@EACH_BACKEND_THOROUGHLY
@EACH_MODE
def test_gradients_need_no_kept_checkpoints(backend, directions, boundary):
    leaves = [x if x is None else x.requires_grad_() for x in _flat(make_field(2, (3, 40), 3, 40))]
    modes = ([3, 40], directions, False, boundary, backend, True)
    grads = []
    for keep in (False, True):
        y = OPERATOR(*leaves, *modes, keep)[0]
        grads.append(torch.autograd.grad(y.sum(), leaves[:-1]))
    for without, kept in zip(*grads, strict=True):
        torch.testing.assert_close(without, kept)


@pytest.mark.thorough
@EACH_BACKEND
@EACH_MODE
def test_compile_without_graph_breaks(backend, directions, boundary):
    leaves = [x.requires_grad_() for x in make_field(2, (3, 4), 3, 2, torch.float64).values()]

    def loss(*tensors):
        modes = {"directions": directions, "boundary": boundary, "backend": backend}
        return scan_field(*tensors, **modes).sin().sum()

    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
    expected = torch.autograd.grad(loss(*leaves), leaves)
    for grad, eager in zip(torch.autograd.grad(compiled(*leaves), leaves), expected, strict=True):
        torch.testing.assert_close(grad, eager)
    torch._dynamo.reset()


@pytest.mark.thorough
@pytest.mark.parametrize("directions", DIRECTIONS)
def test_compile_with_a_dynamic_grid(directions):
    def loss(case):
        return scan_field(**case, directions=directions).sin().sum()

    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager", dynamic=True)
    for grid in ((3, 4), (5, 40), (35, 2)):
        case = {name: x.requires_grad_() for name, x in make_field(2, grid, 3, 2).items()}
        grads = torch.autograd.grad(compiled(case), list(case.values()))
        expected = torch.autograd.grad(loss(case), list(case.values()))
        for grad, eager in zip(grads, expected, strict=True):
            torch.testing.assert_close(grad, eager)
    torch._dynamo.reset()


class _Field(torch.nn.Module):
    def forward(self, u, delta, decay, b, c):
        return scan_field(u, delta, decay, b, c, directions="axial", boundary="neumann")


@pytest.mark.thorough
def test_export_with_a_dynamic_grid():
    names = ("u", "delta", "decay", "b", "c")
    case = make_field(2, (3, 4), 3, 2)
    grid = {1: torch.export.Dim("height", min=2), 2: torch.export.Dim("width", min=2)}
    exported = torch.export.export(
        _Field(),
        tuple(case[name] for name in names),
        dynamic_shapes=(grid, grid, None, grid, grid),
    ).module()
    larger = make_field(2, (9, 40), 3, 2)
    inputs = tuple(larger[name] for name in names)
    torch.testing.assert_close(exported(*inputs), _Field()(*inputs))


class _Learnt(torch.nn.Module):
    def __init__(self, directions):
        super().__init__()
        self.decay = torch.nn.Parameter(torch.tensor([[0.5, 2.0], [1.0, 3.0], [0.1, 0.7]]))
        self.directions = directions

    def forward(self, u, delta, b, c):
        return scan_field(u, delta, self.decay, b, c, directions=self.directions)


@pytest.mark.thorough
@pytest.mark.parametrize("length", [40, 600])
@pytest.mark.parametrize("directions", ["bidirectional", "cross"])
def test_export_with_gradients_on_takes_lines_of_any_length(directions, length):
    """The compiled kernel keeps nothing for lines up to 512 steps, and something beyond."""

    def inputs(*grid):
        case = make_field(2, grid, 3, 2)
        return tuple(case[name] for name in ("u", "delta", "b", "c"))

    module = _Learnt(directions)
    grid = {1: torch.export.Dim("height", min=2), 2: torch.export.Dim("width", min=2)}
    exported = torch.export.export(module, inputs(2, length // 2), dynamic_shapes=(grid,) * 4)
    program = exported.module()
    for sizes in ((4, 5), (16, 32), (27, 19), (40, 30)):
        y, expected = program(*inputs(*sizes)), module(*inputs(*sizes))
        torch.testing.assert_close(y, expected)
        (grad,) = torch.autograd.grad(y.sin().sum(), list(program.parameters()))
        (truth,) = torch.autograd.grad(expected.sin().sum(), list(module.parameters()))
        torch.testing.assert_close(grad, truth)


@EACH_BACKEND
@pytest.mark.parametrize(("directions", "boundary"), [("raster", "periodic"), ("axial", "neumann")])
def test_vmap_equals_a_loop(backend, directions, boundary):
    cases = [make_field(2, (3, 4), 3, 2, seed=seed) for seed in range(3)]
    leaves = [torch.stack([case[name] for case in cases]).requires_grad_() for name in ("u", "c")]

    def scan(u, c):
        modes = {"directions": directions, "boundary": boundary, "backend": backend}
        return scan_field(**(cases[0] | {"u": u, "c": c}), **modes)

    actual = torch.vmap(scan)(*leaves)
    expected = torch.stack([scan(*slices) for slices in zip(*leaves, strict=True)])
    torch.testing.assert_close(actual, expected)
    grads = (torch.autograd.grad(y.sin().sum(), leaves) for y in (actual, expected))
    for grad, looped in zip(*grads, strict=True):
        torch.testing.assert_close(grad, looped)


@EACH_BACKEND
def test_autocast_changes_nothing(backend):
    case = make_field(2, (6, 5), 8, 4)
    modes = {"directions": "cross", "boundary": "neumann", "backend": backend}
    plain = run_field(case, **modes)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert_close(run_field(case, **modes), plain, TOLERANCE[torch.float32])


@pytest.mark.parametrize(
    ("changes", "expected", "actual"),
    [
        ({"u": torch.ones(4, 3)}, "(B, *grid, D)", "(4, 3)"),
        ({"delta": torch.ones(2, 5, 4, 3)}, "(2, 4, 5, 3)", "(2, 5, 4, 3)"),
        ({"b": torch.ones(2, 20, 2)}, "(B, *grid, N) = (2, 4, 5, 2)", "(2, 20, 2)"),
        ({"c": torch.ones(2, 4, 5, 3)}, "(2, 4, 5, 2)", "(2, 4, 5, 3)"),
        ({"decay": -torch.ones(3, 2)}, "> 0", "minimum -1"),
        ({"directions": "spiral"}, str(DIRECTIONS), "'spiral'"),
        ({"boundary": "closed"}, str(BOUNDARIES), "'closed'"),
        (
            {"directions": "raster", "boundary": "neumann"},
            "'bidirectional', 'cross' or 'axial'",
            "'neumann'",
        ),
        (
            {"directions": "raster", "boundary": "dirichlet"},
            "a scan in one direction",
            "'dirichlet'",
        ),
        ({"backend": "cuda"}, str(available_backends()), "'cuda'"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else None,
)
def test_message_says_expected_and_actual(changes, expected, actual):
    with pytest.raises(ValueError, match="expected") as error:
        scan_field(**(make_field(2, (4, 5), 3, 2) | changes))
    before, after = str(error.value).split(", got ")
    assert expected in before
    assert actual in after


@pytest.mark.parametrize(("grid", "D", "N"), [((4, 0), 3, 2), ((4, 5), 0, 2), ((4, 5), 3, 0)])
def test_empty_fields_are_refused(grid, D, N):
    with pytest.raises(ValueError, match="grid, D and N of at least 1, got grid="):
        scan_field(**make_field(2, grid, D, N))


def test_the_operator_refuses_a_grid_that_is_not_the_fields():
    modes = ([4, 6], "cross", False, "matched", "")
    inputs = _flat(make_field(2, (4, 5), 3, 2))
    with pytest.raises(ValueError, match=r"grid: expected a product of 20, got \(4, 6\)"):
        OPERATOR(*inputs, *modes)
    with pytest.raises(ValueError, match=r"grid: expected a product of 20, got \(4, 6\)"):
        OPERATOR_BACKWARD(inputs[0], None, torch.empty(0), *inputs, *modes)


@pytest.mark.thorough
@pytest.mark.parametrize("mode", [torch.enable_grad, torch.no_grad, torch.inference_mode])
def test_calls_beside_a_compiled_graph(mode):
    case = list(make_field(2, (3, 4), 3, 2).values())

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
    case = make_field(2, (40,), 3, 2)
    results = []
    for scan in (kirchhoff_scan, functools.partial(scan_field, directions="raster")):
        leaves = [x.clone().requires_grad_() for x in case.values()]
        y = scan(*leaves, boundary=boundary, backend=backend)
        results.append((y, *torch.autograd.grad(y.square().sum(), leaves)))
    for of_line, of_field in zip(*results, strict=True):
        assert torch.equal(of_line, of_field)
