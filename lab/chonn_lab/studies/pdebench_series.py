"""Advection and Burgers' equation in PDEBench's own runner, its FNO beside `chonn_network`.

python -m chonn_lab.studies.pdebench_series --seeds 0 1 2 --output lab/results/pdebench_series.json

Files of `chonn_lab.problems` in PDEBench's layout, the runner's own split (the first tenth of the
samples to validate), autoregressive training over all frames. The commands of a run differ in
``model_name`` alone. Finished runs are kept in the output, and a later call goes on.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from chonn_lab.experiments.provenance import files
from chonn_lab.problems import advection, burgers
from chonn_lab.results_file import read_record, run_missing

# Burgers' equation at its usual viscosity; waves that get 0.02 and 0.2 of the domain a frame.
PROBLEMS: dict[str, tuple[Any, float]] = {
    "burgers, nu = 1": (burgers, 1.0),
    "advection, beta = 0.4": (advection, 0.4),
    "advection, beta = 4": (advection, 4.0),
}
MODELS = ("FNO", "chonn_network")
# PDEBench, too, takes 41 frames, every fifth of its files; of the points it takes 256.
SAMPLES, RESOLUTION, FRAMES, GIVEN = 200, 64, 41, 10
JOB = {
    "batch_size": 20,
    "initial_step": GIVEN,
    "t_train": FRAMES,
    "training_type": "autoregressive",
    "ar_mode": True,
    "reduced_resolution": 1,
    "reduced_resolution_t": 1,
    "num_workers": 0,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--data", type=Path, default=Path("data/lines"))
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--epochs", type=int, default=20)
    args = parser.parse_args()
    args.data.mkdir(parents=True, exist_ok=True)
    paths = {}
    for name, (module, value) in PROBLEMS.items():
        paths[name] = path = args.data.resolve() / module.file_name(value)
        if not path.exists():
            module.generate(path, SAMPLES, RESOLUTION, value, FRAMES, progress=False)
    config = {"epochs": args.epochs, **JOB}
    packages, data = ("torch", "pdebench"), files(paths.values())
    record = read_record(args.output, "pdebench_series", config, packages, 1, data)

    def trained(problem: str, model: str, seed: int) -> dict[str, Any]:
        return run(model, seed, paths[problem], args.epochs)

    wanted = [(p, model, seed) for seed in args.seeds for p in paths for model in args.models]
    run_missing(args.output, record, wanted, trained, ("problem", "model", "seed"))


def run(model: str, seed: int, data: Path, epochs: int) -> dict[str, Any]:
    """Train and evaluate in a folder of its own."""
    settings = {
        **JOB,
        "filename": data.name,
        "data_path": f"{data.parent}/",
        "epochs": epochs,
        # Scored four times, the rate halved as often.
        "model_update": epochs // 4,
        "scheduler_step": epochs // 4,
        "seed": seed,
        "model_name": model,
    }
    command = [sys.executable, "-m", "pdebench.models.train_models_forward"]
    command.append("+args=config_Adv.yaml")
    command += [f"++args.{name}={value}" for name, value in settings.items()]
    with tempfile.TemporaryDirectory() as folder:
        begun = time.perf_counter()
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")
        seconds = time.perf_counter() - begun
        command.append("++args.if_training=False")
        subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL)
        (file,) = Path(folder).glob("*_metrics.json")
        report = json.loads(file.read_text())
    kept = ("parameters", "metrics", "split", "frames")
    return {"seconds": seconds, **{name: report[name] for name in kept}}


if __name__ == "__main__":
    main()
