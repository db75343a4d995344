"""Forward mode, `torch.func` and derivatives of gradients, against finite differences."""

from __future__ import annotations

import pytest
import torch
from scan_cases import make_case

from chonn_ops import CKB, Scan
from chonn_ops.scan import kirchhoff_scan


def _line(**options):
    case = make_case(1, 11, 2, 2, torch.float64)
    if options.get("boundary") == "periodic":
        del case["initial_state"]
    names = list(case)

    def scan(*tensors):
        return kirchhoff_scan(**dict(zip(names, tensors, strict=True)), **options)

    return scan, tuple(case.values())


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


@pytest.mark.thorough
def test_tangents_pass_through_exported_blocks():
    block = CKB(2, cell=Scan(2), order=1, dtype=torch.float64)
    x, tangent = torch.randn(2, 1, 5, 2, dtype=torch.float64)
    _, expected = torch.func.jvp(block, (x,), (tangent,))
    exported = torch.export.export(block, (x,)).module()
    torch.testing.assert_close(torch.func.jvp(exported, (x,), (tangent,))[1], expected)


def test_transforms_check_decay_under_every_wrapper():
    scan, (u, delta, decay, *rest) = _line()

    def loss(decay):
        return scan(u, delta, decay, *rest).sum()

    with pytest.raises(ValueError, match="> 0 everywhere"):
        torch.vmap(torch.func.grad(loss))(torch.stack([decay, -decay]))
