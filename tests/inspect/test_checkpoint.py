"""Models of the hosts' checkpoints, and files that are none."""

import argparse
import json
import os

import pytest
import torch
from checkpoints import darcy_file, pdebench, timm

from chonn_ops import (
    CHONNFNO1d,
    CHONNNetwork1d,
    CHONNNetwork2d,
    CHONNStep1d,
    CHONNUNet1d,
    CHONNUNet2d,
    CNOUNet,
)
from chonn_ops.inspect import load_checkpoint, read_samples, write_page
from chonn_ops.models import pretrained

pytest.importorskip("h5py")


def same_weights(a, b):
    first, second = a.state_dict(), b.state_dict()
    return first.keys() == second.keys() and all(torch.equal(first[k], second[k]) for k in first)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("chonn_network", {}),
        *((name, {}) for name in ("chonn_unet", "chonn_fno")),
        *((name, {"cell": "scan", "expand": 2}) for name in ("chonn_unet", "chonn_fno")),
    ],
)
def test_of_pdebench(tmp_path, name, options):
    path = pdebench(tmp_path, name, **options)
    trained = load_checkpoint(path)
    assert trained.title == f"{name} (PDEBench)"
    assert {**trained.options, **options} == trained.options
    assert not trained.model.training
    samples = read_samples(darcy_file(tmp_path))
    write_page(trained, samples, tmp_path / "out", checkpoint="c", data="d")
    numbers = json.loads((tmp_path / "out/inspection.json").read_text())["circuits"]
    assert bool(numbers["networks"]) == (not options)
    assert bool(numbers["scans"]) == bool(options)


def test_of_pdebench_without_our_runner(tmp_path):
    path = pdebench(tmp_path, "chonn_fno", described=False)
    with pytest.raises(ValueError, match=r"expected a description of the model, .* got none"):
        load_checkpoint(path)


@pytest.mark.thorough
@pytest.mark.parametrize("cell", ["scan", "network"])
def test_of_neuraloperator(tmp_path, cell):
    models = pytest.importorskip("neuralop.models")
    options = {"cell": cell, **({"num_networks": 2} if cell == "network" else {})}
    mixer = {"spectral_mixer": "ckb", "spectral_mixer_kwargs": options}
    model = models.FNO((4, 4), 1, 1, 8, **mixer)
    model.save_checkpoint(tmp_path / "ckpt", "model")
    trained = load_checkpoint(tmp_path / "ckpt")
    assert trained.title == "FNO (neuraloperator)"
    x = torch.rand(2, 1, 16, 16)
    torch.save({"x": x[:, 0] > 0.5, "y": x[:, 0]}, tmp_path / "darcy.pt")
    samples = read_samples(tmp_path / "darcy.pt")
    write_page(trained, samples, tmp_path / "out", checkpoint="c", data="d")
    with torch.no_grad():
        assert torch.equal(trained.model(x), model.eval()(x))
    models.FNO((4, 4), 1, 1, 8).save_checkpoint(tmp_path / "plain", "model")
    with pytest.raises(ValueError, match=r"expected a model with cells .* got FNO"):
        load_checkpoint(tmp_path / "plain")


def test_network_of_neuraloperator(tmp_path):
    config = pytest.importorskip("neuralop.models.base_model")
    model = config.BaseModel._models["chonn_network"](1, 1, width=6, depth=1)
    model.save_checkpoint(tmp_path, "best_model")
    trained = load_checkpoint(tmp_path)
    assert trained.model.model.head.nodes == "left"
    assert same_weights(trained.model.model, model.model)


@pytest.mark.thorough
def test_of_timm(tmp_path):
    models = pytest.importorskip("timm")
    image = pytest.importorskip("PIL.Image")
    model = models.create_model("test_chonn", num_classes=5)
    folder = tmp_path / "pictures"
    folder.mkdir()
    for i in range(2):
        image.new("RGB", (50, 40), (90 * i, 10, 200)).save(folder / f"{i}.png")
    trained = load_checkpoint(timm(tmp_path, model, "test_chonn"))
    assert trained.title == "test_chonn (timm)"
    samples = read_samples(folder, image_transform=trained.image_transform)
    assert samples.fields.shape == (2, 1, 3, 96, 96)
    write_page(trained, samples, tmp_path / "out", checkpoint="c", data="d")
    torch.save(model.state_dict(), tmp_path / "bare.pth")
    fields = load_checkpoint(tmp_path / "bare.pth", name="test_chonn")
    assert same_weights(fields.model, model)
    with pytest.raises(ValueError, match=r"expected 3 channels|expected samples that the model"):
        write_page(fields, read_samples(darcy_file(tmp_path)), tmp_path, checkpoint="", data="")


