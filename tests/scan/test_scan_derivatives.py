"""Forward mode, `torch.func` and derivatives of gradients, against finite differences."""

from __future__ import annotations

import pytest
import torch
import torch.autograd.forward_ad as fwAD
from scan_cases import EACH_MODE, make_case

from chonn_ops import CKB, Scan
from chonn_ops.nn import KirchhoffCell
from chonn_ops.scan import kirchhoff_scan, scan_field


def _line(**options):
    case = make_case(1, 11, 2, 2, torch.float64)
    if options.get("boundary") == "periodic":
        del case["initial_state"]
    names = list(case)

    def scan(*tensors):
        return kirchhoff_scan(**dict(zip(names, tensors, strict=True)), **options)

    return scan, tuple(case.values())


@pytest.mark.thorough
@EACH_MODE
def test_fields_in_forward_mode_and_twice_backwards(directions, boundary):
    leaves = [x.requires_grad_() for x in make_case(1, (2, 2), 1, 1, torch.float64).values()]

    def scan(*tensors):
        return scan_field(*tensors, directions=directions, boundary=boundary)

    assert torch.autograd.gradcheck(
        scan, leaves, check_forward_ad=True, check_backward_ad=False, fast_mode=True
    )
    assert torch.autograd.gradgradcheck(scan, leaves, fast_mode=True)


@pytest.mark.parametrize(
    "options",
    [
        {},
        pytest.param({"reverse": True}, marks=pytest.mark.thorough),
        pytest.param({"boundary": "periodic"}, marks=pytest.mark.thorough),
    ],
    ids=str,
)
def test_lines_in_forward_mode_and_twice_backwards(options):
    scan, tensors = _line(**options, return_state=True)
    leaves = [x.requires_grad_() for x in tensors]
    assert torch.autograd.gradcheck(
        scan, leaves, check_forward_ad=True, check_backward_ad=False, fast_mode=True
    )
    assert torch.autograd.gradgradcheck(scan, leaves, check_fwd_over_rev=True, fast_mode=True)


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


@pytest.mark.parametrize(
    "make", ["scan", *(pytest.param(x, marks=pytest.mark.thorough) for x in ("cell", "block"))]
)
def test_transforms_agree_with_each_other_and_with_differences(make):
    torch.manual_seed(0)
    scan, (u, *rest) = _line()
    parts = {
        "scan": lambda u: scan(u, *rest),
        "cell": KirchhoffCell(2, Scan(2, directions="bidirectional"), dtype=torch.float64),
        "block": CKB(2, cell=Scan(2), order=2, boundary="neumann", dtype=torch.float64),
    }
    f, tangent, h = parts[make], torch.randn_like(u), 1e-6

    def loss(u):
        return f(u).sin().sum()

    def gradient(u):
        leaf = u.detach().requires_grad_()
        return torch.autograd.grad(loss(leaf), leaf)[0]

    pushed = (f(u + h * tangent) - f(u - h * tangent)).detach() / (2 * h)
    with fwAD.dual_level():
        dual = fwAD.unpack_dual(f(fwAD.make_dual(u, tangent))).tangent
    columns = (torch.func.jacfwd(f)(u) * tangent).sum((-1, -2, -3))
    for actual in (torch.func.jvp(f, (u,), (tangent,))[1], dual, columns):
        torch.testing.assert_close(actual.detach(), pushed, rtol=1e-6, atol=1e-7)
    torch.testing.assert_close(torch.func.grad(loss)(u), gradient(u))
    torch.testing.assert_close(torch.func.vjp(loss, u)[1](torch.ones_like(loss(u)))[0], gradient(u))
    torch.testing.assert_close(
        torch.vmap(torch.func.grad(loss))(torch.stack([u, 2 * u]))[1], gradient(2 * u)
    )

    curved = (gradient(u + h * tangent) - gradient(u - h * tangent)) / (2 * h)
    leaf = u.detach().requires_grad_()
    (first,) = torch.autograd.grad(loss(leaf), leaf, create_graph=True)
    second = torch.autograd.grad(first, leaf, tangent)[0]
    nested = [
        (outer(inner(loss))(u) * tangent).sum((-1, -2, -3)).detach()
        for outer in (torch.func.jacfwd, torch.func.jacrev)
        for inner in (torch.func.jacfwd, torch.func.jacrev)
    ]
    for actual in (second, *nested):
        torch.testing.assert_close(actual, curved, rtol=1e-6, atol=1e-7)


@pytest.mark.thorough
def test_tangents_pass_through_exported_blocks():
    block = CKB(2, cell=Scan(2), order=1, dtype=torch.float64)
    x, tangent = torch.randn(2, 1, 5, 2, dtype=torch.float64)
    _, expected = torch.func.jvp(block, (x,), (tangent,))
    exported = torch.export.export(block, (x,)).module()
    torch.testing.assert_close(torch.func.jvp(exported, (x,), (tangent,))[1], expected)


@pytest.mark.thorough
def test_transforms_compile():
    scan, tensors = _line()

    def tangent(*tensors):
        return torch.func.jvp(scan, tensors, tensors)[1]

    compiled = torch.compile(tangent, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(*tensors), tangent(*tensors))
    torch._dynamo.reset()


def test_transforms_check_decay_under_every_wrapper():
    scan, (u, delta, decay, *rest) = _line()

    def loss(decay):
        return scan(u, delta, decay, *rest).sum()

    with pytest.raises(ValueError, match="> 0 everywhere"):
        torch.vmap(torch.func.grad(loss))(torch.stack([decay, -decay]))
