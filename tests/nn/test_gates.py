"""Orders and depths that choose themselves: the prior's gradient, and equal outputs when pruned."""

import copy

import pytest
import torch

from chonn_ops import CKB, CHONNNetwork2d, CHONNUNet2d, CKBOptions, prune
from chonn_ops import inspect as read
from chonn_ops.nn import StageGates


def closed(module, values):
    """The module, its gates g_2, g_3, ... set."""
    with torch.no_grad():
        module.gates.gate_param.copy_(torch.tensor(values))
    return module


def test_gates_start_open_and_close_all_that_follow():
    gates = StageGates(4, 0.1)
    assert gates.values().tolist() == [1, 1, 1, 1]
    with torch.no_grad():
        gates.gate_param.copy_(torch.tensor([0.5, -1.0, 2.0]))
    assert gates.values().tolist() == [1, 0.5, 0, 0]
    assert gates.open_stages() == 2


def test_gradient_is_the_losses_and_the_prior():
    torch.manual_seed(0)
    gates = StageGates(2, 0.1).double()
    y, e = torch.randn(3, 5, dtype=torch.float64, requires_grad=True), torch.randn(3, 5).double()
    (gates(y, 1) * e).sum().backward()
    expected = (e * y).sum() + 0.1 * e.norm() * y.norm()
    assert gates.gate_param.grad.item() == pytest.approx(expected.item())
    assert torch.equal(y.grad, e)
    gates.gate_param.grad = None
    (gates.eval()(y, 1) * e).sum().backward()
    assert gates.gate_param.grad.item() == pytest.approx((e * y).sum().item())
    # What the loss asks for against a cosine of 0.05: the gate falls.
    for cosine, falls in ((0.05, True), (0.2, False)):
        gates.train().gate_param.grad = None
        asked = torch.zeros(2, dtype=torch.float64)
        asked[0], asked[1] = -cosine, (1 - cosine**2) ** 0.5
        (gates(torch.tensor([1.0, 0.0]).double(), 1) * asked).sum().backward()
        assert (gates.gate_param.grad.item() > 0) == falls


def test_derivatives_of_all_modes():
    gates = StageGates(2, 0.0).double()
    y = torch.randn(4, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda u: gates(u, 1), y, check_forward_ad=True)
    assert torch.autograd.gradgradcheck(lambda u: gates(u, 1), y)
    batch = torch.randn(3, 4, dtype=torch.float64)
    slopes = torch.func.vmap(torch.func.grad(lambda u: gates(u, 1).square().sum()))(batch)
    torch.testing.assert_close(slopes, 2 * batch)


@pytest.mark.parametrize("cell", ["scan", "network"])
@pytest.mark.parametrize("topology", ["series", "parallel"])
def test_pruned_blocks_have_equal_outputs(cell, topology):
    torch.manual_seed(0)
    block = CKB(6, 2, cell=cell, order="adaptive", max_order=3, topology=topology)
    closed(block, [0.7, -0.1])
    x = torch.randn(2, 6, 8, 8)
    small = prune(block)
    assert (len(block.cells), len(small.cells)) == (3, 2)
    assert torch.equal(small(x), block(x))
    assert small.options.max_order == 2
    options = {"cell": cell, "order": "adaptive", "max_order": 2, "topology": topology}
    same = CKB(6, 2, **options, selective_norm=small.options.selective_norm)
    same.load_state_dict(small.state_dict())
    assert torch.equal(same(x), block(x))
    one = prune(closed(block, [0.0, 1.0]))
    assert len(one.cells) == 1
    assert torch.equal(one(x), block(x))
    assert torch.equal(torch.jit.script(small)(x), small(x))


def test_a_block_with_open_gates_is_the_block_of_fixed_order():
    torch.manual_seed(0)
    block = CKB(4, 1, order="adaptive", max_order=3)
    fixed = CKB(4, 1, order=3)
    state = block.state_dict()
    state.pop("gates.gate_param")
    fixed.load_state_dict(state)
    x = torch.randn(2, 4, 16)
    assert torch.equal(block(x), fixed(x))


