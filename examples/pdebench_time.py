"""Train three models on time series of diffusion and reaction in PDEBench's own runner.

The models are `chonn_network`, which solves one circuit a frame, and PDEBench's own U-Net and FNO,
all with PDEBench's settings for this problem but for batches of 4, and far fewer epochs. Ten frames
are given, and errors are those of a rollout over all others. PDEBench's generator makes the data in
PDEBench's layout: 40 samples of 32 x 32 points and 41 frames to the time 2, where the published
file has 1,000 of 128 x 128 points and 101 frames to 5. All else is as in ``pdebench_darcy.py``,
without a figure.

    python examples/pdebench_time.py --output runs/demo-time

With ``--published`` samples are those of the published file, whose seeds are their numbers: the
first ones for training, and its test split, 900 to 999, for the errors. No checksum of that file is
known. Half an hour of one core, of which the samples take six minutes and 1.9 GB:

    python examples/pdebench_time.py --published --models chonn_network --epochs 1 --output runs/pub
"""

import argparse
from pathlib import Path

import h5py
import numpy as np
from pdebench_darcy import known, run_model, summary, table, write

from chonn_lab.problems import origin, pdebench_series
from chonn_lab.problems.hdf5 import create_hdf5

FAMILY, NAME = "diffusion_reaction", "2D_diff-react_NA_NA"
# Samples of the published file, and the first one of its test split.
SAMPLES, TEST = 1000, 900
MODELS = ["chonn_network", "Unet", "FNO"]
PAPER = "PDEBench's paper, 500 epochs of 900 samples: nRMSE 0.84 (U-Net) and 0.12 (FNO)."


def main() -> None:
    args = parse_arguments()
    output = args.output.resolve()
    size = f"r{args.resolution}" + ("-published" if args.published else "")
    data = generate(args, output / "data" / f"n{args.n}-{size}", range(args.n))
    test, tested = (), {}
    if args.published:
        file = generate(args, output / "data" / "published-test", range(TEST, SAMPLES))
        test, tested = (f"++args.data_path={file.parent}/",), {"tested": known(file)}
    results = [
        run_model(model, seed, overrides(model, seed, data, args), data, output, test)
        for seed in args.seeds
        for model in args.models
    ]
    with h5py.File(data) as file:
        shape = [len(file), *file["0000/data"].shape]
    record = summary("pdebench_time", results, data, shape, args) | tested
    write(output / "results.json", record)
    where = "published test split" if args.published else "validation samples, the last tenth"
    print(f"\nErrors on the {where} of the file; lower is better.")
    print(table(results))
    print(PAPER)
    print(f"\nresults: {output / 'results.json'}")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--output", type=Path, default=Path("runs/demo-time"))
    parser.add_argument("--n", type=int, default=40, help="samples to generate")
    parser.add_argument("--resolution", type=int, help="points per axis to generate, 32 or 128")
    parser.add_argument("--published", action="store_true", help="samples of the published file")
    parser.add_argument("--models", nargs="+", default=MODELS)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=4, help="divides both splits (U-Net)")
    parser.add_argument("--modes", type=int, default=12, help="Fourier modes per axis (FNO)")
    args = parser.parse_args()
    args.resolution = args.resolution or (128 if args.published else 32)
    return args


def generate(args: argparse.Namespace, folder: Path, seeds: range) -> Path:
    """Generate samples in PDEBench's layout, a group each, unless the file exists."""
    times = {"t": 5.0, "tdim": 101} if args.published else {}
    settings = {"family": FAMILY, "n_samples": len(seeds), "resolution": args.resolution, **times}
    path = folder / f"{NAME}.h5"
    if path.exists():
        return path
    folder.mkdir(parents=True, exist_ok=True)
    with create_hdf5(path, force=False) as file:
        origin.stamp(file, "pdebench_series", seeds.start, settings)
        for seed in seeds:
            simulator = pdebench_series.simulator(FAMILY, args.resolution, seed, **times)
            group = file.create_group(f"{seed:04d}")
            group["data"] = simulator.generate_sample().astype(np.float32)
            for axis in "xyt":
                group[f"grid/{axis}"] = getattr(simulator, axis).astype(np.float32)
        # PDEBench tests with the last tenth of a file and does not read what is before.
        for number in range(seeds.start):
            file[f"{number:04d}"] = h5py.SoftLink(f"/{seeds.start:04d}")
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
    if args.published and model.startswith("chonn"):
        values["checkpointing"] = True  # 91 frames of a batch do not fit into 24 GB otherwise
    return [
        "+args=config_diff-react.yaml",
        *(f"++args.{name}={value}" for name, value in values.items()),
    ]


if __name__ == "__main__":
    main()
