"""Bands around means of an FNO's fields: its errors are a Gaussian field on a circuit.

Errors e of 128 fields that the FNO has not seen have the density |A|^(1/2) exp(-e A e / 2), where A
are the nodal equations of the circuit whose numbers make that likelihood, which is exact, largest.
Bands are the field's deviations, as often as 90 % of these errors need.
"""

from chonn_plugins.openmp import sleep_while_waiting

sleep_while_waiting()  # before torch is imported

import argparse

import torch
from neuralop.models import FNO

from chonn_ops import Circuit, Dirichlet, diffusion


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--resolution", type=int, default=32)
    n = parser.parse_args(arguments).resolution
    torch.manual_seed(0)
    smooth = diffusion(torch.ones(512, n, n, 1), 1 / n, absorption=200.0)
    x = smooth.solve(smooth.solve(torch.randn(512, n, n, 1)))
    x = x / x.std()  # -div(e^x grad u) = 1, u = 0 at the walls
    u = diffusion(x.exp(), 1 / n, boundary="dirichlet").solve(torch.ones_like(x))
    x, u = x.movedim(-1, 1), u.movedim(-1, 1) / u.std()
    fno = FNO((n // 3, n // 3), in_channels=1, out_channels=1, hidden_channels=16, n_layers=3)
    optimizer = torch.optim.Adam(fno.parameters(), 3e-3)
    for batch in torch.randint(256, (300, 16)):
        optimizer.zero_grad()
        (fno(x[batch]) - u[batch]).abs().mean().backward()
        optimizer.step()
    errors = (u - fno(x))[256:].detach().movedim(1, -1).double()[None]
    known, new = errors.chunk(2, 1)
    numbers = torch.tensor([3.0, 5.0, -3.0], dtype=torch.float64, requires_grad=True)
    fit = torch.optim.LBFGS([numbers], max_iter=60, line_search_fn="strong_wolfe")

    def circuit() -> Circuit:
        k, absorption, distance = numbers.exp()
        walls = Dirichlet(distance=distance)
        return diffusion(k.expand(1, n, n, 1), 1 / n, boundary=walls, absorption=absorption)

    def loss() -> torch.Tensor:
        fit.zero_grad()
        flows = zip(circuit().currents(known).edges, (2, 3), strict=True)
        power = [i * (known - known.roll(-1, axis)) for i, axis in flows]
        energy = sum(power, circuit().leak[:, None] * known**2).sum() / known.shape[1]
        value = (energy - circuit().factorize().logdet().sum()) / 2 / n**2
        value.backward()
        return value

    fit.step(loss)
    factors = circuit().factorize()
    drawn = factors.sample(torch.randn_like(new))
    for size in (1, n // 8, n // 2):
        at = torch.arange(n) // size
        blocks = torch.nn.functional.one_hot(at[:, None] * (n // size) + at).double() / size**2
        blocks = blocks.movedim(-1, 0)[None, ..., None]
        deviation = (blocks * factors.solve(n**2 * blocks)).sum((2, 3)).sqrt()  # (1, blocks, 1)
        mean = [torch.einsum("bkxyc,bsxyc->skc", blocks, e) for e in (known, new, drawn)]
        known_ratio, new_ratio, drawn_ratio = ((m / deviation).abs() for m in mean)
        width = known_ratio.quantile(0.9)
        print(
            f"means of {size} x {size} cells: {(new_ratio < width).double().mean():.1%} of new "
            f"errors within {width:.2f} deviations, {(drawn_ratio < 1.645).double().mean():.1%} of "
            "samples within 1.645"
        )


if __name__ == "__main__":
    main()
