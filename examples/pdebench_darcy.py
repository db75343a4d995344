"""Train five models on Darcy flow in PDEBench's own runner.

The models are the circuit model `chonn_network`, U-Net and FNO as trunks of a circuit head
(`chonn_unet`, `chonn_fno`), and PDEBench's own U-Net and FNO.
All models get the same data, epochs, batch size, learning rate and seeds. Each is trained and
evaluated by ``python -m pdebench.models.train_models_forward`` in its own process. The script
prints one table and writes ``results.json`` and ``fields.png``. A comparison that was stopped
resumes; finished runs with the same settings are read back.

    python examples/pdebench_darcy.py --output runs/demo
    python examples/pdebench_darcy.py --data my_darcy.hdf5 --modes 8 --epochs 30 --seeds 0 1 2
"""

import argparse
import json
import os
import platform
import re
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from chonn_plugins.openmp import sleep_while_waiting

sleep_while_waiting()  # before torch is imported

import h5py
import torch
from _darcy_figure import draw_fields
from tqdm import tqdm

import chonn_ops
from chonn_lab.experiments.provenance import code
from chonn_lab.problems.origin import identify
from chonn_ops.files import write_whole

EPOCH = re.compile(r"epoch: (\d+), loss: \S+, t2-t1: (\S+), trainL2: ([^,\s]+), testL2: ([^,\s]+)")
MODELS = ["chonn_network", "chonn_unet", "chonn_fno", "Unet", "FNO"]
COLUMNS = {
    "nrmse": "nRMSE",
    "rmse": "RMSE",
    "relative_l1": "rel. L1",
    "max_error": "max",
    "boundary_rmse": "boundary",
}


def main() -> None:
    args = parse_arguments()
    output = args.output.resolve()
    output.mkdir(parents=True, exist_ok=True)
    data = args.data.resolve() if args.data else generate(args, output)
    results = [
        run_model(model, seed, overrides(model, seed, data, args), data, output)
        for seed in args.seeds
        for model in args.models
    ]
    with h5py.File(data) as file:
        shape = list(file["tensor"].shape)
    write(output / "results.json", summary("pdebench_darcy", results, data, shape, args))
    print("\nErrors on the validation samples, the first tenth of the file; lower is better.")
    print(table(results))
    first = [result for result in results if result["seed"] == args.seeds[0]]
    draw_fields(first, data, output, args)
    print(f"\nresults: {output / 'results.json'}\nfigure:  {output / 'fields.png'}")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--output", type=Path, default=Path("runs/demo"))
    parser.add_argument("--data", type=Path, help="Darcy file in PDEBench's layout")
    parser.add_argument("--n", type=int, default=200, help="samples to generate without --data")
    parser.add_argument("--resolution", type=int, default=64, help="points per axis to generate")
    parser.add_argument("--models", nargs="+", default=MODELS)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--epochs", type=int, default=15)
    parser.add_argument("--batch-size", type=int, default=10, help="divides both splits (U-Net)")
    parser.add_argument("--learning-rate", type=float, default=1e-3)
    parser.add_argument("--modes", type=int, default=12, help="Fourier modes per axis (FNO)")
    parser.add_argument("--width", type=int, default=20, help="channels (FNO)")
    parser.add_argument(
        "--set",
        nargs="*",
        default=[],
        metavar="OPTION=VALUE",
        help="more options of our models, e.g. --set cell=scan norm=group",
    )
    return parser.parse_args()


def generate(args: argparse.Namespace, output: Path) -> Path:
    """Generate Darcy samples with `chonn-lab data generate`, unless the file exists."""
    folder = output / "data" / f"n{args.n}-r{args.resolution}"
    path = folder / "2D_DarcyFlow_beta1.0_Train.hdf5"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "chonn_lab.cli", "data", "generate", "darcy"]
        size = ["--n-samples", str(args.n), "--resolution", str(args.resolution)]
        subprocess.run([*command, *size, "--output", str(path)], check=True)
    return path


