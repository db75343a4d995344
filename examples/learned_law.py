"""Learn the law by which tissue takes up oxygen, from noisy fields of its concentration.

The fields obey -laplace v + psi(v) = f with v = 0 at the walls. The true uptake is Michaelis and
Menten's, 100 v / (1 + v), and the data have a noise of 1 % of each field's largest value.
"""

import argparse

from chonn_plugins.openmp import sleep_while_waiting

sleep_while_waiting()  # before torch is imported

import torch
from torch import Tensor

from chonn_ops import NonlinearCircuit, diffusion, laws


def uptake(v: Tensor, k: Tensor) -> Tensor:
    return 100 * k * v / (1 + v.abs())


def solve(law: laws.Law, f: Tensor) -> Tensor:
    """v of sources, both (B, n, n, 1)."""
    circuit = diffusion(torch.ones_like(f), 1 / f.shape[1], boundary="dirichlet", absorption=1.0)
    return NonlinearCircuit(circuit, leaks=law).solve(f)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--resolution", type=int, default=32)
    x = torch.linspace(0, 1, parser.parse_args(arguments).resolution, dtype=torch.float64)
    torch.manual_seed(0)
    at = torch.rand(2, 16, 1, 1, dtype=torch.float64)
    sources = 200 * torch.exp(-20 * ((x[:, None] - at[0]).square() + (x - at[1]).square()))
    f, new = sources[..., None].split(8)
    v = solve(uptake, f)
    measured = v + 0.01 * v.amax((1, 2, 3), keepdim=True) * torch.randn_like(v)
    law = laws.Monotone(scale=float(v.max())).double()
    optimizer = torch.optim.LBFGS(law.parameters(), max_iter=60, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        optimizer.zero_grad()
        error = (solve(law, f) - measured).square().sum() / measured.square().sum()
        error.backward()
        return error

    optimizer.step(loss)
    seen, one = torch.linspace(0, float(v.max()), 200, dtype=torch.float64), torch.ones(1)
    error = (law(seen, one) - uptake(seen, one)).abs().max() / uptake(seen, one).max()
    print(f"law: off by at most {error:.2%} up to v = {v.max():.2f}, beyond which nothing is seen")
    for factor in (1, 4):
        exact, found = (solve(x, factor * new) for x in (uptake, law))
        print(f"error for {factor} times new sources: {(found - exact).norm() / exact.norm():.2%}")


if __name__ == "__main__":
    main()
