"""The file of bands that ``++args.bands`` asks for."""

import json

import h5py
import numpy as np
import pytest
import torch

from chonn_plugins.pdebench.bands import Collector, half_widths, level_of
from chonn_plugins.pdebench.contract import JobError
from chonn_plugins.pdebench.data import Layout


def layout(validation: int) -> Layout:
    return Layout(9 * validation, validation, (16, 16), 2, 1, (1 / 16, 1 / 16), [], [])


def errors(n: int, seed: int = 0) -> torch.Tensor:
    """Absolute errors of two channels whose units differ by a factor of 1,000."""
    generator = torch.Generator().manual_seed(seed)
    size = 0.5 + torch.rand(n, 1, 1, 1, generator=generator, dtype=torch.float64)
    noise = torch.randn(n, 6, 3, 2, generator=generator, dtype=torch.float64)
    return (size * noise).abs() * torch.tensor([1.0, 1000.0])


def test_coverage_and_units_of_channels():
    found = errors(900)
    half = half_widths(found, 0.9)
    inside = (found <= half).double()
    assert abs(inside.mean() - 0.9) < 0.01
    assert (abs(inside.mean(dim=(0, 1, 2)) - 0.9) < 0.02).all()
    widths = half.mean(dim=(0, 1, 2))
    assert widths[1] / widths[0] == pytest.approx(1000, rel=0.1)


def test_a_sample_has_no_say_in_its_band():
    found = errors(30)
    other = found.clone()
    other[4] *= 100
    assert torch.equal(half_widths(found, 0.9)[4], half_widths(other, 0.9)[4])
    assert not torch.equal(half_widths(found, 0.9), half_widths(other, 0.9))


@pytest.mark.parametrize("level", [0, 1, "high", True, 90])
def test_levels_that_are_refused(make_job, level):
    with pytest.raises(JobError, match=r"args\.bands: expected a number above 0 and below 1"):
        level_of(make_job("darcy", bands=level), layout(100))


def test_too_few_samples(make_job):
    assert level_of(make_job("darcy", bands=0.9), layout(27)) == 0.9
    with pytest.raises(JobError, match=r"at least 27 samples in the validation split .* got 26"):
        level_of(make_job("darcy", bands=0.9), layout(26))
    assert level_of(make_job("darcy"), layout(2)) is None


def test_the_file_has_predicted_frames_only(tmp_path):
    generator = torch.Generator().manual_seed(0)
    target = torch.randn(9, 5, 4, 1, generator=generator)
    pred = target + 0.1 * torch.randn(target.shape, generator=generator)
    collector = Collector(0.5, initial_step=2)
    for batch in ((pred[:4], target[:4]), (pred[4:], target[4:])):
        collector.update(*batch)
    summary = collector.write(tmp_path / "model_bands.hdf5")
    with h5py.File(tmp_path / "model_bands.hdf5") as file:
        fields = {name: file[name][:] for name in file}
        assert file.attrs["level"] == 0.5
        assert file.attrs["first_frame"] == 2
        assert file.attrs["coverage"] == summary["coverage"]
    np.testing.assert_array_equal(fields["prediction"], pred[..., 2:, :])
    truth = target[..., 2:, :].numpy()
    inside = (fields["lower"] <= truth) & (truth <= fields["upper"])
    assert inside.mean() == pytest.approx(summary["coverage"])
    assert json.dumps(summary)


@pytest.mark.host
@pytest.mark.slow
def test_the_runner_writes_them(tmp_path, pdebench, data):
    """A file of 30 samples has three to validate with, which is enough for the level 0.5."""
    with h5py.File(data / "2D_Darcy.hdf5") as old, h5py.File(tmp_path / "more.hdf5", "w") as new:
        for name in old:
            fields = old[name][:]
            new[name] = fields if fields.ndim == 1 else np.concatenate((fields, fields[:10]))
    run = {"model_name": "chonn_network", "filename": "more.hdf5", "data_path": tmp_path}
    pdebench(tmp_path, "darcy", **run)
    pdebench(tmp_path, "darcy", **run, bands=0.5, if_training=False)
    (path,) = tmp_path.glob("*_bands.hdf5")
    with h5py.File(path) as file:
        assert file["lower"].shape == file["prediction"].shape == (3, 16, 16, 1, 1)
    (report,) = tmp_path.glob("*_metrics.json")
    found = json.loads(report.read_text())["bands"]
    assert found["file"] == path.name
    assert 0 < found["coverage"] <= 1
    assert "bands of level 0.5" in report.with_suffix(".txt").read_text()
