"""neuraloperator's Darcy files in PDEBench's layout."""
# ruff: noqa: E402 - skipped before the imports where the extra is missing

import os
from pathlib import Path

import numpy as np
import pytest
import torch

h5py = pytest.importorskip("h5py")

from chonn_ops.problems.convert import convert


class Harmful:
    """Unpickling it would run code."""

    def __reduce__(self):
        return os.system, ("touch harmed",)


@pytest.fixture
def fields():
    generator = torch.Generator().manual_seed(0)
    return {
        "x": torch.rand(5, 8, 8, generator=generator) > 0.5,
        "y": torch.rand(5, 8, 8, generator=generator),
    }


def test_convert(tmp_path, fields):
    torch.save(fields, tmp_path / "in.pt")
    assert convert(tmp_path / "in.pt", tmp_path / "out.hdf5") == 5
    with h5py.File(tmp_path / "out.hdf5") as file:
        assert sorted(file) == ["nu", "tensor", "x-coordinate", "y-coordinate"]
        assert {file[name].dtype for name in file} == {np.dtype("f4")}
        np.testing.assert_array_equal(file["nu"], fields["x"].numpy())
        np.testing.assert_array_equal(file["tensor"], fields["y"][:, None].numpy())
        np.testing.assert_array_equal(file["x-coordinate"], np.arange(8) / 8)
        assert np.isnan(file.attrs["beta"])
        assert file.attrs["source"] == "converted from neuraloperator's in.pt"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["in.pt", "out.hdf5"]


def test_real_files(tmp_path):
    folder = os.environ.get("CHONN_DARCY_PT_DIR")
    if not folder:
        pytest.skip("CHONN_DARCY_PT_DIR is not set: no neuraloperator files")
    sources = sorted(Path(folder).glob("darcy_*.pt"))
    assert sources, f"no darcy_*.pt in {folder}"
    for source in sources:
        convert(source, tmp_path / source.name)
        with h5py.File(tmp_path / source.name) as file:
            nu, u = file["nu"][...], file["tensor"][:, 0]
        assert set(np.unique(nu)) == {0, 1}
        # The documented grid: the first row and column lie on the boundary, the last ones do not.
        assert np.abs(u[:, 0]).mean() < 0.1 * u[:, -1].mean()
        assert np.abs(u[:, :, 0]).mean() < 0.1 * u[:, :, -1].mean()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"y": None}, "expected 'y' to be a real tensor, got NoneType"),
        ({"x": torch.zeros(5, 8, 8, dtype=torch.complex64)}, "got torch.complex64"),
        ({"y": torch.zeros(5, 8, 9)}, r"shape \(N, R, R\), got \(5, 8, 8\) and \(5, 8, 9\)"),
        ({"x": torch.zeros(5, 1, 8, 8)}, r"got \(5, 1, 8, 8\) and \(5, 8, 8\)"),
        ({"x": torch.zeros(0, 8, 8), "y": torch.zeros(0, 8, 8)}, r"got \(0, 8, 8\)"),
    ],
    ids=["no-tensor", "complex", "shapes-differ", "wrong-ndim", "no-samples"],
)
def test_wrong_content(tmp_path, fields, change, message):
    torch.save(fields | change, tmp_path / "in.pt")
    with pytest.raises(ValueError, match=message):
        convert(tmp_path / "in.pt", tmp_path / "out.hdf5")
    assert not (tmp_path / "out.hdf5").exists()


@pytest.mark.parametrize(
    ("content", "found"),
    [({"x": torch.zeros(1)}, r"\['x'\]"), (torch.zeros(3), "Tensor")],
    ids=["missing-key", "no-dictionary"],
)
def test_wrong_container(tmp_path, content, found):
    torch.save(content, tmp_path / "in.pt")
    with pytest.raises(ValueError, match=rf"keys 'x' and 'y', got {found}"):
        convert(tmp_path / "in.pt", tmp_path / "out.hdf5")


@pytest.mark.parametrize("kind", ["empty", "garbage", "truncated", "code"])
def test_unreadable_file(tmp_path, fields, kind, monkeypatch):
    monkeypatch.chdir(tmp_path)
    source = tmp_path / "in.pt"
    torch.save(fields if kind != "code" else {"x": Harmful(), "y": 0}, source)
    if kind != "code":
        whole = source.read_bytes()
        cut = {"empty": b"", "garbage": b"not a tensor file", "truncated": whole[: len(whole) // 2]}
        source.write_bytes(cut[kind])
    with pytest.raises(ValueError, match=r"not a readable file of tensors: .*in\.pt"):
        convert(source, tmp_path / "out.hdf5")
    assert [p.name for p in tmp_path.iterdir()] == ["in.pt"]


@pytest.mark.parametrize("zipped", [True, False], ids=["zip", "legacy"])
def test_wherever_a_small_file_is_cut(tmp_path, fields, zipped):
    source = tmp_path / "in.pt"
    # In zip files below 64 kB PyTorch seeks before the start, in old ones it runs out of opcodes.
    many = {name: field.repeat(20, 2, 2) for name, field in fields.items()}
    torch.save(many, source, _use_new_zipfile_serialization=zipped)
    whole = source.read_bytes()
    assert len(whole) > 5000
    for size in (*range(50), *range(50, len(whole), len(whole) // 50)):
        source.write_bytes(whole[:size])
        with pytest.raises(ValueError, match=r"not a readable file of tensors: .*in\.pt"):
            convert(source, tmp_path / "out.hdf5")


def test_file_that_may_not_be_read(tmp_path, monkeypatch):
    source = tmp_path / "in.pt"
    source.write_text("secret")

    def load(*_, **__):
        raise PermissionError(13, "Permission denied", str(source))

    monkeypatch.setattr(torch, "load", load)
    with pytest.raises(PermissionError, match=r"Permission denied: .*in\.pt"):
        convert(source, tmp_path / "out.hdf5")


def test_missing_input_and_existing_output(tmp_path, fields):
    with pytest.raises(FileNotFoundError, match=r"no such file: .*in\.pt"):
        convert(tmp_path / "in.pt", tmp_path / "out.hdf5")
    torch.save(fields, tmp_path / "in.pt")
    (tmp_path / "out.hdf5").write_text("mine")
    with pytest.raises(FileExistsError, match="--force"):
        convert(tmp_path / "in.pt", tmp_path / "out.hdf5")
    assert (tmp_path / "out.hdf5").read_text() == "mine"
    assert convert(tmp_path / "in.pt", tmp_path / "out.hdf5", force=True) == 5
