"""The command ``chonn inspect``, its page and its numbers."""

import json
import re
import sys
from collections import OrderedDict
from dataclasses import replace

import h5py
import numpy as np
import pytest
import torch
from checkpoints import darcy_file, pdebench

from chonn_ops import CHONNNetwork2d, CHONNNetwork3d, CKBOptions, CNOUNet, Network, cli, laws
from chonn_ops.inspect import load_checkpoint, read_samples, write_page

FILES = ("inspection.html", "inspection.json")


def inspect(folder, *arguments):
    return cli.main(["inspect", *map(str, arguments), "--output", str(folder / "out")])


@pytest.fixture(scope="module")
def given(tmp_path_factory):
    folder = tmp_path_factory.mktemp("given")
    torch.manual_seed(0)
    ckb = CKBOptions(Network(num_networks=3))
    model = CNOUNet(1, 1, 1, 0, 0, 4, 4, ckb=ckb, stages=("lift", "bottleneck"))
    model.save_pretrained(folder / "model")
    return folder / "model", darcy_file(folder)


def test_command(given, tmp_path, capsys):
    checkpoint, data = given
    assert inspect(tmp_path, checkpoint, "--data", data, "--samples", 2, "--start", 1) == 0
    first, second = (f"{tmp_path}/out/{name}" for name in FILES)
    assert capsys.readouterr().out == f"wrote {first} and {second}\n"
    numbers = json.loads((tmp_path / "out" / FILES[1]).read_text())
    assert numbers["samples"] == {"first": 1, "count": 2, "grid": [16, 16]}
    assert numbers["reference"] == "permeability nu"
    assert [len(cell["networks"]) for cell in numbers["learned_conductivity"]] == [3, 3]
    page = (tmp_path / "out" / FILES[0]).read_text()
    assert page.count("<figure>") == 3
    assert page.count("data:image/png;base64,") == 3 + 2 * 3  # input, target and output first
    assert not re.search(r"(src|href)=\"(?!data:)", page)  # nothing from elsewhere
    for words in ("Circuits of CNOUNet", "effective rank", "length scale", "Stages and gates"):
        assert words in page
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == list(FILES)


def test_the_page_of_learned_laws_is_their_curves_over_the_drops_seen(tmp_path):
    torch.manual_seed(0)
    drops, features = torch.randn(3, 5, 7), torch.randn(1, 4, 2, 1, 3)
    learned = torch.nn.ModuleDict(
        {
            "leaks": laws.Monotone(4, odd=False, scale=2.0),
            "edges": laws.Monotone(3, features=features),
        }
    )
    for parameter in learned.parameters():
        torch.nn.init.normal_(parameter)
    torch.save({"inner." + key: x for key, x in learned.state_dict().items()}, tmp_path / "laws.pt")
    torch.save(learned["leaks"].state_dict(), tmp_path / "law.pt")
    np.save(tmp_path / "drops.npy", drops.numpy())
    told = tmp_path / "laws.pt", "--data", tmp_path / "drops.npy"
    assert inspect(tmp_path, *told) == 0
    found = {x["name"]: x for x in json.loads((tmp_path / "out" / FILES[1]).read_text())["laws"]}
    assert sorted(found) == ["inner_edges", "inner_leaks"]
    for name, law in learned.items():
        x, low, middle, high = map(
            torch.tensor, (found["inner_" + name]["drop"], *found["inner_" + name]["current"])
        )
        assert (x[0], x[-1]) == (drops.min(), drops.max())
        for i in (0, 30, 100):
            y = law(x[i].expand(1, 4, 2, 1), torch.ones(1, 4, 2, 1)).detach().flatten()
            torch.testing.assert_close(low[i], y.min())
            torch.testing.assert_close(high[i], y.max())
            torch.testing.assert_close(middle[i], y.median())
    page = (tmp_path / "out" / FILES[0]).read_text()
    assert page.count("data:image/png;base64,") == page.count("<figure>") == 2
    assert "the law has seen nothing" in page
    assert inspect(tmp_path, tmp_path / "law.pt", *told[1:], "--force") == 0
    (alone,) = json.loads((tmp_path / "out" / FILES[1]).read_text())["laws"]
    assert alone == found["inner_leaks"] | {"name": "law"}


@pytest.mark.thorough
@pytest.mark.parametrize("options", [{}, {"cell": "scan"}], ids=["head", "scan"])
def test_the_page_fits_the_screen(tmp_path, look, options):
    """Names of files, models and blocks without a place to break."""
    name = "a_name_of_many_words_without_a_space_between_them" * 3
    trained = load_checkpoint(pdebench(tmp_path, "chonn_unet", **options))
    model = torch.nn.Sequential(OrderedDict([(name, trained.model)]))
    trained = replace(trained, model=model, title=name, options={name: name, "order": 2})
    samples = replace(read_samples(darcy_file(tmp_path)), reference_name=name)
    page, _ = write_page(trained, samples, tmp_path / "out", checkpoint=name, data=name)
    look(page)


@pytest.mark.parametrize("force", [(), pytest.param(("--force",), marks=pytest.mark.thorough)])
def test_files_are_replaced_on_request_only(given, tmp_path, capsys, force):
    (tmp_path / "out").mkdir()
    kept = tmp_path / "out" / FILES[1]
    kept.write_text("mine")
    assert inspect(tmp_path, given[0], "--data", given[1], *force) == (0 if force else 1)
    assert (kept.read_text() == "mine") == (not force)
    if not force:
        assert "output file exists" in capsys.readouterr().err
        assert list((tmp_path / "out").iterdir()) == [kept]


