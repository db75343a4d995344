"""Every refusal says what was expected and what came."""

import pytest
import torch
from scan_cases import EACH_IMPLEMENTATION, make_case, scan

from chonn_ops.scan import BOUNDARIES, DIRECTIONS, available_backends, kirchhoff_scan
from chonn_ops.scan.operator import BACKENDS

LINE, FIELD = (5, {}), ((4, 5), {"directions": "cross"})
ONES = torch.ones(3, 2)
REFUSED = [
    (LINE, {"u": torch.ones(4, 3)}, "(B, L, D)", "(4, 3)"),
    (LINE, {"decay": torch.ones(3)}, "(D, N)", "(3,)"),
    (LINE, {"delta": torch.ones(2, 4, 3)}, "(2, 5, 3)", "(2, 4, 3)"),
    (LINE, {"decay": torch.ones(4, 2)}, "(3, 2)", "(4, 2)"),
    (LINE, {"b": torch.ones(2, 5, 3)}, "(2, 5, 2)", "(2, 5, 3)"),
    (LINE, {"c": torch.ones(1, 5, 2)}, "(2, 5, 2)", "(1, 5, 2)"),
    (LINE, {"d": torch.ones(3, 1)}, "(3,)", "(3, 1)"),
    (LINE, {"initial_state": torch.ones(2, 3, 1)}, "(2, 3, 2)", "(2, 3, 1)"),
    (LINE, {"b": torch.ones(2, 5, 2, device="meta")}, "cpu", "meta"),
    (LINE, {"u": torch.ones(2, 5, 3).to_sparse()}, "a dense tensor", "torch.sparse_coo"),
    (LINE, {"decay": ONES.to_sparse()}, "a dense tensor", "torch.sparse_coo"),
    (LINE, {"u": torch.ones(2, 5, 3, dtype=torch.int64)}, "float32", "int64"),
    (LINE, {"c": torch.ones(2, 5, 2, dtype=torch.complex64)}, "float32", "complex64"),
    (LINE, {"decay": ONES.index_fill(0, torch.tensor(1), 0.0)}, "> 0", "minimum 0"),
    (LINE, {"decay": -ONES}, "> 0", "minimum -1"),
    (LINE, {"decay": ONES * float("nan")}, "> 0", "minimum nan"),
    (LINE, {"delta": torch.ones(2, 5, 3) - 2}, ">= 0", "minimum -1"),
    (LINE, {"boundary": "closed"}, str(BOUNDARIES), "'closed'"),
    (LINE, {"boundary": "neumann"}, "'bidirectional', 'cross' or 'axial'", "'neumann'"),
    (LINE, {"boundary": "dirichlet"}, "for a scan in one direction", "'dirichlet'"),
    (LINE, {"boundary": "periodic"}, "None", "a tensor"),
    (LINE, {"backend": "gpu"}, str(available_backends()), "'gpu'"),
    ((0, {}), {}, "at least 1", "L=0"),
    (FIELD, {"u": torch.ones(4, 3)}, "(B, *grid, D)", "(4, 3)"),
    (FIELD, {"delta": torch.ones(2, 5, 4, 3)}, "(2, 4, 5, 3)", "(2, 5, 4, 3)"),
    (FIELD, {"b": torch.ones(2, 20, 2)}, "(B, *grid, N) = (2, 4, 5, 2)", "(2, 20, 2)"),
    (FIELD, {"c": torch.ones(2, 4, 5, 3)}, "(2, 4, 5, 2)", "(2, 4, 5, 3)"),
    (FIELD, {"decay": -ONES}, "> 0", "minimum -1"),
    (FIELD, {"directions": "spiral"}, str(DIRECTIONS), "'spiral'"),
    (FIELD, {"directions": "raster", "boundary": "neumann"}, "in one direction", "'neumann'"),
    (FIELD, {"backend": "mps"}, str(available_backends()), "'mps'"),
    (((4, 0), {"directions": "axial"}), {}, "grid, D and N of at least 1", "grid="),
]


