"""What the scan computes on lines in reverse, and on rings that hardly decay."""

from __future__ import annotations

import pytest
import torch
from scan_cases import EACH_BUT_EMULATED, STREAMS, make_case, rms_ratio

from chonn_ops import kirchhoff_scan

EACH_WAY = pytest.mark.parametrize("reverse", [False, True], ids=["forth", "back"])


def _map_streams(case, change):
    return case | {name: change(case[name]) for name in STREAMS}


@EACH_BUT_EMULATED
@pytest.mark.parametrize("boundary", ["matched", "periodic"])
def test_reverse_equals_flip(backend, boundary):
    case = make_case(2, 70, 18, 5, dtype=torch.float64)
    if boundary == "periodic":
        del case["initial_state"]
    options = {"return_state": True, "backend": backend, "boundary": boundary}
    y, state = kirchhoff_scan(**case, reverse=True, **options)
    flipped, same_state = kirchhoff_scan(**_map_streams(case, lambda x: x.flip(1)), **options)
    torch.testing.assert_close(y, flipped.flip(1))
    torch.testing.assert_close(state, same_state)


@EACH_BUT_EMULATED
def test_ring_that_hardly_decays_averages(backend):
    """As decay -> 0 the state tends to mean(delta b u) / (decay mean(delta)), not to 0 / 0."""
    case = make_case(1, 30, 4, 1, dtype=torch.float64)
    del case["initial_state"]
    case["decay"] = torch.full((4, 1), 1e-9, dtype=torch.float64)
    _, state = kirchhoff_scan(**case, boundary="periodic", return_state=True, backend=backend)
    delta = case["delta"]
    mean = (delta * case["b"] * case["u"]).sum(1) / delta.sum(1)
    assert rms_ratio(state[..., 0] * 1e-9, mean) < 1e-6
