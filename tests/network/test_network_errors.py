"""What is refused says what was expected and what came; what did not converge is never silent."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch
from network_cases import make_network

from chonn_ops import edge_conductance, kirchhoff_network
from chonn_ops.network import available_backends, operator, reference, wall_leak


def _arguments(**changes):
    source, conductance, leak = make_network((4, 5), dtype=torch.float32)
    return {"source": source, "conductance": conductance, "leak": leak} | changes


def _like(value, **options):
    return torch.full((2, 4, 5, 3), value, **options)


@pytest.mark.parametrize(
    ("changes", "expected", "actual"),
    [
        ({"source": torch.ones(4, 5)}, "shape (B, *grid, C)", "(4, 5)"),
        ({"source": torch.ones(1, 2, 2, 2, 2, 1)}, "1 to 3 grid axes", "(1, 2, 2, 2, 2, 1)"),
        ({"source": torch.ones(1, 0, 2, 1)}, "at least one node", "(1, 0, 2, 1)"),
        ({"source": torch.ones(1, 3, 2, 0)}, "one channel", "(1, 3, 2, 0)"),
        ({"source": _like(1, dtype=torch.int64)}, "torch.float32", "torch.int64"),
        ({"conductance": (_like(1.0),)}, "2 tensors, one an axis", "1"),
        ({"conductance": (_like(1.0), torch.ones(2, 4, 4, 3))}, "(2, 4, 5, 3)", "(2, 4, 4, 3)"),
        ({"conductance": (_like(1.0), _like(1, dtype=torch.bool))}, "float32", "torch.bool"),
        ({"leak": torch.ones(1, 4, 5, 3)}, "(2, 4, 5, 3)", "(1, 4, 5, 3)"),
        ({"leak": _like(1.0, device="meta")}, "device cpu", "meta"),
        ({"leak": _like(1.0).cfloat()}, "float32", "complex64"),
        ({"leak": _like(-1.0)}, ">= 0 everywhere", "minimum -1"),
        ({"leak": _like(-1.0), "ends": "short"}, ">= 0 everywhere", "minimum -1"),
        ({"leak": _like(0.0)}, "> 0 at some node of every network", "none in 6 of 6 networks"),
        ({"conductance": (_like(1.0), _like(-0.5))}, ">= 0 everywhere", "minimum -0.5"),
        ({"ends": "closed"}, "('open', 'short', 'ring', 'matched')", "'closed'"),
        ({"ends": ("open",)}, "2 of them", "('open',)"),
        ({"ends": ("open", "wall")}, "one of", "('open', 'wall')"),
        ({"wall": torch.ones(4)}, "(C,) = (3,) or (axes, 2, C) = (2, 2, 3)", "(4,)"),
        ({"wall": torch.full((3,), -2.0)}, ">= 0 everywhere", "minimum -2"),
        ({"wall": torch.ones(3), "ends": "ring"}, "None where no axis", "a tensor"),
        ({"wall": torch.ones(3, dtype=torch.int32)}, "torch.float32", "torch.int32"),
        ({"tol": 0.0}, "above 0 and below 1", "0.0"),
        ({"tol": 1.0}, "above 0 and below 1", "1.0"),
        ({"tol": float("nan")}, "above 0 and below 1", "nan"),
        ({"max_iterations": 0}, "at least 1", "0"),
        ({"max_iterations": 2.5}, "a whole number", "2.5"),
        ({"backend": "cuda"}, str(available_backends()), "'cuda'"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else None,
)
def test_message_says_expected_and_actual(changes, expected, actual):
    with pytest.raises(ValueError, match="expected") as error:
        kirchhoff_network(**_arguments(**changes))
    before, after = str(error.value).split(", got ")
    assert expected in before
    assert actual in after


@pytest.mark.parametrize(
    ("name", "value", "kind"),
    [
        ("source", np.ones((2, 4, 5, 3)), "ndarray"),
        ("source", [1.0], "list"),
        ("conductance", _like(1.0), "Tensor"),
        ("conductance", (_like(1.0), np.ones(3)), "ndarray"),
        ("leak", 0.5, "float"),
        ("wall", 1.0, "float"),
    ],
)
def test_only_tensors(name, value, kind):
    with pytest.raises(TypeError, match=f"{name}.*: expected a .*Tensor.*, got {kind}"):
        kirchhoff_network(**_arguments(**{name: value}))


@pytest.mark.parametrize(
    ("options", "expected", "actual"),
    [
        ({"conductivity": torch.ones(3)}, "(B, *grid, C)", "(3,)"),
        ({"spacing": 0.0}, "a number > 0", "0.0"),
        ({"spacing": (1.0,)}, "2 of them", "(1.0,)"),
        ({"spacing": (1.0, float("inf"))}, "> 0", "inf"),
        ({"mask": torch.ones(4, 4, dtype=torch.bool)}, "(4, 5)", "(4, 4)"),
        ({"mask": torch.ones(4, 5)}, "torch.bool", "torch.float32"),
        ({"ends": "wall"}, "'matched'", "'wall'"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else None,
)
@pytest.mark.parametrize("function", [edge_conductance, wall_leak])
def test_conductivity_is_checked(function, options, expected, actual):
    with pytest.raises(ValueError, match="expected") as error:
        function(**({"conductivity": _like(1.0)} | options))
    before, after = str(error.value).split(", got ")
    assert expected in before
    assert actual in after


def test_a_matched_end_is_no_wall():
    with pytest.raises(ValueError, match="expected 'short', 'open' or 'ring', got 'matched'"):
        wall_leak(_like(1.0), ends="matched")


@pytest.mark.parametrize("ends", ["short", "open"])
def test_ends_may_be_the_only_ground(ends):
    wall = None if ends == "short" else torch.ones(3)
    v = kirchhoff_network(**_arguments(leak=_like(0.0)), ends=ends, wall=wall)
    assert v.isfinite().all()


def test_environment_forces_the_backend(monkeypatch):
    monkeypatch.setenv("CHONN_NETWORK_BACKEND", "nonsense")
    with pytest.raises(ValueError, match=r"expected one of .* got 'nonsense'"):
        kirchhoff_network(**_arguments())
    kirchhoff_network(**_arguments(), backend="reference")
    called, solve = [], reference.solve
    monkeypatch.setattr(reference, "solve", lambda *args: called.append(1) or solve(*args))
    monkeypatch.setenv("CHONN_NETWORK_BACKEND", "reference")
    kirchhoff_network(**_arguments())
    assert called


class _Stuck:
    """A backend that reports what it is told to."""

    def __init__(self, residual, iterations):
        self.report = torch.tensor(iterations, dtype=torch.int32), torch.tensor(residual)

    def solve(self, source, *_):
        return (torch.zeros_like(source), *self.report)


@pytest.fixture
def report(monkeypatch):
    """Makes every backend one that reports these residuals and iterations."""

    def set_report(residual, iterations):
        stuck = _Stuck(residual, iterations)
        monkeypatch.setattr(operator.BACKENDS, "choose", lambda *_: stuck)

    return set_report


def test_what_did_not_converge_is_one_warning(report):
    report([[1e-6, 0.25, 3e-5], [1e-5, 1e-9, float("nan")]], [[9, 30, 30], [9, 9, 0]])
    with pytest.warns(RuntimeWarning) as caught:
        kirchhoff_network(**_arguments())
    (warning,) = caught
    assert str(warning.message) == (
        "kirchhoff_network: 2 of 6 networks above tol=1e-05 after 30 iterations, "
        "worst residual 2.50e-01 (grid 4 x 5)"
    )


def test_an_elimination_is_as_exact_as_its_arithmetic(report):
    report([[1e-3] * 3] * 2, [[0] * 3] * 2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        kirchhoff_network(**_arguments())