@pytest.mark.parametrize(("kind", "changes", "expected", "actual"), REFUSED)
def test_message_says_expected_and_actual(kind, changes, expected, actual):
    grid, options = kind
    case = make_case(2, grid, 3, 2)
    case |= {k: x for k, x in changes.items() if k in case}
    options = options | {k: x for k, x in changes.items() if k not in case}
    with pytest.raises(ValueError, match="expected") as error:
        scan(case, **options)
    before, after = str(error.value).split(", got ")
    assert expected in before
    assert actual in after


def test_the_operator_refuses_a_grid_that_is_not_the_fields():
    case = make_case(2, 20, 3, 2)
    inputs, modes = (*case.values(),), ([4, 6], "cross", False, "matched", "")
    operators = torch.ops.chonn_ops
    for call in (
        lambda: operators.kirchhoff_scan(*inputs, *modes),
        lambda: operators.kirchhoff_scan_backward(inputs[0], None, torch.empty(0), *inputs, *modes),
    ):
        with pytest.raises(ValueError, match=r"grid: expected a product of 20, got \(4, 6\)"):
            call()


@pytest.mark.parametrize(
    ("name", "value", "kind"),
    [
        ("u", [[[1.0] * 3] * 5] * 2, "list"),
        ("delta", torch.ones(2, 5, 3).numpy(), "ndarray"),
        ("d", [1.0, 2.0, 3.0], "list"),
        ("initial_state", 0, "int"),
    ],
)
def test_only_tensors(name, value, kind):
    with pytest.raises(TypeError, match=rf"{name}: expected a torch\.Tensor, got {kind}"):
        kirchhoff_scan(**(make_case(2, 5, 3, 2) | {name: value}))


@EACH_IMPLEMENTATION
def test_a_time_step_of_zero_holds_the_state(backend):
    case = make_case(2, 5, 3, 2)
    case["delta"] = case["delta"].clone()
    case["delta"][:, -1] = 0
    _, state = kirchhoff_scan(**case, return_state=True, backend=backend)
    shorter = case | {name: case[name][:, :-1] for name in ("u", "delta", "b", "c")}
    _, before = kirchhoff_scan(**shorter, return_state=True, backend=backend)
    torch.testing.assert_close(state, before)


def test_transforms_check_signs_under_every_wrapper():
    case = make_case(2, 5, 3, 2)
    u, delta, decay, b, c = (case[name] for name in ("u", "delta", "decay", "b", "c"))
    with pytest.raises(ValueError, match="delta: expected >= 0 everywhere"):
        torch.func.jvp(lambda x: kirchhoff_scan(x, -delta, decay, b, c), (u,), (u,))

    def loss(decay):
        return kirchhoff_scan(u, delta, decay, b, c).sum()

    with pytest.raises(ValueError, match="> 0 everywhere"):
        torch.vmap(torch.func.grad(loss))(torch.stack([decay, -decay]))


@pytest.mark.parametrize("sizes", [(5, 0, 2), (5, 3, 0), ((4, 5), 0, 2), ((4, 5), 3, 0)])
def test_empty_axes_of_channels_and_states_are_refused(sizes):
    options = {"directions": "axial"} if isinstance(sizes[0], tuple) else {}
    with pytest.raises(ValueError, match=r"at least 1, got (L|grid)="):
        scan(make_case(2, *sizes), **options)


@pytest.mark.parametrize("backend", ["reference", "torch"])
def test_environment_forces_the_backend(backend, monkeypatch):
    monkeypatch.setenv("CHONN_SCAN_BACKEND", "nonsense")
    case = make_case(2, 5, 3, 2)
    with pytest.raises(ValueError, match=r"expected one of .* got 'nonsense'"):
        kirchhoff_scan(**case)
    kirchhoff_scan(**case, backend=backend)
    called = []
    module = BACKENDS[backend].module
    real = module.forward
    monkeypatch.setattr(module, "forward", lambda *a: called.append(1) or real(*a))
    monkeypatch.setenv("CHONN_SCAN_BACKEND", backend)
    kirchhoff_scan(**case)
    assert called


@pytest.mark.skipif("cpu" not in available_backends(), reason="no compiled kernel")
def test_unknown_instruction_set(monkeypatch):
    monkeypatch.setenv("CHONN_SCAN_ISA", "mmx")
    with pytest.raises(ValueError, match=r"expected one of generic.*, got 'mmx'"):
        kirchhoff_scan(**make_case(2, 5, 3, 2))
