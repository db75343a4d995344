"""``timm.create_model("chonn_tiny", cell="network")``: networks in the place of scans."""

import hashlib

import pytest
import torch

from chonn_ops import NetworkCell

timm = pytest.importorskip("timm")


def create(**options):
    torch.manual_seed(0)
    return timm.create_model("test_chonn", num_classes=5, drop_path_rate=0.0, **options)


def test_every_parameter_learns_at_any_image_size(assert_learns):
    model = create(cell="network", num_networks=4, boundary="periodic", in_chans=1)
    cells = [module for module in model.modules() if isinstance(module, NetworkCell)]
    assert [(cell.options.num_networks, cell.boundary) for cell in cells] == [
        (4, ("periodic", "periodic"))
    ] * 5
    assert model(torch.randn(2, 1, 32, 32)).shape == (2, 5)
    # Images have any size, and pixels are the centres of cells.
    assert {cell.options.nodes for cell in cells} == {"centres"}
    model = create(cell="network")
    logits = model(torch.randn(2, 3, 64, 96))
    assert logits.shape == (2, 5)
    logits.square().sum().backward()
    assert_learns(model)
    assert {"wall_param"} <= {name.rpartition(".")[2] for name in model.no_weight_decay()}


def test_features_and_fx():
    from timm.models._features_fx import FeatureGraphNet

    x = torch.randn(2, 3, 64, 64)
    with torch.no_grad():
        maps = create(cell="network", features_only=True).eval()(x)
        graph = FeatureGraphNet(create(cell="network").eval(), out_indices=(0, 1, 2, 3))(x)
    assert [tuple(f.shape[-2:]) if f.shape[1] in (16, 32, 48, 64) else tuple(f.shape[1:3])
            for f in maps] == [(16, 16), (8, 8), (4, 4), (2, 2)]  # fmt: skip
    assert len(graph) == 4


def test_without_networks_it_is_what_it_was():
    """Names, shapes and so checkpoints; and the paper's options are still the defaults."""
    model = create()
    state = model.state_dict().items()
    names = "\n".join(f"{key} {tuple(x.shape)}" for key, x in state if ".mixer." in key)
    assert hashlib.sha256(names.encode()).hexdigest()[:12] == "698fe4eb0cec"
    explicit = create(order=2, d_state=1, directions="cross", boundary="matched", constrained=True)
    x = torch.randn(1, 3, 64, 64)
    torch.testing.assert_close(model.eval()(x), explicit.eval()(x), rtol=0, atol=0)
