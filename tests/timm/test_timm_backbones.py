"""The vision backbones: what the paper fixes, timm's interface beyond its tests, PyTorch's ways."""

import pytest
import torch

timm = pytest.importorskip("timm")

from timm.models import create_feature_extractor  # noqa: E402
from timm.optim import param_groups_layer_decay, param_groups_weight_decay  # noqa: E402

from chonn_ops.models.chonn import CHONN, ROUTINGS, Block  # noqa: E402

PAPER = {
    "chonn_tiny": ([96, 192, 384, 768], [2, 2, 6, 2]),
    "chonn_small": ([128, 256, 512, 1024], [2, 2, 4, 2]),
    "chonn_base": ([128, 256, 512, 1024], [2, 2, 9, 2]),
}


def create(name="test_chonn", **options):
    torch.manual_seed(0)
    return timm.create_model(name, **options)


def images(points=64, batch=2):
    torch.manual_seed(1)
    return torch.randn(batch, 3, points, points)


def blocks(model):
    return [module for module in model.modules() if isinstance(module, Block)]


@pytest.mark.parametrize("name", PAPER)
def test_widths_depths_and_cells_are_the_papers(name):
    model = create(name, device="meta")
    widths, depths = PAPER[name]
    assert [info["num_chs"] for info in model.feature_info] == widths
    assert [len(stage.blocks) for stage in model.stages] == depths
    for block in blocks(model):
        options = block.mixer.options
        assert (options.order, options.stage_input, options.cell.constrained) == (2, "inject", True)
        assert block.mlp.fc1.out_features == 4 * block.mixer.dim
    rates = [getattr(block.drop_path1, "drop_prob", 0.0) for block in blocks(model)]
    torch.testing.assert_close(torch.tensor(rates), torch.linspace(0, 0.2, sum(depths)))


def test_tiny_is_as_large_as_its_peers():
    model = create("chonn_tiny", device="meta")
    assert sum(p.numel() for p in model.parameters()) == pytest.approx(30e6, rel=0.05)


def test_evaluation_resizes_to_256_and_crops_to_224():
    config = timm.data.resolve_data_config(model=create("chonn_tiny", device="meta"))
    assert config["input_size"] == (3, 224, 224)
    assert 224 / config["crop_pct"] == 256
    assert config["interpolation"] == "bicubic"


def test_drop_path_drops_whole_branches_of_samples():
    block = blocks(create(drop_path_rate=0.5).train())[-1]
    x = torch.randn(400, 1, 1, 64)
    unchanged = (block(x) == x).all(-1).float().mean()
    assert 0.15 < unchanged < 0.35  # both branches: one half squared


@pytest.mark.parametrize("grid", [(1, 1), (33, 97), (131, 64), (224, 384)])
def test_any_size(grid):
    y = create().eval().forward_features(torch.randn(2, 3, *grid))
    assert y.shape == (2, *(-(-points // 32) for points in grid), 64)
    assert y.isfinite().all()


@pytest.mark.parametrize("routing", ROUTINGS)
def test_routings_of_the_ablation_train(routing, assert_learns):
    model = create(drop_path_rate=0.0, **ROUTINGS[routing])
    mixer = blocks(model)[0].mixer
    expected = {
        "baseline": (1, "series", False),
        "parallel": (2, "parallel", False),
        "serial": (2, "series", False),
        "serial+constraints": (2, "series", True),
    }[routing]
    found = mixer.options.topology, mixer.cells[0].options.constrained
    assert (len(mixer.cells), *found) == expected
    model(images()).square().mean().backward()
    assert_learns(model)


def test_options_reach_every_block():
    options = {"order": 3, "d_state": 2, "directions": "axial", "boundary": "neumann"}
    options["stage_input"] = "chain"
    found = blocks(create(**options))
    assert found
    for block in found:
        assert options.items() <= block.mixer.options.to_mapping().items()
        assert [cell.options.d_state for cell in block.mixer.cells] == [2, 2, 2]


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"width": 1}, TypeError, "width: expected options of a block with cell=.scan., which are"),
        ({"cell": "network", "d_state": 4}, TypeError, "d_state: expected .* with cell='network'"),
        ({"cell": "line"}, ValueError, r"cell: expected one of \('network', 'scan'\), got 'line'"),
        ({"order": 0}, ValueError, "order: expected at least 1 in a CKB, got 0"),
        ({"directions": "up"}, ValueError, "got 'up'"),
        ({"global_pool": "sum"}, ValueError, "expected one of .*'avg'.*, got 'sum'"),
        ({"depths": (1, 1)}, ValueError, "expected equal lengths, got"),
    ],
)
def test_bad_options(options, error, message):
    with pytest.raises(error, match=message):
        create(**options)


@pytest.mark.thorough
def test_fx_features_of_tiny_are_the_intermediates():
    model = create("chonn_tiny").eval()
    nodes = {f"stages.{i}.blocks.1.add_1": str(i) for i in (0, 1, 3)}
    features = create_feature_extractor(model, nodes)
    x = images()
    expected = model.forward_intermediates(x, output_fmt="NHWC", intermediates_only=True)
    found = features(x)
    assert set(found) == {"0", "1", "3"}
    for index, feature in found.items():
        torch.testing.assert_close(feature, expected[int(index)])


