"""Models in folders come back with their options; nothing is lost or replaced silently."""

import copy
import io
import json
import math
import pickle
from functools import partial

import pytest
import torch
from model_cases import MODELS, coordinates
from torch import nn

import chonn_ops
from chonn_ops import CHONNNetwork2d, CKBOptions, Dirichlet, Network, Robin
from chonn_ops.boundary import Condition, Neumann

pytest.importorskip("safetensors")


def moved(model):
    with torch.no_grad():
        for p in model.parameters():
            p.add_(0.01 * torch.rand(p.shape, dtype=p.dtype))
    return model.eval()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", MODELS)
def test_every_model_comes_back(name, dtype, tmp_path):
    """Complex weights and buffers in double precision, too."""
    build, inputs = MODELS[name]
    torch.manual_seed(0)
    model, inputs = moved(build()).to(dtype), [x.to(dtype) for x in inputs]
    model.save_pretrained(tmp_path / "a" / "model")
    found = type(model).from_pretrained(tmp_path / "a" / "model")
    assert not found.training
    assert {x.dtype for x in found.buffers()} == {x.dtype for x in model.buffers()}
    pairs = zip(model.parameters(), found.parameters(), strict=True)
    assert all(p.requires_grad == q.requires_grad for p, q in pairs)
    with torch.no_grad():
        assert torch.equal(found(*inputs), model(*inputs))


LEFT = CKBOptions(Network(2, nodes="left"), boundary=("neumann", "robin"))
OPTIONS = {
    "walls": (
        CHONNNetwork2d,
        {
            "boundary": ["neumann", (Dirichlet(1.0), Robin(torch.tensor(2.0), value=-1))],
            "inner": Neumann(flux=0.5),
            "lengths": torch.tensor([3.0, 2.0]),
            "nodes": ((0.5, 0.25), (0, 1)),
        },
    ),
    "a film that conducts all": (CHONNNetwork2d, {"boundary": Robin(math.inf)}),
    "a block's": (chonn_ops.CNOUNet, {"n_layers": 1, "latent": 4, "ckb": LEFT}),
    "another path": (
        chonn_ops.CHONNFNO2d,
        {"num_channels": 1, "modes1": 2, "modes2": 2, "padding": 3, "box": [(0, 3), (0, 2)]},
    ),
    "stages": (chonn_ops.CNOUNet, {"n_layers": 1, "latent": 4, "stages": ("lift",)}),
}


@pytest.mark.parametrize("case", OPTIONS)
def test_options_come_back(case, tmp_path):
    kind, options = OPTIONS[case]
    model = moved(kind(**options))
    model.save_pretrained(tmp_path)
    found = kind.from_pretrained(tmp_path)
    assert str(found) == str(model)
    if case == "another path":
        inputs = (torch.rand(1, 8, 8, 10), 2 * coordinates(8, 8)[:1])
    else:
        inputs = (torch.rand(1, 1, 8, 16) + 0.1,)
    with torch.no_grad():
        assert torch.equal(found(*inputs), model(*inputs))


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))])
def test_copies_can_be_saved(copied, tmp_path):
    model = CHONNNetwork2d(boundary=("neumann", Dirichlet(1.0)))
    copied(model).save_pretrained(tmp_path)
    assert str(CHONNNetwork2d.from_pretrained(tmp_path)) == str(model)


def test_defaults_are_in_the_card(tmp_path):
    """So that a file means the same when a default is another one."""
    chonn_ops.CHONNUNet1d(1, lengths=2).save_pretrained(tmp_path)
    options = {"in_channels": 1, "out_channels": 1, "init_features": 32, "lengths": 2, "ckb": None}
    options |= {"boundary": "robin", "inner": "robin", "nodes": "centres"}
    assert json.loads((tmp_path / "model.json").read_text()) == {
        "model": "CHONNUNet1d",
        "options": {**options, "stages": ["encoder4", "bottleneck", "decoder4"]},
        "parameters": sum(p.numel() for p in chonn_ops.CHONNUNet1d(1).parameters()),
    }


def test_names_of_walls_are_any(tmp_path):
    walls = {"ckb": Dirichlet(1.0), "inlet": "robin", "condition": Neumann()}
    CHONNNetwork2d(boundary=walls).save_pretrained(tmp_path)
    card = json.loads((tmp_path / "model.json").read_text())
    assert card["options"]["boundary"]["ckb"]["value"] == 1.0
    found = CHONNNetwork2d.from_pretrained(tmp_path).head.stated()["boundary"]
    assert list(found) == list(walls)
    assert (found["ckb"].value, found["inlet"]) == (1.0, "robin")


def test_a_users_own_class(tmp_path):
    class Mine(CHONNNetwork2d):
        def __init__(self, size, **options):
            super().__init__(1, 1, width=size, **options)

    Mine(4, lengths=2.0).save_pretrained(tmp_path)
    found = Mine.from_pretrained(tmp_path)
    assert found.lengths == 2.0
    assert found.width == 4


class Mine(Condition):
    """A condition that files do not know."""


