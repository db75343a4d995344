"""Every refusal says what was expected and what came."""

from __future__ import annotations

import pytest
import torch
from scan_cases import make_case

from chonn_ops.scan import available_backends, kirchhoff_scan
from chonn_ops.scan.operator import BACKENDS


@pytest.mark.parametrize(
    ("changes", "expected", "actual"),
    [
        ({"u": torch.ones(4, 3)}, "(B, L, D)", "(4, 3)"),
        ({"decay": torch.ones(3)}, "(D, N)", "(3,)"),
        ({"delta": torch.ones(2, 4, 3)}, "(2, 5, 3)", "(2, 4, 3)"),
        ({"decay": torch.ones(4, 2)}, "(3, 2)", "(4, 2)"),
        ({"b": torch.ones(2, 5, 3)}, "(2, 5, 2)", "(2, 5, 3)"),
        ({"c": torch.ones(1, 5, 2)}, "(2, 5, 2)", "(1, 5, 2)"),
        ({"d": torch.ones(3, 1)}, "(3,)", "(3, 1)"),
        ({"initial_state": torch.ones(2, 3, 1)}, "(2, 3, 2)", "(2, 3, 1)"),
        ({"b": torch.ones(2, 5, 2, device="meta")}, "cpu", "meta"),
        ({"u": torch.ones(2, 5, 3).to_sparse()}, "a dense tensor", "torch.sparse_coo"),
        ({"decay": torch.ones(3, 2).to_sparse()}, "a dense tensor", "torch.sparse_coo"),
        ({"u": torch.ones(2, 5, 3, dtype=torch.int64)}, "float32", "int64"),
        ({"c": torch.ones(2, 5, 2, dtype=torch.complex64)}, "float32", "complex64"),
        ({"decay": torch.tensor([[1.0, 1.0], [1.0, 0.0], [1.0, 1.0]])}, "> 0", "minimum 0"),
        ({"decay": -torch.ones(3, 2)}, "> 0", "minimum -1"),
        ({"decay": torch.full((3, 2), float("nan"))}, "> 0", "minimum nan"),
        ({"delta": torch.ones(2, 5, 3) - 2}, ">= 0", "minimum -1"),
        ({"boundary": "closed"}, "('matched', 'periodic', 'neumann', 'dirichlet')", "'closed'"),
        ({"boundary": "neumann"}, "'bidirectional', 'cross' or 'axial'", "'neumann'"),
        (
            {"boundary": "dirichlet"},
            "'matched' or 'periodic' for a scan in one direction",
            "'dirichlet'",
        ),
        ({"boundary": "periodic"}, "None", "a tensor"),
        ({"backend": "gpu"}, str(available_backends()), "'gpu'"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else None,
)
def test_message_says_expected_and_actual(changes, expected, actual):
    with pytest.raises(ValueError, match="expected") as error:
        kirchhoff_scan(**(make_case(2, 5, 3, 2) | changes))
    before, after = str(error.value).split(", got ")
    assert expected in before
    assert actual in after


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


@pytest.mark.parametrize("backend", [name for name in available_backends() if name != "cuda"])
def test_a_time_step_of_zero_holds_the_state(backend):
    case = make_case(2, 5, 3, 2)
    case["delta"] = case["delta"].clone()
    case["delta"][:, -1] = 0
    _, state = kirchhoff_scan(**case, return_state=True, backend=backend)
    shorter = case | {name: case[name][:, :-1] for name in ("u", "delta", "b", "c")}
    _, before = kirchhoff_scan(**shorter, return_state=True, backend=backend)
    torch.testing.assert_close(state, before)


def test_a_gradient_transform_refuses_negative_steps_too():
    case = make_case(2, 5, 3, 2)
    delta = -case.pop("delta")
    u, decay, b, c = (case[name] for name in ("u", "decay", "b", "c"))
    with pytest.raises(ValueError, match="delta: expected >= 0 everywhere"):
        torch.func.jvp(lambda x: kirchhoff_scan(x, delta, decay, b, c), (u,), (u,))


@pytest.mark.parametrize("sizes", [(2, 0, 3, 2), (2, 5, 0, 2), (2, 5, 3, 0)], ids=["L", "D", "N"])
def test_empty_lines_are_refused(sizes):
    with pytest.raises(ValueError, match="at least 1, got L="):
        kirchhoff_scan(**make_case(*sizes))


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
