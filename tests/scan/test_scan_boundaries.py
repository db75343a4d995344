"""What the scan computes: split lines, directions, boundaries."""

from __future__ import annotations

import pytest
import torch
from scan_cases import EACH_BUT_EMULATED, STREAMS, make_case, rms_ratio

from chonn_ops import kirchhoff_scan
from chonn_ops.scan import scan_field

EACH_WAY = pytest.mark.parametrize("reverse", [False, True], ids=["forth", "back"])


def _map_streams(case, change):
    return case | {name: change(case[name]) for name in STREAMS}


@EACH_BUT_EMULATED
@EACH_WAY
@pytest.mark.parametrize("cut", [1, 32, 50, 99])
def test_a_split_line_equals_the_whole(backend, reverse, cut):
    case = make_case(2, 100, 18, 5, dtype=torch.float64)
    options = {"reverse": reverse, "return_state": True, "backend": backend}
    y, state = kirchhoff_scan(**case, **options)
    parts = [_map_streams(case, lambda x: x[:, :cut]), _map_streams(case, lambda x: x[:, cut:])]
    outputs, carried = {}, case["initial_state"]
    for i in (1, 0) if reverse else (0, 1):
        outputs[i], carried = kirchhoff_scan(**(parts[i] | {"initial_state": carried}), **options)
    torch.testing.assert_close(torch.cat([outputs[0], outputs[1]], dim=1), y)
    torch.testing.assert_close(carried, state)


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
@EACH_WAY
def test_ring_equals_many_turns(backend, reverse):
    case = make_case(2, 12, 5, 3, dtype=torch.float64)
    del case["initial_state"]
    options = {"reverse": reverse, "return_state": True, "backend": backend}
    periodic, closed = kirchhoff_scan(**case, boundary="periodic", **options)
    state = None
    for _ in range(100):
        y, state = kirchhoff_scan(**case, initial_state=state, **options)
    torch.testing.assert_close(periodic, y)
    torch.testing.assert_close(closed, state)


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


def _twice(case, mirror_sign):
    """The line followed by its mirror image, with u of that sign."""
    signs = {"u": mirror_sign, "delta": 1, "b": 1, "c": 1}
    mirrored = {name: sign * case[name].flip(1) for name, sign in signs.items()}
    return case | {name: torch.cat([case[name], mirrored[name]], dim=1) for name in STREAMS}


@EACH_BUT_EMULATED
@pytest.mark.parametrize(("boundary", "sign"), [("neumann", 1), ("dirichlet", -1)])
def test_walls_equal_a_line_with_its_mirror_image(backend, boundary, sign):
    """The way back over a line is the way on over its image, seen with the image's sign."""
    case = make_case(2, (40,), 5, 3, torch.float64)
    there_and_on = kirchhoff_scan(**_twice(case, sign), backend=backend)
    forth, back = there_and_on[:, :40], sign * there_and_on[:, 40:].flip(1)
    y = scan_field(**case, directions="bidirectional", boundary=boundary, backend=backend)
    torch.testing.assert_close(y, (forth + back) / 2)