def overrides(model: str, seed: int, data: Path, args: argparse.Namespace) -> list[str]:
    """Overrides of PDEBench's settings; models differ in `model_name` and `ckb` only."""
    with h5py.File(data) as file:
        samples = file["tensor"].shape[0]
    values = {
        "model_name": model,
        "filename": data.name,
        "data_path": f"{data.parent}/",
        "epochs": args.epochs,
        "batch_size": args.batch_size,
        "learning_rate": args.learning_rate,
        # Halve the rate four times over the run, whatever its length.
        "scheduler_step": max(1, args.epochs // 5),
        "model_update": 1,
        "reduced_resolution": 1,
        "num_workers": 0,
        "modes": args.modes,
        "training_type": "autoregressive" if "unet" in model.lower() else "single",
        "ar_mode": False,
        "seed": seed,
    }
    if model != "chonn_network":  # which has a width of its own
        values["width"] = args.width
    if model.startswith("chonn"):
        values.update({f"ckb.{option}": value for option, value in map(split_option, args.set)})
    if samples < 10:
        raise SystemExit(f"{data}: expected at least 10 samples, got {samples}")
    return [
        "+args=config_Darcy.yaml",
        *(f"++args.{name}={value}" for name, value in values.items()),
    ]


def split_option(text: str) -> tuple[str, str]:
    name, separator, value = text.partition("=")
    if not separator:
        raise SystemExit(f"--set: expected OPTION=VALUE, got {text!r}")
    return name, value


def run_model(
    model: str,
    seed: int,
    options: list[str],
    data: Path,
    output: Path,
    test: Sequence[str] = (),
) -> dict[str, object]:
    """Train and evaluate one model with these overrides in its own folder, or read a finished run
    back. `test` are further overrides of the evaluation."""
    folder = output / "runs" / f"{model}-seed{seed}"
    record = folder / "result.json"
    if record.exists():
        result = json.loads(record.read_text())
        if result["overrides"] != options:
            raise SystemExit(
                f"{record} holds a run with other settings: choose another --output "
                f"(expected {options}, got {result['overrides']})"
            )
        for what, now in (("data", known(data)), ("code", code()["code"])):
            if result.get(what) != now:
                print(f"{model}, seed {seed}: this finished run used other {what} than the present")
        return result
    started_here = folder / ".unfinished"
    if started_here.exists():
        shutil.rmtree(folder)
    elif folder.exists():
        raise SystemExit(f"{folder} is not a run of this script: choose another --output")
    folder.mkdir(parents=True)
    started_here.touch()
    started = time.time()
    log, peak = run_pdebench([*options, "++args.if_training=True"], folder, f"{model} seed {seed}")
    epochs = [
        {"epoch": int(k), "seconds": float(s), "train": float(t), "validation": float(v)}
        for k, s, t, v in EPOCH.findall(log)
    ]
    tested = [*options, *test, "++args.if_training=False"]
    evaluation, _ = run_pdebench(tested, folder, "evaluation")
    (report_file,) = folder.glob("*_metrics.json")
    report = json.loads(report_file.read_text())
    if f"++args.epochs={len(epochs)}" not in options:
        raise SystemExit(f"{folder}: expected all epochs in the log, got {len(epochs)}")
    result = {
        "model": model,
        "seed": seed,
        "overrides": options,
        "parameters": report["parameters"],
        "options": report["options"],
        "metrics": report["metrics"],
        "seconds_per_epoch": statistics.median(epoch["seconds"] for epoch in epochs),
        "peak_memory_mib": peak,
        "seconds": time.time() - started,
        "curve": epochs,
        "data": known(data),
        **code(),
    }
    (folder / "log.txt").write_text(log + evaluation)
    write(record, result)
    started_here.unlink()
    return result


def run_pdebench(options: list[str], folder: Path, title: str) -> tuple[str, float]:
    """PDEBench's runner in a process of its own; returns its output and peak memory in MiB."""
    # Unbuffered: otherwise all epochs are printed at the end.
    command = [sys.executable, "-u", "-m", "pdebench.models.train_models_forward", *options]
    process = subprocess.Popen(
        command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    assert process.stdout is not None
    lines = []
    total = next((int(o.split("=")[1]) for o in options if o.startswith("++args.epochs=")), None)
    training = "++args.if_training=True" in options
    with tqdm(total=total, desc=title, unit="epoch", disable=not training) as progress:
        for line in process.stdout:
            lines.append(line)
            if match := EPOCH.search(line):
                progress.update()
                progress.set_postfix(validation=match[4])
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    log = "".join(lines)
    if process.returncode:
        raise SystemExit(f"{' '.join(command)}\nin {folder} failed:\n{log}")
    unit = 2**20 if sys.platform == "darwin" else 2**10  # ru_maxrss is in bytes on macOS, else KiB
    return log, usage.ru_maxrss / unit


def summary(
    experiment: str, results: list[dict], data: Path, shape: list[int], args: argparse.Namespace
) -> dict[str, object]:
    return {
        "experiment": experiment,
        "data": {"file": data.name, "tensor": shape},
        "config": {
            name: value for name, value in vars(args).items() if not isinstance(value, Path)
        },
        "versions": {
            "chonn_ops": chonn_ops.__version__,
            "torch": torch.__version__,
            "python": platform.python_version(),
        },
        "hardware": {
            "machine": platform.machine(),
            "cores": os.cpu_count(),
            "threads": torch.get_num_threads(),
            "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        },
        "commit": code()["commit"],
        "results": [
            {**result, "overrides": [o for o in result["overrides"] if "data_path" not in o]}
            for result in results
        ],
    }


def known(data: Path) -> dict[str, dict]:
    """The SHA-256 of the data file, and which program made it."""
    return {data.name: identify(data)}


def write(path: Path, record: dict[str, object]) -> None:
    """Write the whole file or nothing, whenever the run is stopped."""
    write_whole(path, json.dumps(record, indent=1) + "\n")


def table(results: list[dict]) -> str:
    header = ["model", "seed", "parameters", *COLUMNS.values(), "s/epoch", "peak MiB"]
    rows = [header]
    for result in results:
        metrics = [f"{result['metrics'][name]:.4g}" for name in COLUMNS]
        cost = [f"{result['seconds_per_epoch']:.2f}", f"{result['peak_memory_mib']:.0f}"]
        rows.append(
            [result["model"], str(result["seed"]), f"{result['parameters']:,}", *metrics, *cost]
        )
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True))
        for row in rows
    )


if __name__ == "__main__":
    main()