def test_features_only_gives_maps_of_every_stride():
    features = create(features_only=True).eval()
    assert features.feature_info.reduction() == [4, 8, 16, 32]
    shapes = [tuple(y.shape) for y in features(images())]
    assert shapes == [(2, 16, 16, 16), (2, 32, 8, 8), (2, 48, 4, 4), (2, 64, 2, 2)]


def test_intermediates_norm_and_format():
    model = create().eval()
    x = images()
    last, (y,) = model.forward_intermediates(x, indices=1, norm=True, output_fmt="NHWC")
    torch.testing.assert_close(y, model.head.norm(last))
    assert len(model.forward_intermediates(x, [0, 1], stop_early=True)[1]) == 2
    with pytest.raises(ValueError, match="expected 'NCHW' or 'NHWC', got 'NLC'"):
        model.forward_intermediates(x, output_fmt="NLC")


@pytest.mark.parametrize("cell", ["scan", "network"])
def test_checkpointing_recomputes_blocks_and_changes_nothing(monkeypatch, cell):
    checkpointed = []
    original = torch.utils.checkpoint.checkpoint
    counted = lambda *x, **options: (checkpointed.append(1), original(*x, **options))[1]  # noqa: E731
    monkeypatch.setattr("torch.utils.checkpoint.checkpoint", counted)
    results = []
    for enable in (False, True):
        model = create(cell=cell)
        model.set_grad_checkpointing(enable)
        torch.manual_seed(2)  # drop-path
        y = model(images())
        y.square().sum().backward()
        results.append((y, *(p.grad for p in model.parameters())))
        assert len(checkpointed) == (5 if enable else 0)
    torch.testing.assert_close(*results)


@pytest.mark.parametrize("pool", ["avg", "max", ""])
def test_head_norms_pools_and_classifies(pool):
    model = create(global_pool=pool).eval()
    x = model.forward_features(images())
    normed = torch.nn.functional.layer_norm(x, (64,), model.head.norm.weight, model.head.norm.bias)
    pooled = {"avg": lambda: normed.mean((1, 2)), "max": lambda: normed.amax((1, 2))}
    features = pooled.get(pool, lambda: normed)()
    torch.testing.assert_close(model.forward_head(x, pre_logits=True), features)
    torch.testing.assert_close(model.forward_head(x), model.head.fc(features))
    model.reset_classifier(7)
    assert model.forward_head(x).shape == (*features.shape[:-1], 7)
    assert model.num_classes == 7
    # What is refused changes nothing.
    with pytest.raises(ValueError, match=r"global_pool: expected one of .*, got 'mean'"):
        model.reset_classifier(5, "mean")
    assert (model.num_classes, model.head.pool_type) == (7, pool)
    assert model.forward_head(x).shape == (*features.shape[:-1], 7)


def test_circuit_parameters_do_not_decay():
    model = create()
    groups = {"weight_decay": 0.1, "no_weight_decay_list": model.no_weight_decay()}
    decay, rest = param_groups_weight_decay(model, **groups)
    if decay["weight_decay"] == 0:
        decay, rest = rest, decay
    names = {id(p): name for name, p in model.named_parameters()}
    decayed = {names[id(p)] for p in decay["params"]}
    assert "stages.0.blocks.0.mixer.in_proj.weight" in decayed
    assert not [n for n in decayed if n.endswith(("decay_param", "skip_param", "bias"))]
    assert rest["weight_decay"] == 0


def test_layer_decay_knows_the_depth():
    groups = param_groups_layer_decay(create(), layer_decay=0.5)
    scales = sorted({group["lr_scale"] for group in groups})
    # Stem, five blocks (a downsampling goes with the stage's first) and the head.
    assert scales == [0.5**depth for depth in range(6, -1, -1)]


def test_a_state_dict_is_that_of_the_class(tmp_path):
    model = create().eval()
    x = images()
    expected = model(x)
    torch.save(model.state_dict(), tmp_path / "model.pt")
    other = CHONN(depths=(1, 1, 2, 1), dims=(16, 32, 48, 64)).eval()
    other.load_state_dict(torch.load(tmp_path / "model.pt", weights_only=True))
    torch.testing.assert_close(other(x), expected, rtol=0, atol=0)


@pytest.mark.parametrize("name", ["test_chonn", "test_convnext", "test_resnet"])
def test_no_classes_and_no_channels_are_what_they_are_for_timm(name):
    """0 or -1 classes leave features; a model of no channels is made and refuses images."""
    x = torch.randn(2, 3, 64, 64)
    for num_classes in (0, -1):
        model = timm.create_model(name, num_classes=num_classes)
        other = timm.create_model(name)
        other.reset_classifier(num_classes)
        for made in (model, other):
            assert isinstance(made.get_classifier(), torch.nn.Identity)
            assert made(x).shape == (2, made.num_features)
            assert made.num_classes == num_classes
    with pytest.warns(UserWarning, match="zero-element"):
        model = timm.create_model(name, in_chans=0)
    with pytest.raises(RuntimeError):
        model(x)
