"""Order-defined benchmark: targets against closed forms, and the signals."""

import numpy as np
import pytest

from chonn_lab.problems import order1d


@pytest.mark.parametrize("mode", [0, 1, 7, 63])
def test_single_mode_closed_form(mode):
    s = np.arange(256) / 256
    x = np.cos(2 * np.pi * mode * s + 0.3)
    for order, y in enumerate(order1d.targets(x), start=1):
        # -d_ss cos(ks) = k^2 cos(ks) with the angular k.
        expected = x / (1 + 0.08**2 * (2 * np.pi * mode) ** 2) ** order
        np.testing.assert_allclose(y, expected, atol=1e-14)


def test_input_statistics():
    x = order1d.draw_signals(3000, seed=0)
    power = (np.abs(np.fft.rfft(x) / 256) ** 2).mean(0) * 2
    # Pulses add to both bands, their power falling off with the wavenumber.
    assert power[1:5].sum() == pytest.approx(1, rel=0.25)
    assert power[5:65].sum() == pytest.approx(0.25, rel=0.4)
    assert power[60:65].sum() == pytest.approx(5 / 240, rel=0.1)
    assert power[80:].sum() < 1e-3
    excess = x - x.mean(1, keepdims=True)
    assert ((excess**4).mean() / (excess**2).mean() ** 2) > 3


def test_the_file_has_these_signals_and_targets(tmp_path):
    path = order1d.generate(tmp_path / "data", 5, 3, 2)
    for seed, split in enumerate(order1d.SIZES, start=42):
        x, _ = order1d.read(path, split, 1)
        np.testing.assert_array_equal(x, order1d.draw_signals(len(x), seed).astype("f4"))
        for order in order1d.ORDERS:
            _, y = order1d.read(path, split, order)
            np.testing.assert_allclose(y, order1d.targets(x)[:, order - 1], atol=1e-6)
    for wrong in (("val", 1), ("train", 0)):
        with pytest.raises(ValueError, match="expected one of"):
            order1d.read(path, *wrong)
