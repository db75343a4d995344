"""Models of the hosts' checkpoints, and files that are none."""

import json
import os

import pytest
import torch
from checkpoints import darcy_file, pdebench, timm

import chonn_ops
from chonn_ops import CHONNNetwork1d, CHONNNetwork2d, CHONNUNet2d, CKBOptions, inspection
from chonn_ops.models import pretrained

pytest.importorskip("h5py")
FRAME = (1, 1, 16, 16)


def same_weights(a, b):
    first, second = a.state_dict(), b.state_dict()
    return first.keys() == second.keys() and all(torch.equal(first[k], second[k]) for k in first)


@pytest.mark.parametrize("name", ["chonn_network", "chonn_unet", "chonn_fno"])
@pytest.mark.parametrize("cell", ["network", "scan"])
def test_of_pdebench(tmp_path, name, cell):
    if (name, cell) == ("chonn_network", "scan"):
        return
    options = {"cell": cell, "expand": 2, **({"networks": 2} if cell == "network" else {})}
    path = pdebench(tmp_path, name, **options)
    trained = inspection.load(path)
    assert trained.title == f"{name} (PDEBench)"
    assert trained.options["expand"] == 2
    assert not trained.model.training
    samples = inspection.read(darcy_file(tmp_path))
    inspection.write(trained, samples, tmp_path / "out", checkpoint="c", data="d")
    numbers = json.loads((tmp_path / "out/inspection.json").read_text())["circuits"]
    assert bool(numbers["networks"]) == (cell == "network")
    assert bool(numbers["scans"]) == (cell == "scan")


def test_of_pdebench_before_checkpoints_said_what_they_are(tmp_path):
    path = pdebench(tmp_path, "chonn_fno", described=False, order=3)
    with pytest.raises(ValueError, match=r"expected what the model is .* got neither; evaluate"):
        inspection.load(path)
    args = {"num_channels": 1, "width": 6, "initial_step": 1, "modes": 4}
    report = {"model": "chonn_fno", "spacing": [0.1, 0.1], "args": args}
    beside = tmp_path / "darcy_chonn_fno_metrics.json"
    beside.write_text(json.dumps({**report, "options": {"cell": "network", "order": 3}}))
    assert inspection.load(path).coordinates
    beside.write_text("{}")
    with pytest.raises(ValueError, match=r"_metrics.json: expected a table of PDEBench's plugin"):
        inspection.load(path)


@pytest.mark.parametrize("cell", ["scan", "network"])
def test_of_neuraloperator(tmp_path, cell):
    models = pytest.importorskip("neuralop.models")
    options = {"cell": cell, **({"networks": 2} if cell == "network" else {})}
    mixer = {"spectral_mixer": "ckb", "spectral_mixer_kwargs": options}
    model = models.FNO((4, 4), 1, 1, 8, **mixer)
    model.save_checkpoint(tmp_path / "ckpt", "model")
    trained = inspection.load(tmp_path / "ckpt")
    assert trained.title == "FNO (neuraloperator)"
    x = torch.rand(2, 1, 16, 16)
    torch.save({"x": x[:, 0] > 0.5, "y": x[:, 0]}, tmp_path / "darcy.pt")
    samples = inspection.read(tmp_path / "darcy.pt")
    inspection.write(trained, samples, tmp_path / "out", checkpoint="c", data="d")
    with torch.no_grad():
        assert torch.equal(trained.model(x), model.eval()(x))
    models.FNO((4, 4), 1, 1, 8).save_checkpoint(tmp_path / "plain", "model")
    with pytest.raises(ValueError, match=r"expected a model with cells .* got FNO"):
        inspection.load(tmp_path / "plain")


def test_network_of_neuraloperator(tmp_path):
    config = pytest.importorskip("neuralop.models.base_model")
    model = config.BaseModel._models["chonn_network"](1, 1, width=6, depth=1, ckb={"networks": 3})
    model.save_checkpoint(tmp_path, "best_model")
    trained = inspection.load(tmp_path)
    assert trained.model.model.nodes == "left"
    assert same_weights(trained.model.model, model.model)


def test_of_timm(tmp_path):
    models = pytest.importorskip("timm")
    image = pytest.importorskip("PIL.Image")
    model = models.create_model("test_chonn", num_classes=5)
    folder = tmp_path / "pictures"
    folder.mkdir()
    for i in range(2):
        image.new("RGB", (50, 40), (90 * i, 10, 200)).save(folder / f"{i}.png")
    trained = inspection.load(timm(tmp_path, model, "test_chonn"))
    assert trained.title == "test_chonn (timm)"
    samples = inspection._samples.read_pictures(folder, trained.images)
    assert samples.fields.shape == (2, 1, 3, 96, 96)
    inspection.write(trained, samples, tmp_path / "out", checkpoint="c", data="d")
    torch.save(model.state_dict(), tmp_path / "bare.pth")
    assert same_weights(inspection.load(tmp_path / "bare.pth").model, model)
    fields = inspection.load(tmp_path / "bare.pth")
    with pytest.raises(ValueError, match=r"expected 3 channels|expected samples that the model"):
        inspection.write(
            fields, inspection.read(darcy_file(tmp_path)), tmp_path / "o", checkpoint="", data=""
        )


