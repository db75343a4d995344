"""Train three models on time series of diffusion and reaction in PDEBench's own runner.

The models are `chonn_network`, which solves one circuit a frame, and PDEBench's own U-Net and FNO,
all with PDEBench's settings for this problem but for batches of 4, and far fewer epochs. Ten frames
are given, and errors are those of a rollout over all others. PDEBench's generator makes the data in
PDEBench's layout: 40 samples of 32 x 32 points and 41 frames to the time 2, where the published
file has 1,000 of 128 x 128 points and 101 frames to 5. All else is as in ``pdebench_darcy.py``,
without a figure.

    python examples/pdebench_time.py --output runs/demo-time

``--family`` names another family of PDEBench, and ``--series`` a file of it that ``chonn-lab data
generate pdebench_series`` made. Generators in JAX run by the interpreter that CHONN_JAX names:

    python examples/pdebench_time.py --family burgers_0.01 --n 80 --output runs/burgers

With ``--published`` samples are those of the published file, whose seeds are their numbers: the
first ones for training, and its test split, the last tenth, for the errors. No checksums of these
files are known. Half an hour of one core, of which the samples take six minutes and 1.9 GB:

    python examples/pdebench_time.py --published --models chonn_network --epochs 1 --output runs/pub

Diffusion and sorption on 1,024 cells takes 16 s a sample, so ``--tested`` takes the first ones of
its test split:

    python examples/pdebench_time.py --family diffusion_sorption --published --n 24 --tested 12 \\
        --models chonn_network --epochs 1 --output runs/sorption
"""

import argparse
from collections.abc import Iterator
from pathlib import Path

import h5py
import numpy as np
from pdebench_darcy import known, run_model, summary, table, write

from chonn_lab.problems import origin, pdebench_series
from chonn_lab.problems.hdf5 import create_hdf5

# PDEBench's settings and file for each family, and the ends of its axes.
FAMILIES = {
    "diffusion_reaction": ("diff-react", "2D_diff-react_NA_NA.h5", (-1.0, 1.0)),
    "diffusion_sorption": ("diff-sorp", "1D_diff-sorp_NA_NA.h5", (0.0, 1.0)),
    "shallow_water": ("rdb", "2D_rdb_NA_NA.h5", (-2.5, 2.5)),
    "reaction_diffusion": ("ReacDiff", "ReacDiff_Nu0.5_Rho1.0.hdf5", (0.0, 1.0)),
    "compressible": ("1DCFD", "1D_CFD_Rand_periodic_Train.hdf5", (-1.0, 1.0)),
    "compressible_2d": ("2DCFD", "2D_CFD_Rand_periodic_Train.hdf5", (0.0, 1.0)),
    **{
        f"advection_{beta}": ("Adv", f"1D_Advection_Sols_beta{beta}.hdf5", (0.0, 1.0))
        for beta in ("0.1", "1", "4")
    },
    **{
        f"burgers_{epsilon}": ("Bgs", f"1D_Burgers_Sols_Nu{epsilon}.hdf5", (0.0, 1.0))
        for epsilon in ("0.001", "0.01", "0.1")
    },
}
FAMILY = "diffusion_reaction"
GAS = {3: ["density", "Vx", "pressure"], 4: ["density", "Vx", "Vy", "pressure"]}
# Samples of the published files, points along an axis, and their times.
PUBLISHED = {
    "diffusion_reaction": (1000, 128, {"t": 5.0, "tdim": 101}),
    "diffusion_sorption": (10000, 1024, {"t": 500.0, "tdim": 101}),
}
MODELS = ["chonn_network", "Unet", "FNO"]
PAPER = "PDEBench's paper, 500 epochs of 900 samples: nRMSE 0.84 (U-Net) and 0.12 (FNO)."