def test_data_that_do_not_fit(given, tmp_path, capsys):
    checkpoint, data = given
    cases = {
        "line.npy": (np.zeros((2, 16)), r"x: expected shape \(B, 1, H, W\)"),
        "channels.npy": (
            np.zeros((2, 3, 16, 16)),
            r"expected 1 channels, as the model takes, got 1 frames of 3",
        ),
        "nan.npy": (np.full((2, 16, 16), np.nan), "expected finite fields"),
        "complex.npy": (np.full((2, 16, 16), 1j), "expected real numbers, got torch.complex128"),
        "one.npy": (np.zeros(3), r"expected \(N, \*grid\)"),
    }
    for name, (array, message) in cases.items():
        np.save(tmp_path / name, array)
        assert inspect(tmp_path, checkpoint, "--data", tmp_path / name) == 1
        assert re.search(message, capsys.readouterr().err), name
    h5py.File(tmp_path / "other.hdf5", "w").close()
    for arguments, message in (
        (("--data", tmp_path / "other.hdf5"), "expected a layout of PDEBench"),
        (("--data", tmp_path / "none.hdf5"), "no such file"),
        (("--data", data, "--start", 3), "expected samples from number 3 on"),
        (("--data", data, "--sample", 3), "sample: expected 0 to 2, got 3"),
        (("--data", data, "--set", "width"), "expected NAME=VALUE"),
    ):
        assert inspect(tmp_path, checkpoint, *arguments) == 1
        assert message in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_numbers_that_overflow_are_named(given, tmp_path, capsys):
    np.save(tmp_path / "large.npy", np.full((2, 16, 16), 1e38, np.float32))
    assert inspect(tmp_path, given[0], "--data", tmp_path / "large.npy") == 1
    shown = capsys.readouterr().err
    assert re.search(r"large.npy: expected finite numbers of the model, got (nan|-?inf) for", shown)
    assert not (tmp_path / "out").exists()


def test_models_in_space_have_a_page(tmp_path):
    torch.save(CHONNNetwork3d(width=4, depth=1).state_dict(), tmp_path / "w.pt")
    np.save(tmp_path / "x.npy", np.random.default_rng(0).random((2, 1, 6, 6, 6)))
    given = ("--data", tmp_path / "x.npy", "--model", "CHONNNetwork3d", "--set", "width=4")
    assert inspect(tmp_path, tmp_path / "w.pt", *given, "--set", "depth=1") == 0
    assert "middle plane of the third axis" in (tmp_path / "out" / FILES[0]).read_text()


def test_a_model_of_one_circuit(tmp_path):
    """Its page has the law, and the walls in the unit of the output; beside the input is the
    target."""
    path = darcy_file(tmp_path)
    mask = np.ones((16, 16), bool)
    mask[6:9, 4:12] = False
    with h5py.File(path, "a") as file:
        file["mask"] = mask
        k = torch.tensor(file["nu"][:])[:, None]
    torch.manual_seed(0)
    model = CHONNNetwork2d(1, 1)
    inside = torch.from_numpy(mask)
    model.calibrate(k, 300 + k, mask=inside)
    torch.save(model.state_dict(), tmp_path / "w.pt")
    assert inspect(tmp_path, tmp_path / "w.pt", "--data", path, "--model", "CHONNNetwork2d") == 0
    (cell,) = json.loads((tmp_path / "out" / FILES[1]).read_text())["circuits"]["networks"]
    (circuit,) = cell["networks"]
    with torch.no_grad():  # nodes that do not exist have no potential
        inside = model(k, mask=inside)[..., inside]
    assert circuit["potential"][-1] == pytest.approx(inside.max().item(), rel=1e-5)
    assert [wall["wall"] for wall in circuit["walls"]][:2] == ["holes", "axis 0, low face"]
    assert all(290 < wall["value"] < 310 for wall in circuit["walls"])
    page = (tmp_path / "out" / FILES[0]).read_text()
    assert page.count("data:image/png;base64,") == 3 + 2 + 1  # the sample, the circuit, the law
    for words in ("Law of the medium", "holes", "distance behind the face", "mean of a face"):
        assert words in page


def test_without_matplotlib_the_message_names_the_extra(given, tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert inspect(tmp_path, given[0], "--data", given[1]) == 1
    assert "needs matplotlib: pip install '.[circuit]' in a clone" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_model_gets_the_frames_and_points_that_it_was_trained_on(tmp_path):
    """PDEBench's Darcy config trains on every second point, its advection on every fifth frame."""
    rng = np.random.default_rng(0)
    with h5py.File(tmp_path / "all.h5", "w") as file:
        data = rng.random((5, 16, 16, 1))
        file["0000/data"], centres = data, (np.arange(16) + 0.5) / 16
        file["0000/grid/x"] = file["0000/grid/y"] = centres
    with h5py.File(tmp_path / "some.h5", "w") as file:
        file["0000/data"] = data[::3, ::2, ::2]
        file["0000/grid/x"] = file["0000/grid/y"] = centres[::2]
    whole = load_checkpoint(pdebench(tmp_path, "chonn_fno", every_frame=3, every_point=2))
    whole = replace(whole, model=Latest(whole.model), in_channels=2)
    reduced = replace(whole, every_frame=1, every_point=1)
    pages = []
    for name, trained in (("all", whole), ("some", reduced)):
        samples = read_samples(tmp_path / f"{name}.h5")
        write_page(trained, samples, tmp_path / name, checkpoint="", data="")
        pages.append((tmp_path / name / FILES[1]).read_text())
    assert pages[0] == pages[1]
    assert json.loads(pages[0])["samples"]["grid"] == [8, 8]


class Latest(torch.nn.Module):
    """A model of one frame that is called with two, of which it takes the last."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, x, grid):
        return self.model(x[..., -1:], grid)
