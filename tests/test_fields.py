"""Models built of plain arguments, for hosts of fields (B, C, *grid)."""

import json

import numpy as np
import pytest
import torch

from chonn_ops import CHONNFNO2d, CHONNNetwork2d, CHONNUNet2d, CKBOptions, Dirichlet, Scan
from chonn_ops.checks import json_value
from chonn_ops.nn.circuit_head import CircuitHead
from chonn_ops.nn.geometry import NODES
from chonn_plugins.fields import build


def built(name, in_channels, out_channels, axes=2, **options):
    torch.manual_seed(0)
    return build(name, in_channels, out_channels, axes, options)[0].eval()


def kept(name, **options):
    return build(name, 1, 1, 2, options)[1]


def test_they_are_our_models():
    x = torch.randn(2, 3, 32, 32)
    same = {"rtol": 0, "atol": 0}
    head = {"nodes": "left", "boundary": ("periodic", Dirichlet(1.0))}
    plain = {"nodes": "left", "boundary": ["periodic", {"condition": "Dirichlet", "value": 1.0}]}
    torch.manual_seed(0)
    ours = CHONNNetwork2d(3, 2, 6, 1, **head)
    model = built("chonn_network", 3, 2, width=6, depth=1, **plain)
    torch.testing.assert_close(model(x), ours(x), **same)
    torch.manual_seed(0)
    ours = CHONNUNet2d(3, 2, 2, **head).eval()
    torch.testing.assert_close(built("chonn_unet", 3, 2, init_features=2, **plain)(x), ours(x))
    torch.manual_seed(0)
    ours = CHONNFNO2d(2, 4, 4, 6, 1, in_channels=3, **head)
    line = torch.arange(32) / 32
    grid = torch.stack(torch.meshgrid(line, line, indexing="ij"), -1).expand(2, 32, 32, 2)
    expected = ours(x.movedim(1, -1), grid).squeeze(-2).movedim(-1, 1)
    model = built("chonn_fno", 3, 2, modes1=4, modes2=4, width=6, **plain)
    torch.testing.assert_close(model(x), expected, **same)


@pytest.mark.parametrize("nodes", ["centres", "left", "corners"])
def test_coordinates_of_the_fno_are_those_of_its_nodes(nodes):
    model, seen = built("chonn_fno", 1, 1, nodes=nodes), []
    model.model.network.head.register_forward_pre_hook(lambda _, args: seen.extend(args))
    model(torch.randn(1, 1, 32, 32))
    assert seen[3] == [NODES[nodes]] * 2
    assert seen[1] == pytest.approx([1 / (31 if nodes == "corners" else 32)] * 2)


@pytest.mark.parametrize(
    ("name", "domain"),
    [
        ("chonn_network", {"lengths": [1.0, 0.5]}),
        ("chonn_unet", {"lengths": [1.0, 0.5]}),
        ("chonn_fno", {"box": [[-1, 3], [0, 2]]}),
    ],
)
def test_domains_that_are_no_squares(name, domain):
    nodes = [[0.25, 0.75], [0, 1]]
    model, seen = built(name, 1, 1, **domain, nodes=nodes), []
    solver = next(m for m in model.modules() if isinstance(m, CircuitHead))
    solver.register_forward_pre_hook(lambda _, args: seen.append((args[1], args[3])))
    model(torch.randn(1, 1, 32, 32))
    [(spacing, lie)] = seen
    assert spacing == pytest.approx([1 / 32, 1 / 64])
    assert lie == [pytest.approx(pair) for pair in nodes]


@pytest.mark.parametrize("lengths", [torch.tensor(2.0), np.float32(2), np.full(2, 2.0), [2, 2]])
def test_lengths_are_any_numbers(lengths):
    """U-Nets took no tensor of one number, which networks take."""
    for kind in (CHONNUNet2d, CHONNNetwork2d):
        model = kind(1, 2, 4, lengths=lengths)
        assert getattr(model, "network", model).lengths == ((2.0, 2.0) if np.ndim(lengths) else 2.0)


def test_options_are_plain_and_complete():
    """A file of them rebuilds the model after a change of a default."""
    omegaconf = pytest.importorskip("omegaconf")
    boundary = ["periodic", {"condition": "Dirichlet", "value": 1.0, "distance": 0.0}]
    given = omegaconf.OmegaConf.create({"width": np.float64(6).item(), "boundary": boundary})
    options = kept("chonn_network", **{**given, "width": np.int64(6), "lengths": torch.ones(2)})
    assert json.loads(json.dumps(options)) == options
    expected = {"width": 6, "depth": 2, "trunk": None, "lengths": [1.0, 1.0], "ac": False}
    assert options == {**expected, "boundary": boundary, "inner": "robin", "nodes": "centres"}
    assert built("chonn_network", 1, 2, **options)(torch.randn(1, 1, 8, 8)).shape == (1, 2, 8, 8)
    for name in ("chonn_unet", "chonn_fno"):
        options = kept(name, ckb={"cell": "scan", "d_state": np.int64(3)})
        assert json.loads(json.dumps(options)) == options
        assert options["ckb"] == CKBOptions(Scan(d_state=3)).to_mapping()
        assert kept(name, **options) == options


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (torch.tensor([[[[-1.5]], [[2.0]]]]), [[[[-1.5]], [[2.0]]]]),
        (torch.tensor(0.5, requires_grad=True), 0.5),
        (torch.ones(2, dtype=torch.bfloat16), [1.0, 1.0]),
        (np.float32(-1.5), -1.5),
        (np.arange(2), [0, 1]),
        ((np.int64(2), [np.float64(0.5)]), [2, [0.5]]),
        ({"inlet": np.str_("robin")}, {"inlet": "robin"}),
        (np.True_, True),
        (None, None),
    ],
    ids=str,
)
def test_numbers_are_plain(given, expected):
    found = json_value("a", given)
    assert found == expected
    assert json.loads(json.dumps(found)) == expected


@pytest.mark.parametrize(
    "cell", [{"num_networks": np.int64(3), "tol": np.float64(1e-4)}, {"order": np.int8(2)}]
)
def test_options_of_blocks_are_plain(cell):
    """Those that a program made of its own numbers, too."""
    for given in (cell, json_value("ckb", cell)):
        options = CKBOptions.from_mapping(given)
        mapping = json.loads(json.dumps(options.to_mapping()))
        assert CKBOptions.from_mapping(mapping) == options


@pytest.mark.parametrize(
    ("name", "axes", "options", "message"),
    [
        ("network", 2, {"dtype": torch.float64}, "dtype: expected numbers, words, or lists .* got"),
        ("network", 2, {"nodes": torch.ones(1, device="meta")}, "nodes: expected numbers that can"),
        ("network", 2, {"boundary": {"value": 1j}}, r"boundary\.value: expected numbers, words"),
        ("network", 2, {"lengths": [1.0, {1.0}]}, "lengths: expected numbers, words"),
        ("network", 2, {"ckb": {}}, r"chonn_network: .* unexpected keyword argument 'ckb'"),
        ("unet", 4, {}, "expected a grid of 1, 2 or 3 axes, got 4"),
        ("unet", 2, {"ckb": {"num_network": 3}}, "num_network: expected options of a block"),
    ],
)
def test_unfit_options_are_refused_by_name(name, axes, options, message):
    with pytest.raises(ValueError, match=message):
        built(f"chonn_{name}", 1, 1, axes, **options)
