"""Admittances of edges, time-harmonic waves and absorbing layers."""

import itertools
import math
import warnings

import pytest
import torch

from chonn_ops import (
    absorbing_layer,
    edge_admittance,
    edge_conductance,
    helmholtz_network,
    kirchhoff_network,
)

KIND = {"dtype": torch.float64}


def fields(*shape, seed=0, least=0.5):
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(shape, generator=generator, **KIND) + least


def test_a_resistor_is_a_conductance():
    resistance = fields(2, 5, 4, 3)
    mask = torch.ones(5, 4, dtype=torch.bool)
    mask[2, 1] = False
    for boundary, periodic in (("neumann", False), (("periodic", "dirichlet"), (True, False))):
        found = edge_admittance(
            resistance, 0.0, None, 2.0, (0.1, 0.2), mask=mask, periodic=periodic
        )
        real = edge_conductance(1 / resistance, (0.1, 0.2), mask=mask, boundary=boundary)
        for y, g in zip(found, real, strict=True):
            torch.testing.assert_close(y, g.to(y.dtype))


def test_impedances_in_series():
    R, L, C = (fields(1, 6, 2, seed=seed) for seed in range(3))
    omega, h = 1.7, 0.3
    (y,) = edge_admittance(R, L, C, omega, h)
    z = h * (R - 1j * omega * L + 1j / (omega * C))
    torch.testing.assert_close(1 / y[:, :-1], (z[:, :-1] + z[:, 1:]) / 2)
    assert (y[:, -1] == 0).all()
    assert (y.real >= 0).all()


def test_resonant_circuit():
    """A coil from a driven node to a capacitor at ground: the current divider of 1 H and 1 F."""
    zero = torch.zeros(1, 2, 1, **KIND)
    source, leak = zero.clone(), zero.to(torch.complex128)
    source[0, 0] = 1.0
    for omega in (0.5, 2.0):
        edges = edge_admittance(zero, 1.0, None, omega)
        leak = torch.complex(zero, -omega * torch.tensor([0.0, 1.0], **KIND).reshape(1, 2, 1))
        v = kirchhoff_network(source.to(leak.dtype), edges, leak, backend="reference")
        impedance = -1j * omega + 1j / omega
        assert v[0, 0, 0].item() == pytest.approx(impedance, rel=1e-9)


@pytest.mark.parametrize("boundary", ["neumann", "dirichlet", "periodic"])
def test_second_order_convergence(boundary):
    """u = exp(i x y) times a mode of the boundary, in a medium that varies."""
    errors = []
    for n in (16, 32, 64):
        x = (torch.arange(n, **KIND) + 0.5) / n
        x, y = torch.meshgrid(x, x, indexing="ij")
        x, y = x.clone().requires_grad_(), y.clone().requires_grad_()
        wave = 2 * math.pi if boundary == "periodic" else math.pi
        mode = torch.sin if boundary == "dirichlet" else torch.cos
        k = 1 + 0.3 * torch.cos(2 * math.pi * x) * torch.cos(2 * math.pi * y)
        u = [mode(wave * x) * mode(2 * wave * y), mode(2 * wave * x) * mode(wave * y)]
        minus = []
        for part in u:
            total = 0.0
            for z in (x, y):
                (slope,) = torch.autograd.grad(part.sum(), z, create_graph=True)
                total = total - torch.autograd.grad((k * slope).sum(), z, create_graph=True)[0]
            minus.append(total.detach())
        u, c, d, omega = torch.complex(*u).detach(), 1.5, 0.2, 3.0
        f = torch.complex(*minus) - omega**2 * c * u - 1j * omega * d * u

        def as_field(z):
            return z.detach()[None, ..., None]

        found = helmholtz_network(
            as_field(f), as_field(k), c, d, omega, 1 / n, boundary=boundary, backend="reference"
        )
        errors.append((found[0, ..., 0] - u).abs().max().item())
    orders = [math.log2(a / b) for a, b in itertools.pairwise(errors)]
    assert min(orders) > 1.7, (errors, orders)


def test_obstacles_are_not_entered():
    mask = torch.ones(12, 12, dtype=torch.bool)
    mask[4:8, 4:8] = False
    k = fields(1, 12, 12, 1)
    u = helmholtz_network(k, k, 1.0, 0.1, 9.0, 1 / 12, mask=mask, backend="reference")[0, ..., 0]
    assert (u[~mask] == 0).all()
    changed = torch.where(mask[None, ..., None], k, 7.0)
    again = helmholtz_network(k, changed, 1.0, 0.1, 9.0, 1 / 12, mask=mask, backend="reference")
    torch.testing.assert_close(again[0, ..., 0], u)