def test_pictures_are_those_of_timms_training(tmp_path):
    models = pytest.importorskip("timm")
    image = pytest.importorskip("PIL.Image")
    image.new("RGB", (50, 40), (255, 0, 51)).save(tmp_path / "picture.png")
    model = models.create_model("test_chonn", num_classes=5)
    given = {"img_size": 64, "mean": [0.0], "std": [0.5]}
    trained = load_checkpoint(timm(tmp_path, model, "test_chonn", **given))
    samples = read_samples(tmp_path / "picture.png", image_transform=trained.image_transform)
    assert samples.fields.shape == (1, 1, 3, 64, 64)
    assert samples.fields[0, 0, :, 32, 32].tolist() == pytest.approx([2, 0, 0.4])


@pytest.mark.parametrize("settings", ["Namespace", "dict", "none"])
def test_a_foreign_model_of_timm_is_called_one(tmp_path, settings):
    """Its weights need not fit what timm builds under the name."""
    models = pytest.importorskip("timm")
    given = {"model": "resnet10t", "model_kwargs": {}}
    args = {"Namespace": {"args": argparse.Namespace(**given)}, "dict": {"args": given}}
    state = models.create_model("resnet10t", num_classes=7).state_dict()
    content = {"arch": "resnet10t", "state_dict": state, **args.get(settings, {})}
    torch.save(content, tmp_path / "a.pth.tar")
    with pytest.raises(ValueError, match=r"cells of this package, got resnet10t \(timm\) without"):
        load_checkpoint(tmp_path / "a.pth.tar")


def test_settings_of_timm_as_a_dictionary(tmp_path):
    models = pytest.importorskip("timm")
    model = models.create_model("test_chonn", num_classes=5, drop_path_rate=0.25)
    args = {"model": "test_chonn", "model_kwargs": {"drop_path_rate": 0.25}}
    content = {"arch": "test_chonn", "state_dict": model.state_dict(), "args": args}
    torch.save(content, tmp_path / "ours.pth.tar")
    trained = load_checkpoint(tmp_path / "ours.pth.tar")
    assert trained.options["drop_path_rate"] == 0.25
    assert same_weights(trained.model, model)
    for wrong in ([1, 2], {"model_kwargs": [1]}, "lr=0.1"):
        torch.save({**content, "args": wrong}, tmp_path / "wrong.pth.tar")
        with pytest.raises(ValueError, match="settings as args, a Namespace or a dictionary"):
            load_checkpoint(tmp_path / "wrong.pth.tar")
    torch.save({**content, "state_dict": [1]}, tmp_path / "list.pth.tar")
    with pytest.raises(ValueError, match="expected weights by name, got list"):
        load_checkpoint(tmp_path / "list.pth.tar")


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_weights_that_are_not_finite(tmp_path, value):
    state = CHONNNetwork2d(width=6).state_dict()
    name = next(key for key in state if key.endswith("weight"))
    state[name].view(-1)[1] = value
    torch.save(state, tmp_path / "w.pt")
    found = rf"expected finite weights, got NaN or infinity in 1 of {len(state)} tensors, .* {name}"
    with pytest.raises(ValueError, match=found):
        load_checkpoint(tmp_path / "w.pt", name="CHONNNetwork2d", options={"width": 6})


def test_state_dicts(tmp_path):
    network = CHONNNetwork1d(1, 1, width=6, nodes="left")
    torch.save(network.state_dict(), tmp_path / "line.pt")
    options = {"in_channels": 1, "out_channels": 1, "width": 6, "nodes": "left"}
    trained = load_checkpoint(tmp_path / "line.pt", name="CHONNNetwork1d", options=options)
    assert same_weights(trained.model, network)
    # A card beside the weights says the same.
    card = {"model": "CHONNNetwork1d", "options": {"width": 6, "nodes": "left"}}
    (tmp_path / "line.json").write_text(json.dumps(card))
    assert same_weights(load_checkpoint(tmp_path / "line.pt").model, network)
    unet = CHONNUNet2d(1, 1, init_features=4)
    torch.save({"state_dict": unet.state_dict()}, tmp_path / "unet.pt")
    with pytest.raises(ValueError, match=r"neither a card unet.json .* pass --model NAME"):
        load_checkpoint(tmp_path / "unet.pt")
    options = {"in_channels": 1, "init_features": 4}
    trained = load_checkpoint(tmp_path / "unet.pt", name="CHONNUNet2d", options=options)
    assert same_weights(trained.model, unet)
    with pytest.raises(ValueError, match=r"weights do not match CHONNUNet2d: .*size mismatch"):
        load_checkpoint(tmp_path / "unet.pt", name="CHONNUNet2d", options={"init_features": 8})
    with pytest.raises(ValueError, match=r"CHONNUNet2d cannot be built: .*unexpected keyword"):
        load_checkpoint(tmp_path / "unet.pt", name="CHONNUNet2d", options={"depth": 8})


