"""Train three models on time series of diffusion and reaction in PDEBench's own runner.

The models are `chonn_network`, which solves one circuit a frame, and PDEBench's own U-Net and FNO,
all with PDEBench's settings for this problem but for batches of 4, and far fewer epochs. Ten frames
are given, and errors are those of a rollout over all others. PDEBench's generator makes the data in
PDEBench's layout: 40 samples of 32 x 32 points and 41 frames to the time 2, where the published
file has 1,000 of 128 x 128 points and 101 frames to 5. All else is as in ``pdebench_darcy.py``,
without a figure.

    python examples/pdebench_time.py --output runs/demo-time
"""

from __future__ import annotations

import argparse
from pathlib import Path

import h5py
import numpy as np
from pdebench_darcy import run_model, summary, table, write

from chonn_lab.problems import origin, pdebench_series
from chonn_lab.problems.hdf5 import create_hdf5

FAMILY, NAME = "diffusion_reaction", "2D_diff-react_NA_NA"
MODELS = ["chonn_network", "Unet", "FNO"]
PAPER = "PDEBench's paper, 500 epochs of 900 samples: nRMSE 0.84 (U-Net) and 0.12 (FNO)."


def main() -> None:
    args = parse_arguments()
    output = args.output.resolve()
    data = generate(args, output)
    results = [
        run_model(model, seed, overrides(model, seed, data, args), data, output)
        for seed in args.seeds
        for model in args.models
    ]
    with h5py.File(data) as file:
        shape = [len(file), *file["0000/data"].shape]
    write(output / "results.json", summary("pdebench_time", results, data, shape, args))
    print("\nErrors on the validation samples, the last tenth of the file; lower is better.")
    print(table(results))
    print(PAPER)
    print(f"\nresults: {output / 'results.json'}")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--output", type=Path, default=Path("runs/demo-time"))
    parser.add_argument("--n", type=int, default=40, help="samples to generate")
    parser.add_argument("--resolution", type=int, default=32, help="points per axis to generate")
    parser.add_argument("--models", nargs="+", default=MODELS)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=4, help="divides both splits (U-Net)")
    parser.add_argument("--modes", type=int, default=12, help="Fourier modes per axis (FNO)")
    return parser.parse_args()


def generate(args: argparse.Namespace, output: Path) -> Path:
    """Generate samples in PDEBench's layout, a group each, unless the file exists."""
    settings = {"family": FAMILY, "n_samples": args.n, "resolution": args.resolution}
    path = output / "data" / f"n{args.n}-r{args.resolution}" / f"{NAME}.h5"
    if path.exists():
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    with create_hdf5(path, force=False) as file:
        origin.stamp(file, "pdebench_series", 0, settings)
        for seed in range(args.n):
            simulator = pdebench_series.simulator(FAMILY, args.resolution, seed)
            group = file.create_group(f"{seed:04d}")
            group["data"] = simulator.generate_sample().astype(np.float32)
            for axis in "xyt":
                group[f"grid/{axis}"] = getattr(simulator, axis).astype(np.float32)
    return path


def overrides(model: str, seed: int, data: Path, args: argparse.Namespace) -> list[str]:
    """Overrides of PDEBench's settings; models differ in `model_name` only."""
    values = {
        "model_name": model,
        "data_path": f"{data.parent}/",
        "epochs": args.epochs,
        "batch_size": args.batch_size,
        "model_update": 1,
        "num_workers": 0,
        "modes": args.modes,
        "seed": seed,
    }
    return [
        "+args=config_diff-react.yaml",
        *(f"++args.{name}={value}" for name, value in values.items()),
    ]


if __name__ == "__main__":
    main()