def test_digits_of_numbers_and_of_mixed_dtypes():
    """Numbers, and fields beside a float32 conductivity, were rounded to float32."""
    k, c, f = (fields(1, 9, 8, 1, seed=seed) for seed in range(3))
    k = k.float().double()
    same = torch.full_like(k, 1.3)
    u = helmholtz_network(f, k, c, same, 2.0, 0.3)
    for given in ((k, 1.3), (k.float(), 1.3), (k.float(), same)):
        v = helmholtz_network(f, given[0], c, given[1], 2.0, 0.3)
        assert v.dtype == torch.complex128
        assert (u - v).abs().max() < 1e-12 * u.abs().max()
    y, z = edge_admittance(k, 1.3, 0.7, 2.0)[0], edge_admittance(k, same, same - 0.6, 2.0)[0]
    assert (y - z).abs().max() < 1e-14 * z.abs().max()
    layers = absorbing_layer(k, 1.3, 1.0, 0.3), absorbing_layer(k, same, 1.0, 0.3)
    torch.testing.assert_close(*layers, rtol=1e-14, atol=0)


def test_several_sources_and_masks_of_samples():
    mask = torch.ones(2, 5, 4, 1, dtype=torch.bool)
    mask[0, 1, 1], mask[1, 3, 2] = False, False
    k, f = fields(2, 5, 4, 1), fields(2, 2, 5, 4, 1, seed=1)
    u = helmholtz_network(f, k, 1.0, 0.1, 1.0, mask=mask)
    for i in range(2):
        one = helmholtz_network(f[:, i], k, 1.0, 0.1, 1.0, mask=mask)
        torch.testing.assert_close(u[:, i], one)


def test_transforms_and_compilers():
    k, c = fields(1, 5, 4, 1), fields(1, 5, 4, 1, seed=1)

    def admittance(r, l, omega=1.3):  # noqa: E741
        return edge_admittance(r, l, 2.0, omega, 0.5)[0]

    both = torch.func.vmap(admittance)(torch.stack([k, 2 * k]), torch.stack([c, 3 * c]))
    torch.testing.assert_close(both[1], admittance(2 * k, 3 * c))
    compiled = torch.compile(admittance, backend="eager", fullgraph=True)
    for omega in (1.3, 2.0, 2.5):
        torch.testing.assert_close(compiled(k, c, omega), admittance(k, c, omega))
    mixed = admittance(k.float(), c)  # in the widest of the dtypes
    torch.testing.assert_close(mixed, admittance(k.float().double(), c))