REFUSED = {
    "a trunk": (
        lambda: CHONNNetwork2d(width=3, trunk=nn.Linear(1, 3)),
        "trunk: expected None, as files hold no modules of your own; torch.save",
    ),
    "a condition of ones own": (
        lambda: CHONNNetwork2d(boundary=Mine()),
        r"condition: expected one of \('Neumann', .*got 'Mine'",
    ),
    "values along a wall": (
        lambda: CHONNNetwork2d(boundary=Dirichlet(torch.ones(1, 1, 8, 1))),
        "value: expected a real number or a Tensor, got",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_stored(case, tmp_path):
    build, message = REFUSED[case]
    with pytest.raises(ValueError, match=message):
        build().save_pretrained(tmp_path / "model")
    assert not (tmp_path / "model").exists()
    model = build()
    model.load_state_dict(model.state_dict())


def test_a_model_that_was_changed_is_refused(tmp_path):
    longer, wider = CHONNNetwork2d(width=4), CHONNNetwork2d(width=4)
    longer.lengths = (2.0, 1.0)
    wider.trunk[0] = nn.Linear(1, 7)
    for model, message in ((longer, "lengths="), (wider, "size mismatch for trunk")):
        with pytest.raises(ValueError, match=f"its options and weights make again.*{message}"):
            model.save_pretrained(tmp_path / "model")


def test_nothing_is_replaced_silently(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    first, second = moved(CHONNNetwork2d()), moved(CHONNNetwork2d(depth=1))
    first.save_pretrained(tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(FileExistsError, match=r"model\.json .*force=True"):
        second.save_pretrained(tmp_path)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    second.save_pretrained(tmp_path, force=True)
    assert set(before) == {path.name for path in tmp_path.iterdir()}
    assert len(CHONNNetwork2d.from_pretrained(tmp_path).trunk) == 2
    assert (tmp_path / "notes.txt").read_text() == "mine"


def test_damaged_files(tmp_path):
    CHONNNetwork2d().save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="expected weights of CHONNNetwork1d, got CHONNNetwork2d"):
        chonn_ops.CHONNNetwork1d.from_pretrained(tmp_path)
    for name in (tmp_path / "elsewhere", "../darcy"):
        with pytest.raises(ValueError, match=r"name: expected one of .* or a folder with model\."):
            CHONNNetwork2d.from_pretrained(name)
    for name in ("model.safetensors", "model.json"):
        file = tmp_path / name
        file.write_bytes(file.read_bytes()[:40])
        with pytest.raises(ValueError, match="expected the files of a model"):
            CHONNNetwork2d.from_pretrained(tmp_path)


def stored(model):
    """Its state dict out of a file."""
    file = io.BytesIO()
    torch.save(model.state_dict(), file)
    file.seek(0)
    return torch.load(file, weights_only=True)


LEFT, WALLS = Network(2, nodes="left"), ("neumann", (Dirichlet(1.0), Dirichlet(0.0)))
IN_OUT, OUT_IN = (dict.fromkeys(x, "robin") for x in (("inlet", "outlet"), ("outlet", "inlet")))
OTHERS = {
    "lengths": (CHONNNetwork2d, {}, {"lengths": (3, 2)}),
    "lengths of a U-Net": (chonn_ops.CHONNUNet2d, {}, {"lengths": 2}),
    "boundary": (CHONNNetwork2d, {"boundary": "dirichlet"}, {"boundary": "neumann"}),
    "padding": (partial(chonn_ops.CHONNFNO1d, 1, 2), {}, {"padding": 0}),
    "inner": (CHONNNetwork2d, {"inner": "neumann"}, {"inner": "dirichlet"}),
    "nodes": (CHONNNetwork2d, {}, {"nodes": "left"}),
    **{
        f"boundary, {what}": (CHONNNetwork2d, {"boundary": one}, {"boundary": other})
        for what, one, other in (
            ("its value", Dirichlet(1.0), Dirichlet(0.0)),
            ("its axes", WALLS, WALLS[::-1]),
            ("in words", ("neumann", "robin"), ("robin", "neumann")),
        )
    },
    "walls, their order": (CHONNNetwork2d, {"boundary": IN_OUT}, {"boundary": OUT_IN}),
    **{
        name: (partial(chonn_ops.CNOUNet, n_layers=1), {"ckb": one}, {"ckb": other})
        for name, one, other in (
            ("nodes of a cell", CKBOptions(Network(2)), CKBOptions(LEFT)),
            ("boundary of a cell", *(CKBOptions(boundary=x) for x in ("neumann", "dirichlet"))),
            ("boundary of a scan", CKBOptions("scan"), CKBOptions("scan", boundary="dirichlet")),
        )
    },
}


@pytest.mark.parametrize("case", OTHERS)
def test_weights_for_other_options_are_refused(case):
    """All keys match, and the function is another one: off by 1.09 on a rectangle."""
    kind, options, others = OTHERS[case]
    model, other = kind(**options), kind(**others)
    kind(**options).load_state_dict(stored(model))
    name = case.split()[0].strip(",")
    with pytest.raises(RuntimeError, match=rf"Unexpected key.*{name}=.*, the model has "):
        other.load_state_dict(stored(model))
    found = other.load_state_dict(stored(model), strict=False)
    assert any(f"{name}=" in key for key in found.unexpected_keys)
    other.load_state_dict(dict(stored(model)))  # parameters alone


def test_spellings_of_the_same_options_are_the_same():
    pairs = [
        (CHONNNetwork2d, {"boundary": "neumann", "lengths": (2, 3)}, {"lengths": [2.0, 3.0]}),
        (CHONNNetwork2d, {"boundary": Dirichlet()}, {"boundary": ("dirichlet", "dirichlet")}),
        (CHONNNetwork2d, {"nodes": "left"}, {"nodes": [(0, 1), (0.0, 1.0)]}),
    ]
    pairs[0][2]["boundary"] = ["neumann", (Neumann(0.0), "neumann")]
    for kind, options, others in pairs:
        kind(**others).load_state_dict(stored(kind(**options)))
