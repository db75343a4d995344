"""Transfer functions: forms, responses, cancellations, passivity, and SciPy's."""

import numpy as np
import pytest
from circuit_cases import random_cascade
from scipy import signal

from chonn_ops.inspect import Cascade, DiscreteCell, RCCell, TransferFunction


def test_forms_agree():
    h = TransferFunction((-1 + 2j, -1 - 2j), (-3, -0.5, -0.5), 2.0)
    s = 1j * np.geomspace(0.01, 100, 9)
    polynomials = np.polyval(h.numerator, s) / np.polyval(h.denominator, s)
    np.testing.assert_allclose(h(s), polynomials, rtol=1e-12)
    np.testing.assert_allclose(h(s), signal.freqresp(h.to_scipy(), s.imag)[1], rtol=1e-12)
    again = TransferFunction.from_polynomials(h.numerator, h.denominator)
    np.testing.assert_allclose(again(s), h(s), rtol=1e-6)  # a double pole is rounded to two
    assert TransferFunction.from_scipy(h.to_scipy()) == h
    assert TransferFunction.from_scipy(signal.lti([1.0], [1.0, 2.0])).poles == (-2,)


@pytest.mark.parametrize("step", [None, 0.25])
def test_products_and_sums(step):
    a = TransferFunction((-0.4,), (0.5, -0.2), 1.5, step)
    b = TransferFunction((), (0.3,), -2.0, step)
    s = np.array([0.3 + 1j, 2j, 5.0])
    np.testing.assert_allclose((a * b)(s), a(s) * b(s))
    np.testing.assert_allclose((a + b)(s), a(s) + b(s))
    zero = b + TransferFunction((), (0.3,), 2.0, step)
    assert zero(1.0) == 0
    assert zero.effective_order() == 0


@pytest.mark.parametrize("stages", [1, 3])
def test_impulse_response_of_a_cascade(stages):
    cascade = random_cascade(stages)
    t = np.linspace(0, 5, 11)
    A, B, C, D = cascade.state_space()
    expected = signal.impulse((A, B, C, D), T=t)[1]
    np.testing.assert_allclose(cascade.transfer().impulse_response(t), expected, atol=1e-9)
    assert cascade.transfer().feedthrough == pytest.approx(D[0, 0])


def test_impulse_response_of_equal_stages_is_a_gamma_density():
    t = np.linspace(0, 9, 10)
    h = Cascade([RCCell(1.0, 1.0)] * 4).transfer()
    np.testing.assert_allclose(h.impulse_response(t), t**3 * np.exp(-t) / 6, atol=1e-12)


def test_discrete_impulse_response():
    h = TransferFunction((0.2,), (0.9, 0.5 + 0.3j, 0.5 - 0.3j), 1.3, 1.0)
    expected = signal.dimpulse(h.to_scipy(), n=30)[1][0][:, 0]
    np.testing.assert_allclose(h.impulse_response(30), expected, atol=1e-12)


def test_time_constants():
    assert TransferFunction((), (-2, -0.5 + 3j, -0.5 - 3j), 1.0).time_constants.tolist() == [
        0.5,
        2.0,
        2.0,
    ]
    cell = RCCell.from_rates(0.5, 1.0).zoh(0.1)
    assert cell.transfer().time_constants == pytest.approx([2.0])
    assert TransferFunction((), (1.0, 0.0), 1.0, 0.1).time_constants.tolist() == [np.inf, 0]


def test_cancellations_lower_the_order():
    """A stage whose zero is the pole of the stage before it: order 1 of 2."""
    first = RCCell.from_rates(2.0, 1.0)
    # zero at -(alpha + c beta / d) = -2
    second = RCCell.from_rates(1.0, 1.0, 0.5, 0.5)
    h = Cascade([first, second]).transfer()
    assert (len(h.poles), h.effective_order()) == (2, 1)
    assert h.cancelled(1e-9).poles == pytest.approx([-1])
    s = 1j * np.array([0.1, 1, 10])
    np.testing.assert_allclose(h.cancelled()(s), h(s), rtol=1e-12)
    near = Cascade([RCCell.from_rates(2.001, 1.0), second]).transfer()
    assert (near.effective_order(), near.effective_order(1e-2)) == (2, 1)


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize("discrete", [False, True])
def test_passivity_is_a_real_part_that_is_never_negative(seed, discrete):
    """Against a fine sweep of the frequency, away from the boundary."""
    cascade = random_cascade(1 + seed % 3, seed)
    h = cascade.zoh(0.2).transfer() if discrete else cascade.transfer()
    # Shifted so that half of the cases are passive.
    omega = np.linspace(0, np.pi, 4001) if discrete else np.geomspace(1e-4, 1e4, 4001)
    shifted = TransferFunction((), (), 1.0, h.step)
    lowest = h.frequency_response(omega / (h.step or 1)).real.min()
    for shift, passive in ((-lowest + 0.01, True), (-lowest - 0.01, False)):
        shifted = h + TransferFunction((), (), shift, h.step)
        assert shifted.is_passive == passive


def test_two_stages_of_rc_are_not_passive():
    """Each turns the phase by a right angle: beyond the first the real part is negative."""
    cell = RCCell(1.0, 1.0)
    assert cell.is_passive
    cascade = Cascade([cell, cell])
    assert cascade.is_dissipative
    assert not cascade.is_passive
    assert not cascade.zoh(0.1).is_passive


def test_lossless_and_marginal():
    assert DiscreteCell(0.5, 0.0, 0.0, 0.0).is_passive  # H = 0
    assert RCCell(1.0, 1.0, c_o=-1.0, d_o=1.0).is_passive  # H(0) = 0, a resistor less a capacitor
    assert not TransferFunction((), (0,), 1.0).is_passive  # not stable


def test_bad_transfer_functions():
    with pytest.raises(ValueError, match=r"zeros: expected at most as many as poles \(1\), got 2"):
        TransferFunction((1, 2), (3,), 1.0)
    with pytest.raises(ValueError, match=r"poles: expected complex numbers in conjugate pairs"):
        TransferFunction((), (1j,), 1.0)
    with pytest.raises(ValueError, match=r"step: expected the same.* None and 0.5"):
        TransferFunction((), (), 1.0) * TransferFunction((), (), 1.0, 0.5)
    with pytest.raises(ValueError, match=r"denominator: .*not 0"):
        TransferFunction.from_polynomials([1.0], [0.0])
    with pytest.raises(ValueError, match=r"one input and one output, got \(2, 1\)"):
        TransferFunction.from_scipy(
            signal.StateSpace(-np.eye(2), np.eye(2), np.ones((1, 2)), np.zeros((1, 2)))
        )
    with pytest.raises(ValueError, match=r"t: expected times >= 0"):
        TransferFunction((), (-1,), 1.0).impulse_response([-1.0])


def test_a_complex_pair_cancels_whole_or_not_at_all():
    near = TransferFunction((0.9 + 0.001j, 0.9 - 0.001j, 0.1), (0.9, 0.901, 0.5), 1.0, 1.0)
    assert near.cancelled(0.01).poles == (0.5,)
    lone = TransferFunction((0.9 + 0.001j, 0.9 - 0.001j), (0.9, 0.2), 1.0, 1.0)
    assert lone.cancelled(0.01) == lone
    both = TransferFunction((0.5 + 0.5j, 0.5 - 0.5j), (0.5 + 0.5j, 0.5 - 0.5j, 0.3), 2.0, 1.0)
    assert both.cancelled() == TransferFunction((), (0.3,), 2.0, 1.0)
