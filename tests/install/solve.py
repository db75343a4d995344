"""Run where chonn-ops is installed: ``python solve.py BACKEND`` names what CPU calls take.

Uses nothing but the package and torch, so that it runs in any environment.
"""

import importlib.metadata
import sys
import warnings
from pathlib import Path

import torch

with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    import chonn_ops

    assert Path(chonn_ops.__file__).is_relative_to(sys.prefix), chonn_ops.__file__
    assert importlib.metadata.version("chonn-ops") == chonn_ops.__version__
    expected = sys.argv[1]
    for operator in (chonn_ops.scan, chonn_ops.network):
        assert ("cpu" in operator.available_backends()) == (expected == "cpu")

    torch.manual_seed(0)
    u, delta = torch.randn(2, 50, 3), torch.rand(2, 50, 3)
    b, c = torch.randn(2, 2, 50, 4)
    decay = torch.rand(3, 4) + 0.1
    scan = chonn_ops.kirchhoff_scan
    scanned = [scan(u, delta, decay, b, c, backend=name) for name in (None, "reference")]
    torch.testing.assert_close(*scanned, rtol=1e-4, atol=1e-5)

    source = torch.rand(2, 9, 11, 3, requires_grad=True)
    *g, leak = (
        torch.rand(2, 9, 11, 3) + 0.5,
        torch.rand(2, 9, 11, 3) + 0.5,
        torch.ones_like(source),
    )
    v = chonn_ops.Circuit(g, leak).solve(source)
    (solved,) = torch.autograd.grad(v.sum(), source)
    # Every network sends as much to ground as flows into it.
    torch.testing.assert_close((leak * v).sum((1, 2)), source.sum((1, 2)), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(solved, torch.ones_like(solved), rtol=1e-4, atol=1e-4)

    assert chonn_ops.CHONNNetwork2d(1, 1)(torch.ones(1, 1, 16, 16)).isfinite().all()

said = [str(w.message) for w in caught if "no compiled kernel" in str(w.message)]
assert len(said) == (expected != "cpu"), said
print("solved with", expected)
