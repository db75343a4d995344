"""Train one circuit on NumPy arrays: inputs (B, C, H, W) and outputs (B, C', H, W).

`arrays` stands for your data: a plate of 2 x 3 metres in random media, u = 1 on the left wall, 0 on
the right, insulated above and below. Of all this the model is told the size alone.

    pip install '.[circuit,pretrained]'
    python examples/your_arrays.py --output plate
"""

import argparse
from pathlib import Path

from chonn_plugins.openmp import sleep_while_waiting

sleep_while_waiting()  # before torch is imported

import torch
from matplotlib.figure import Figure

from chonn_ops import CHONNNetwork2d, Dirichlet, diffusion


def arrays(samples: int):
    noise = torch.nn.functional.interpolate(torch.randn(samples, 1, 6, 9), (64, 96), mode="bicubic")
    k, walls = torch.exp(1.2 * noise).movedim(1, -1), ("neumann", (Dirichlet(1.0), Dirichlet(0.0)))
    u = diffusion(k, (2 / 64, 3 / 96), boundary=walls).solve(torch.zeros_like(k))
    return k.movedim(-1, 1).numpy(), u.movedim(-1, 1).numpy()


def relative_l1(v: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return ((v - y).abs().sum((1, 2, 3)) / y.abs().sum((1, 2, 3))).mean()


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--samples", type=int, default=256, help="to train with; 32 more to test")
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--output", type=Path, required=True, help="new folder")
    args = parser.parse_args(arguments)
    args.output.mkdir()  # an error before the training if it exists
    torch.manual_seed(0)
    x, y = (torch.from_numpy(field).float() for field in arrays(args.samples + 32))
    model = CHONNNetwork2d(x.shape[1], y.shape[1])
    model.calibrate(x[32:], y[32:])
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.epochs)
    for _ in range(args.epochs):
        for batch in (32 + torch.randperm(args.samples)).split(4):
            optimizer.zero_grad()
            relative_l1(model(x[batch]), y[batch]).backward()
            optimizer.step()
        schedule.step()
    model.save_pretrained(args.output)
    model = CHONNNetwork2d.from_pretrained(args.output)
    v = model(x[:32]).detach()
    print(f"relative L1 error on 32 new samples: {relative_l1(v, y[:32]):.5f}")
    figure = Figure(figsize=(12, 2.6), layout="constrained")
    fields = {"target": y[0, 0], "output": v[0, 0], "difference": v[0, 0] - y[0, 0]}
    for panel, (title, field) in zip(figure.subplots(1, 3), fields.items(), strict=True):
        figure.colorbar(panel.imshow(field, extent=(0, 3, 0, 2)), ax=panel)
        panel.set_title(title)
    figure.savefig(args.output / "picture.png", dpi=110)


if __name__ == "__main__":
    main()