OPTIONS = [
    {},
    {"width": 10, "depth": 1, "mlp_ratio": 3, "ckb": {"networks": 5, "order": 2, "expand": 2}},
    {"coordinates": False, "ckb": {"order": 3, "stage_input": "inject", "kernel_size": 3}},
    {"patch": 2, "ckb": {"order": 2, "topology": "parallel", "termination": "open"}},
    {"out_channels": 2, "ckb": {"selective": False, "norm": "group"}},
]


@pytest.mark.parametrize("options", OPTIONS)
def test_network_weights_alone(tmp_path, options):
    ckb = CKBOptions(cell="network", **options.get("ckb", {}))
    torch.manual_seed(0)
    model = CHONNNetwork2d(**{**options, "ckb": ckb}).eval()
    torch.save(model.state_dict(), tmp_path / "weights.pt")
    trained = inspection.load(tmp_path / "weights.pt", FRAME)
    x = torch.rand(2, 1, 16, 16)
    with torch.no_grad():
        assert torch.equal(trained.model(x), model(x))
    assert "ckb.nodes" in trained.notes[0]


def test_weights_alone_on_a_line_and_other_models(tmp_path):
    model = CHONNNetwork1d(1, 1, width=6)
    torch.save(model.state_dict(), tmp_path / "line.pt")
    assert same_weights(inspection.load(tmp_path / "line.pt", (1, 1, 32)).model, model)
    unet = CHONNUNet2d(1, 1, init_features=4)
    torch.save(unet.state_dict(), tmp_path / "unet.pt")
    with pytest.raises(ValueError, match=r"do not tell which model .* give --model NAME"):
        inspection.load(tmp_path / "unet.pt", FRAME)
    options = {"in_channels": 1, "init_features": 4}
    trained = inspection.load(tmp_path / "unet.pt", FRAME, name="CHONNUNet2d", options=options)
    assert same_weights(trained.model, unet)
    with pytest.raises(ValueError, match="weights do not fit CHONNUNet2d: size mismatch"):
        inspection.load(tmp_path / "unet.pt", name="CHONNUNet2d", options={"init_features": 8})
    with pytest.raises(ValueError, match=r"CHONNUNet2d cannot be built: .*unexpected keyword"):
        inspection.load(tmp_path / "unet.pt", name="CHONNUNet2d", options={"depth": 8})


def test_the_weights_in_the_package():
    pytest.importorskip("safetensors")
    trained = inspection.load(pretrained.FOLDER / "darcy-small.safetensors", FRAME)
    assert trained.notes == ()  # the card beside them says it all
    assert same_weights(trained.model, CHONNNetwork2d.from_pretrained("darcy-small"))


class Evil:
    def __reduce__(self):
        return (os.mkdir, (os.environ["EVIL"],))


def test_a_pickle_is_never_run(tmp_path, monkeypatch):
    monkeypatch.setenv("EVIL", str(tmp_path / "ran"))
    torch.save({"model_state_dict": {}, "epoch": Evil()}, tmp_path / "evil.pt")
    with pytest.raises(ValueError, match=r"a pickle that runs (posix|nt).mkdir; it was not loaded"):
        inspection.load(tmp_path / "evil.pt")
    with pytest.raises(ValueError, match="expected tensors, got a damaged or another file"):
        inspection.read(tmp_path / "evil.pt")
    assert not (tmp_path / "ran").exists()


def test_files_that_are_no_checkpoints(tmp_path):
    with pytest.raises(FileNotFoundError, match="no such file"):
        inspection.load(tmp_path / "none.pt")
    with pytest.raises(ValueError, match=r"expected one file \*_state_dict.pt .* got none"):
        inspection.load(tmp_path)
    for name in ("text.pt", "text.safetensors"):
        (tmp_path / name).write_text("not weights")
        with pytest.raises(
            ValueError, match="expected a checkpoint, got a damaged file or another"
        ):
            inspection.load(tmp_path / name)
    torch.save([1, 2], tmp_path / "list.pt")
    with pytest.raises(ValueError, match="expected a dictionary, got list"):
        inspection.load(tmp_path / "list.pt")
    torch.save({"a": 1}, tmp_path / "one.pt")
    with pytest.raises(
        ValueError, match=r"expected a checkpoint of PDEBench, .* got a dictionary of a"
    ):
        inspection.load(tmp_path / "one.pt")
    path = pdebench(tmp_path, "chonn_network")
    with pytest.raises(ValueError, match="expected no model and no options, the checkpoint has"):
        inspection.load(path, name="CHONNNetwork2d")
    content = torch.load(path, weights_only=True)
    content["model"]["name"] = "FNO"
    torch.save(content, path)
    with pytest.raises(
        ValueError, match=r"one entry point of the group pdebench.models, got 'FNO'"
    ):
        inspection.load(path)


def test_options_are_checked_as_everywhere(tmp_path):
    torch.save(chonn_ops.CHONNNetwork2d().state_dict(), tmp_path / "w.pt")
    with pytest.raises(ValueError, match="nodes: expected one of"):
        inspection.load(tmp_path / "w.pt", FRAME, options={"ckb.nodes": "middle"})