def reflection(angle, thickness=0.0, cells=16):
    """Modulus of the wave that comes back from the ends of a strip, over that of the wave that
    meets them at an angle to their normal; the wavelength is 1."""
    h, omega, mode, n = 1 / cells, 2 * math.pi, 4 if angle else 0, 10 * cells
    across = omega * math.sin(math.radians(angle))
    rows = round(mode * math.pi / across * cells) if angle else 1
    across = mode * math.pi / (rows * h)
    shape = torch.cos(across * (torch.arange(rows, **KIND) + 0.5) * h)
    source = torch.zeros(1, n, rows, 1, **KIND)
    source[0, n // 2, :, 0] = shape / h
    k, ends = torch.ones_like(source), ("matched", "neumann")
    loss = absorbing_layer(k, 1.0, thickness, h, boundary=ends) if thickness else 0.0
    u = helmholtz_network(source, k, 1.0, loss, omega, h, boundary=ends, backend="reference")
    line = (u[0, ..., 0] * shape).sum(1) / shape.square().sum()
    along = omega**2 - (2 - 2 * math.cos(across * h)) / h**2  # of the discrete Laplacian
    along = 2 / h * math.asin(h / 2 * math.sqrt(along))
    place = torch.arange(n // 2 + 2, n - 2 - round(thickness * cells))
    phase = torch.exp(1j * along * h * (place - n // 2).double())
    waves = torch.stack((phase, phase.conj()), 1)
    there, back = torch.linalg.lstsq(waves, line[place, None]).solution[:, 0].abs().tolist()
    return back / there


def test_matched_ends_absorb_waves_at_a_right_angle():
    assert reflection(0) < 1e-6


def test_an_absorbing_layer_takes_oblique_waves_too():
    assert reflection(60) > 0.2
    assert reflection(0, 2.0) < 0.01
    assert reflection(60, 2.0) < 0.05


def test_a_layer_is_at_matched_faces_only():
    k = fields(1, 20, 10, 1)
    d = absorbing_layer(k, 2.0, 0.25, 1 / 20, boundary=(("matched", "neumann"), "dirichlet"))
    assert (d[:, 5:] == 0).all()
    assert (d[:, :5] > 0).all()
    torch.testing.assert_close(d[0, :5, 3] / d[0, :5, 4], (k[0, :5, 3] / k[0, :5, 4]).sqrt())


def test_gradients():
    k, c, d = fields(1, 3, 4, 1), fields(1, 3, 4, 1, seed=1), fields(1, 3, 4, 1, seed=2)
    f = torch.complex(fields(1, 3, 4, 1, seed=3), fields(1, 3, 4, 1, seed=4))
    arguments = [x.requires_grad_() for x in (f, k, c, d)]

    def solve(*given):
        return helmholtz_network(*given, 2.0, 0.5, boundary="matched")

    assert torch.autograd.gradcheck(solve, arguments)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"omega": 0.0}, "omega: expected a finite number > 0, got 0.0"),
        ({"omega": "1"}, "omega: expected a finite number > 0, got '1'"),
        ({"omega": 1j}, "omega: expected a finite number > 0, got 1j"),
        (
            {"source": torch.ones(1, 4, 5, 1), "mask": torch.ones(4, 4, dtype=torch.bool)},
            r"source: expected shape \(B, \*grid, C\)",
        ),
        ({"capacity": -1.0}, "capacity: expected >= 0 everywhere, got minimum -1"),
        ({"loss": torch.ones(3)}, r"loss: expected a number, or a shape that expands to"),
        ({"loss": None}, "loss: expected a number or a Tensor, got None"),
        ({"loss": "0.1"}, "loss: expected a number or a Tensor, got '0.1'"),
        (
            {"conductivity": -torch.ones(1, 4, 4, 1)},
            "conductivity: expected >= 0 everywhere, got minimum -1",
        ),
        ({"boundary": "robin"}, "boundary: expected one of"),
        ({"spacing": 0.0}, "spacing: expected a number > 0"),
        ({"spacing": None}, "spacing: expected a number > 0"),
        ({"conductivity": torch.ones(3, 3)}, "conductivity: expected shape"),
    ],
)
def test_errors(change, message):
    field = torch.ones(1, 4, 4, 1)
    good = {"source": field, "conductivity": field, "capacity": 1.0, "loss": 0.1, "omega": 1.0}
    with pytest.raises(ValueError, match=message):
        helmholtz_network(**{**good, **change})


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0.0, 1.0, None, 1.0), "one Tensor at least"),
        ((torch.zeros(1, 3, 1), 0.0, None, 1.0), "an impedance at every edge"),
        ((torch.zeros(1, 3, 1), 1.0, 1.0, 1.0), "an impedance at every edge"),
        ((torch.zeros(1, 3, 1), -1.0, None, 1.0), "inductance: expected >= 0 everywhere"),
        ((torch.zeros(1, 3, 1), 1.0, 0.0, 1.0), "capacitance: expected > 0 everywhere"),
        ((torch.ones(1, 3, 1), torch.ones(1, 4, 1), None, 1.0), "shapes that expand to one"),
        ((torch.ones(1, 3, 1), 1.0, 1.0, math.inf), "omega: expected a finite number > 0"),
    ],
)
def test_errors_of_admittances(arguments, message):
    with pytest.raises(ValueError, match=message):
        edge_admittance(*arguments)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"conductivity": -torch.ones(1, 4, 1)}, "conductivity: expected >= 0 everywhere"),
        ({"thickness": 0.0}, "thickness: expected a finite number > 0"),
        ({"thickness": "1"}, "thickness: expected a finite number > 0, got '1'"),
        ({"attenuation": 1.0}, "attenuation: expected above 0 and below 1"),
    ],
)
def test_errors_of_layers(change, message):
    good = {"conductivity": torch.ones(1, 4, 1), "capacity": 1.0, "thickness": 1.0}
    with pytest.raises(ValueError, match=message):
        absorbing_layer(**{**good, **change})


def _medium(grid=(6, 9), c=1.0):
    return torch.ones(1, *grid, 1, **KIND), torch.full((1, *grid, 1), c, **KIND)


@pytest.mark.parametrize("axis", [0, 1])
def test_few_nodes_a_wave_are_named(axis):
    """In the slowest node, along the coarsest axis; one warning a call."""
    k, c = _medium()
    source, steps = torch.ones_like(k), [0.1, 0.1]
    steps[axis] = 0.2
    c[0, 2, 3] = 4.0  # waves at 1 / 2 there: 2 pi / (2 omega) long
    for nodes, few in ((3.9, True), (4.1, False)):
        omega = 2 * math.pi / (2 * nodes * 0.2)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            helmholtz_network(source, k, c, 0.5, omega, steps)
        messages = [str(warning.message) for warning in caught]
        assert len(messages) == few
        assert not few or f"has 3.9 nodes along axis {axis} (spacing 0.2)" in messages[0]
        assert not few or caught[0].filename == __file__


def test_where_no_waves_are_nodes_do_not_count():
    k, c = _medium()
    k[0, 2, 3] = 0.0
    c[0, 4, 4] = 100.0
    mask = torch.ones(6, 9, dtype=torch.bool)
    mask[4, 4] = False
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        helmholtz_network(torch.ones_like(k), k, c, 0.5, 2 * math.pi / (4.1 * 0.1), 0.1, mask=mask)
    with pytest.warns(UserWarning, match="has 0.41 nodes"):
        helmholtz_network(torch.ones_like(k), k, c, 0.5, 2 * math.pi / (4.1 * 0.1), 0.1)
