"""Shallow water: conservation, an independent solver, PDEBench's own generator and radii."""

import importlib.util
import logging.config

import h5py
import numpy as np
import pytest
from commands import python

from chonn_lab.problems import shallow_water

missing = importlib.util.find_spec("clawpack") is None
needs_pyclaw = pytest.mark.skipif(missing, reason="PyClaw missing: make setup-pyclaw")

PDEBENCH_PROGRAM = """
import sys
from omegaconf import OmegaConf
from pdebench.data_gen.gen_radial_dam_break import simulator
sim = dict(T_end=1.0, n_time_steps=100, xdim=32, ydim=32, gravity=1.0, dam_radius=0.5,
           inner_height=2.0, x_left=-2.5, x_right=2.5, y_bottom=-2.5, y_top=2.5, seed="???")
for seed in (0, 5):
    simulator(OmegaConf.create(dict(sim=sim, output_path=sys.argv[1], upload=False)), seed)
"""


@needs_pyclaw
def test_equals_pdebenchs_own_generator_frame_by_frame(tmp_path):
    pytest.importorskip("pdebench.data_gen.src.utils")
    theirs = tmp_path / "theirs.h5"
    python(PDEBENCH_PROGRAM, theirs, cwd=tmp_path, timeout=120)
    shallow_water.generate(tmp_path / "ours.h5", 6, resolution=32, progress=False)
    with h5py.File(theirs) as a, h5py.File(tmp_path / "ours.h5") as b:
        assert set(a) == {"0000", "0005"} < set(b)
        for name in a:
            assert sorted(a[name]) == sorted(b[name]) == ["data", "grid"]
            for part in ("data", "grid/x", "grid/y", "grid/t"):
                assert a[name][part].dtype == b[name][part].dtype
                np.testing.assert_array_equal(a[name][part], b[name][part], strict=True)
            config = a[name].attrs["config"].split("sim:\n")[1].split("\n")[:12]
            assert sorted(config) == sorted(b[name].attrs["config"].split("\n")[1:13])


@needs_pyclaw
def test_pyclaw_leaves_logging_and_the_working_folder_alone(tmp_path):
    program = (
        "import logging; from chonn_lab.problems import shallow_water\n"
        "shallow_water.simulate(0.5, 8, 1)\n"
        "print(logging.getLogger().handlers, logging.getLogger().level == logging.WARNING)"
    )
    assert python(program, cwd=tmp_path).stdout == "[] True\n"
    assert list(tmp_path.iterdir()) == []
    assert logging.config.fileConfig.__module__ == "logging.config"


@needs_pyclaw
@pytest.mark.parametrize("radius", [0.3, 0.7])
def test_mass_is_conserved(radius):
    h, _, _ = shallow_water.simulate(radius, 64)
    mass = h.sum((1, 2))
    np.testing.assert_allclose(mass, mass[0], rtol=1e-6)
    # The wave is under way all the same.
    assert np.abs(h[-1] - h[0]).max() > 0.3


def radial_solution(radius, r, end, n=3000, r_max=2.5):
    """h(r, end) by first-order local Lax-Friedrichs for ``q_t + f_r = source / r``."""
    dr = r_max / n
    centres = (np.arange(n) + 0.5) * dr
    q = np.stack([np.where(centres <= radius, 2.0, 1.0), np.zeros(n)])
    t = 0.0
    while t < end:
        # Even depth and odd velocity about r = 0; nothing arrives at the other end.
        q_all = np.concatenate([q[:, :1] * [[1], [-1]], q, q[:, -1:]], axis=1)
        h, m = q_all
        flux = np.stack([m, m**2 / h + h**2 / 2])
        speed = np.abs(m / h) + np.sqrt(h)
        dt = min(0.45 * dr / speed.max(), end - t)
        at_face = np.maximum(speed[1:], speed[:-1])
        between = (flux[:, 1:] + flux[:, :-1] - at_face * (q_all[:, 1:] - q_all[:, :-1])) / 2
        source = -np.stack([q[1], q[1] ** 2 / q[0]]) / centres
        q = q - dt * (between[:, 1:] - between[:, :-1]) / dr + dt * source
        t += dt
    return np.interp(r, centres, q[0])


@needs_pyclaw
def test_agrees_with_a_one_dimensional_solver_of_the_radial_equations():
    for end in (0.5, 1.0):
        errors = []
        for n in (64, 128):
            h, x, y = shallow_water.simulate(0.5, n, n_steps=2)
            np.testing.assert_allclose(x, (np.arange(n) + 0.5) * 5 / n - 2.5)
            np.testing.assert_array_equal(x, y)
            expected = radial_solution(0.5, np.hypot(x[:, None], y), end)
            difference = np.abs(h[round(2 * end)] - expected).mean()
            errors.append(difference / np.abs(expected - 1).mean())
        # First order in the mean, as for any shock; the circle is a staircase besides.
        assert errors[1] < 0.08
        assert errors[1] < errors[0] / 1.5
