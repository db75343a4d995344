"""The order benchmark: data, the paper's three errors, bad settings."""

import numpy as np
import torch
from running import smoke

from chonn_lab.experiments.order1d import scores
from chonn_lab.problems import order1d


def test_each_target_reads_its_own_signals(tmp_path):
    order1d.generate(tmp_path / order1d.DEFAULT_NAME, 40, 4, 4)
    for target in (1, 4):
        splits = smoke("order1d", f"target={target}").load(tmp_path)
        x, y = splits.tests["test"].tensors
        assert [len(split) for split in (splits.train, splits.validation, x)] == [16, 4, 4]
        signals = order1d.draw_signals(4, seed=44)
        np.testing.assert_allclose(x[:, 0], signals, atol=1e-5)
        np.testing.assert_allclose(y[:, 0], order1d.targets(signals)[:, target - 1], atol=1e-6)


def test_scores_of_a_single_wave():
    """One mode against another: errors of known size, the derivative's by its wavenumber."""
    s = 2 * torch.pi * torch.arange(256, dtype=torch.float64) / 256
    target = torch.cos(3 * s).expand(2, 1, 256)
    prediction = target + torch.stack([0.1 * torch.sin(3 * s), 0.1 * torch.sin(6 * s)])[:, None]
    found = scores(prediction, target)
    steps = 2 * torch.sin(torch.pi * torch.tensor([3.0, 6.0], dtype=torch.float64) / 256)
    expected = torch.full((2,), 0.1, dtype=torch.float64)
    torch.testing.assert_close(found["point"], expected)
    torch.testing.assert_close(found["spectral"], expected)
    torch.testing.assert_close(found["derivative"], 0.1 * steps / steps[0])


def test_spectral_error_is_the_pointwise_one_but_for_the_mean_and_the_highest_mode():
    target, error = torch.randn(2, 8, 1, 256, dtype=torch.float64)
    found = scores(target + error, target)
    whole = torch.fft.fft(error).norm(dim=-1) / torch.fft.fft(target).norm(dim=-1)
    torch.testing.assert_close(found["point"], whole[:, 0])  # Parseval
    assert not torch.allclose(found["spectral"], found["point"], rtol=1e-6)

    def without_ends(y):
        spectrum = torch.fft.rfft(y)
        spectrum[..., 0] = spectrum[..., -1] = 0
        return torch.fft.irfft(spectrum)

    found = scores(without_ends(target + error), without_ends(target))
    torch.testing.assert_close(found["spectral"], found["point"])
