"""Selection of backends: a GPU's kernel that fails on a device is not selected."""

from types import SimpleNamespace

import pytest
import torch

from chonn_ops._backends import Backends, _warn_without
from chonn_ops.network.solve import operator as network
from chonn_ops.scan import operator as scan

# Nothing warns but what a test expects to.
pytestmark = pytest.mark.filterwarnings("error")
CPU = torch.device("cpu")


def _backends(results, name="triton"):
    names = ("torch", name)
    backends = Backends(
        "chonn_ops.network.solve", "UNUSED", names=names, results_on=lambda x, _: x.results()
    )
    backends._loaded = {
        "torch": SimpleNamespace(results=lambda: (torch.ones(3), torch.arange(4.0))),
        name: SimpleNamespace(results=results),
    }
    return backends


def _fails():
    raise OSError("no compiler")


@pytest.mark.parametrize("name", ["triton", "cuda"])
@pytest.mark.parametrize(
    ("results", "reason"),
    [
        (_fails, "OSError: no compiler"),
        (lambda: (torch.ones(3), torch.arange(4.0) + 1), r"differ by 3\.3e-01"),
        (lambda: (torch.ones(3), torch.full((4,), torch.nan)), "differ by nan"),
    ],
)
def test_a_failing_kernel_is_replaced_with_one_warning(results, reason, name):
    backends = _backends(results, name)
    message = f"'{name}' fail their check on cpu.*torch backend.*{reason}"
    with pytest.warns(RuntimeWarning, match=message):
        assert not backends.check(CPU)
    assert not backends.check(CPU)


def test_a_good_kernel_is_checked_once():
    calls = []
    good = lambda: calls.append(1) or (torch.ones(3), torch.arange(4.0) + 1e-5)  # noqa: E731
    backends = _backends(good)
    assert backends.check(CPU)
    assert backends.check(CPU)
    assert len(calls) == 1


def test_the_scans_small_problem_is_the_same_on_each_backend():
    results = [scan._small_results(scan.BACKENDS[name], CPU) for name in ("torch", "reference")]
    assert len(results[0]) == 7
    for a, b in zip(*results, strict=True):
        assert b.any()
        torch.testing.assert_close(a.double(), b.double(), rtol=1e-3, atol=1e-3)


def test_a_backend_that_does_not_run_says_what_it_needs(monkeypatch):
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr("chonn_ops._backends._installed", lambda _: False)
    backends = Backends("chonn_ops.network.solve", "UNUSED", print, needs={"reference": "scipy"})
    with pytest.raises(ValueError, match="got 'triton', which needs a CUDA device"):
        backends.name_for("triton", CPU)
    with pytest.raises(ValueError, match="got 'reference', which needs `pip install scipy`"):
        backends.name_for("reference", CPU)
    with pytest.raises(ValueError, match=r"got 'gpu'$"):
        backends.name_for("gpu", CPU)


@pytest.mark.parametrize("name", ["Triton", "NVRTC"])
def test_a_missing_compiler_is_named_once(name, monkeypatch):
    """Falling back in silence costs a factor of 40 on a GPU."""
    if name == "Triton":
        lacks = lambda: "Triton 99.0 or later, got 3.9"  # noqa: E731
        monkeypatch.setattr("chonn_ops._backends._lacks_triton", lacks)
        backends, message = network.BACKENDS, r"solve: expected Triton 99\.0 or later, got 3\.9"
    else:
        monkeypatch.setattr("chonn_ops.scan.cuda.nvrtc._library", lambda: None)
        monkeypatch.setattr(torch.version, "cuda", "13.0")
        backends, message = scan.BACKENDS, "scan: expected NVRTC .*, got none: on CUDA"
    _warn_without.cache_clear()
    with pytest.warns(RuntimeWarning, match=message):
        assert backends.name_for("", torch.device("cuda")) == "torch"
    assert backends.name_for("", torch.device("cuda")) == "torch"