@pytest.mark.parametrize(
    ("build", "options", "in_channels"),
    [
        (CHONNStep1d, {"channels": 3, "width": 4, "depth": 1}, 3),
        (CHONNFNO1d, {"num_channels": 1, "modes": 2, "width": 4, "initial_step": 3}, 3),
        (CNOUNet, {"n_layers": 1, "n_res": 0, "n_res_neck": 0, "channel_multiplier": 2}, 1),
        (CHONNUNet1d, {"init_features": 1}, 3),
    ],
)
def test_state_dicts_of_all_models(tmp_path, build, options, in_channels):
    model = build(**options)
    torch.save(model.state_dict(), tmp_path / "weights.pt")
    trained = load_checkpoint(tmp_path / "weights.pt", name=build.__name__, options=options)
    assert same_weights(trained.model, model)
    assert (trained.in_channels, trained.coordinates) == (in_channels, build is CHONNFNO1d)


def test_a_registered_reader(tmp_path, monkeypatch):
    """A package of its own, with metadata on the path, as pip installs it."""
    info = tmp_path / "other-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: other\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[chonn_ops.checkpoints]\nother = other:read\n")
    (tmp_path / "other.py").write_text(
        "import chonn_ops\n"
        "from chonn_ops.inspect import TrainedModel\n"
        "def read(path, content):\n"
        "    if 'other' in content:\n"
        "        model = chonn_ops.CHONNUNet1d(1, 1, init_features=content['other'])\n"
        "        return TrainedModel(model, path.name, {'features': content['other']})\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    torch.save({"other": 4}, tmp_path / "mine.pt")
    trained = load_checkpoint(tmp_path / "mine.pt")
    assert (trained.title, trained.options) == ("mine.pt", {"features": 4})
    assert not trained.model.training
    torch.save({"something": 4}, tmp_path / "no.pt")
    with pytest.raises(ValueError, match="got a dictionary of something"):
        load_checkpoint(tmp_path / "no.pt")


def test_the_weights_in_the_package():
    pytest.importorskip("safetensors")
    trained = load_checkpoint(pretrained.FOLDER / "darcy-small.safetensors")
    assert same_weights(trained.model, CHONNNetwork2d.from_pretrained("darcy-small"))


class Evil:
    def __reduce__(self):
        return (os.mkdir, (os.environ["EVIL"],))


def test_code_in_a_pickle_is_not_executed(tmp_path, monkeypatch):
    monkeypatch.setenv("EVIL", str(tmp_path / "ran"))
    torch.save({"model_state_dict": {}, "epoch": Evil()}, tmp_path / "evil.pt")
    with pytest.raises(ValueError, match=r"a pickle that runs (posix|nt).mkdir; it was not loaded"):
        load_checkpoint(tmp_path / "evil.pt")
    with pytest.raises(ValueError, match="expected tensors, got a damaged or different file"):
        read_samples(tmp_path / "evil.pt")
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("name", "content", "error", "message"),
    [
        ("none.pt", None, FileNotFoundError, "no such file"),
        ("", None, ValueError, r"expected one file \*_state_dict.pt .* got none"),
        ("text.pt", "not weights", ValueError, "got a damaged or different file"),
        ("text.safetensors", "not weights", ValueError, "got a damaged or different file"),
        ("list.pt", [1, 2], ValueError, "expected a dictionary, got list"),
        ("one.pt", {"a": 1}, ValueError, "a checkpoint of PDEBench, .* got a dictionary of a"),
    ],
)
def test_files_that_are_no_checkpoints(tmp_path, name, content, error, message):
    path = tmp_path / name
    if isinstance(content, str):
        path.write_text(content)
    elif content:
        torch.save(content, path)
    with pytest.raises(error, match=message):
        load_checkpoint(path)


def test_names_that_a_checkpoint_of_pdebench_does_not_take(tmp_path):
    path = pdebench(tmp_path, "chonn_network")
    with pytest.raises(ValueError, match="expected no model and no options, as the checkpoint has"):
        load_checkpoint(path, name="CHONNNetwork2d")
    content = torch.load(path, weights_only=True)
    content["model"]["name"] = "FNO"
    torch.save(content, path)
    message = r"one entry point in the group pdebench.models, got 'FNO'"
    with pytest.raises(ValueError, match=message):
        load_checkpoint(path)


def test_options_are_checked_as_everywhere(tmp_path):
    torch.save(CHONNUNet2d(1, 1, init_features=1).state_dict(), tmp_path / "w.pt")
    with pytest.raises(ValueError, match="nodes: expected one of"):
        load_checkpoint(tmp_path / "w.pt", name="CHONNUNet2d", options={"ckb.nodes": "middle"})
    with pytest.raises(ValueError, match=r"CHONNNetwork2d cannot be built: .*'ckb'"):
        load_checkpoint(tmp_path / "w.pt", name="CHONNNetwork2d", options={"ckb.order": 1})