def main() -> None:
    args = parse_arguments()
    output = args.output.resolve()
    size = f"r{args.resolution}" + ("-published" if args.published else "")
    data = generate(args, output / "data" / f"n{args.n}-{size}", range(args.n))
    test, tested = (), {}
    if args.published:
        count = PUBLISHED[args.family][0]
        split = range(count - count // 10, count)[: args.tested]
        file = generate(args, output / "data" / "published-test", split)
        test, tested = (f"++args.data_path={file.parent}/",), {"tested": known(file)}
    results = [
        run_model(model, seed, overrides(model, seed, data, args), data, output, test)
        for seed in args.seeds
        for model in args.models
    ]
    with h5py.File(data) as file:
        sample = next(file[k] for k in ("0000/data", "tensor", "density") if k in file)
        shape = [args.n, *sample.shape] if "0000" in file else list(sample.shape)
    record = summary("pdebench_time", results, data, shape, args) | tested
    record["title"] = pdebench_series.FAMILIES[args.family].title
    write(output / "results.json", record)
    where = "published test split" if args.published else "validation samples, a tenth"
    print(f"\nErrors on the {where} of the file; lower is better.")
    print(table(results))
    if args.family == FAMILY:
        print(PAPER)
    print(f"\nresults: {output / 'results.json'}")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--output", type=Path, default=Path("runs/demo-time"))
    parser.add_argument("--n", type=int, default=40, help="samples to generate")
    parser.add_argument("--resolution", type=int, help="points per axis to generate")
    parser.add_argument("--family", default=FAMILY, choices=sorted(FAMILIES))
    parser.add_argument("--series", type=Path, help="file of the family to take the samples from")
    parser.add_argument("--published", action="store_true", help="samples of the published file")
    parser.add_argument("--tested", type=int, help="samples of its test split, all by default")
    parser.add_argument("--models", nargs="+", default=MODELS)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=4, help="divides both splits (U-Net)")
    parser.add_argument("--modes", type=int, default=12, help="Fourier modes per axis (FNO)")
    args = parser.parse_args()
    if args.published and args.family not in PUBLISHED:
        parser.error(f"--published: expected a family of {[*PUBLISHED]}, got {args.family}")
    usual = pdebench_series.FAMILIES[args.family].resolution
    args.resolution = args.resolution or (PUBLISHED[args.family][1] if args.published else usual)
    return args


def generate(args: argparse.Namespace, folder: Path, seeds: range) -> Path:
    """Generate samples in PDEBench's layout, unless the file exists: a group each, or one dataset
    for all of them, or for each channel of a gas."""
    _, name, ends = FAMILIES[args.family]
    path, entry = folder / name, pdebench_series.FAMILIES[args.family]
    if path.exists():
        return path
    usual = {"t": entry.end, "tdim": entry.frames}
    times = PUBLISHED[args.family][2] if args.published else usual
    settings = {"family": args.family, "n_samples": len(seeds), "resolution": args.resolution}
    places = dict.fromkeys("xy"[: entry.axes], centres(*ends, args.resolution))
    places["t"] = np.linspace(0, times["t"], times["tdim"], dtype="f4")
    folder.mkdir(parents=True, exist_ok=True)
    samples = published(args, seeds, times) if args.published else series(args, folder)
    with create_hdf5(path, force=False) as file:
        origin.stamp(file, "pdebench_series", seeds.start, settings | times)
        if path.suffix == ".hdf5":
            channels = ["tensor"] if entry.channels == 1 else GAS[entry.channels]
            for channel, x in zip(channels, np.moveaxis(samples, -1, 0), strict=True):
                file[channel] = x
            for axis, x in places.items():
                file[f"{axis}-coordinate"] = x
            return path
        for seed, x in zip(seeds, samples, strict=True):
            group = file.create_group(f"{seed:04d}")
            group["data"] = x
            for axis, place in places.items():
                group[f"grid/{axis}"] = place
        # PDEBench tests with the last tenth of a file and does not read what is before.
        for number in range(9 * len(seeds) if seeds.start else 0):
            file[f"{number:04d}"] = h5py.SoftLink(f"/{seeds.start:04d}")
    return path


def published(args: argparse.Namespace, seeds: range, times: dict) -> Iterator[np.ndarray]:
    """Samples (T, \\*grid, C) of a published file, one by one: diffusion-reaction has 13 GB."""
    for seed in seeds:
        simulator = pdebench_series.simulator(args.family, args.resolution, seed, **times)
        yield simulator.generate_sample().astype(np.float32)


def series(args: argparse.Namespace, folder: Path) -> np.ndarray:
    """Samples (N, T, \\*grid, C) of a family."""
    file = args.series or pdebench_series.generate(
        folder / "series.hdf5", args.n, args.resolution, args.family
    )
    samples = np.moveaxis(pdebench_series.read(file, 0, args.n), 2, -1)
    if samples.shape[2] != args.resolution:
        found = samples.shape[2]
        raise SystemExit(f"{file}: expected {args.resolution} points an axis, got {found}")
    return samples


def centres(low: float, high: float, n: int) -> np.ndarray:
    """Centres of n cells from `low` to `high`."""
    return (low + (np.arange(n) + 0.5) * (high - low) / n).astype(np.float32)


def overrides(model: str, seed: int, data: Path, args: argparse.Namespace) -> list[str]:
    """Overrides of PDEBench's settings; models differ in `model_name` only."""
    values = {
        "model_name": model,
        "filename": data.name.removesuffix(".h5"),
        "data_path": f"{data.parent}/",
        "initial_step": 10,
        "reduced_resolution": 1,
        "reduced_resolution_t": 1,
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
        f"+args=config_{FAMILIES[args.family][0]}.yaml",
        *(f"++args.{name}={value}" for name, value in values.items()),
    ]


if __name__ == "__main__":
    main()