def learn_gates(block, teacher):
    optimizer = torch.optim.Adam([block.gates.gate_param], 2e-2)
    for _ in range(60):
        x = torch.randn(4, 4, 12)
        loss = (block(x) - teacher(x)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


@pytest.mark.thorough
def test_training_closes_what_is_not_needed():
    """The target is the block's own first stage: later ones only disturb it."""
    torch.manual_seed(0)
    block = CKB(4, 1, order="adaptive", max_order=3, sparsity=0.05)
    teacher = copy.deepcopy(closed(block, [0.0, 0.0])).eval()
    closed(block, [0.3, 0.3])
    learn_gates(block, teacher)
    assert len(prune(block).cells) == 1


def test_without_prior_a_needed_stage_opens():
    torch.manual_seed(0)
    block = CKB(4, 1, order="adaptive", max_order=2, sparsity=0.01)
    teacher = copy.deepcopy(block).eval()
    closed(block, [0.2])
    learn_gates(block, teacher)
    assert block.gates.values()[1].item() > 0.6


def test_depth():
    torch.manual_seed(0)
    ckb = CKBOptions(cell="network", networks=2, sparsity=0.05)
    model = CHONNNetwork2d(width=6, depth="adaptive", max_depth=3, ckb=ckb)
    assert model.gates.sparsity == 0.05
    closed(model, [0.5, 0.0])
    x = torch.rand(1, 1, 8, 8)
    small = prune(model)
    assert (len(small.blocks), len(small.pointwise)) == (2, 2)
    assert torch.equal(small(x), model(x))
    same = CHONNNetwork2d(width=6, depth="adaptive", max_depth=2, ckb=ckb)
    same.load_state_dict(small.state_dict())
    assert torch.equal(same(x), model(x))


def test_backbones_take_it_and_inspect_weighs_stages():
    ckb = CKBOptions(order="adaptive", max_order=2)
    model = CHONNUNet2d(1, 1, init_features=4, ckb=ckb).eval()
    for block in model.ckbs.values():
        closed(block, [-1.0])
    x = torch.randn(1, 1, 32, 32)
    assert all(block["stage_share"] == [1, 0] for block in read(model, x)["blocks"])
    assert torch.equal(prune(model)(x), model(x))


@pytest.mark.thorough
def test_compile_and_export():
    torch.manual_seed(0)
    block = closed(CKB(4, 1, order="adaptive", max_order=2), [0.4])
    x = torch.randn(2, 4, 12)
    exported = torch.export.export(block.eval(), (x,))
    torch.testing.assert_close(exported.module()(x), block(x))
    block.train()
    block(x).square().sum().backward()
    expected = block.gates.gate_param.grad.clone()
    block.gates.gate_param.grad = None
    torch.compile(block, backend="aot_eager")(x).square().sum().backward()
    torch.testing.assert_close(block.gates.gate_param.grad, expected)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"order": "automatic"}, "order: expected an integer of at least 0 or 'adaptive', got 'au"),
        ({"order": 2, "max_order": 3}, "max_order: expected its default 4 without order='adaptiv"),
        ({"order": "adaptive", "max_order": 0}, "max_order: expected an integer of at least 1, g"),
        ({"order": "adaptive", "sparsity": 1.0}, "sparsity: expected at least 0 and below 1, got"),
        ({"order": "adaptive", "sparsity": "much"}, "sparsity: expected a number, got 'much'"),
    ],
)
def test_unfit_options(options, message):
    with pytest.raises(ValueError, match=message):
        CKBOptions(**options)


def test_unfit_depths_and_models():
    with pytest.raises(ValueError, match="depth: expected an integer or 'adaptive', got 'deep'"):
        CHONNNetwork2d(depth="deep")
    with pytest.raises(ValueError, match="max_depth: expected at least 1, got 0"):
        CHONNNetwork2d(depth="adaptive", max_depth=0)
    with pytest.raises(ValueError, match=r"model: expected blocks of order='adaptive'.* got CKB"):
        prune(CKB(4, order=2))
