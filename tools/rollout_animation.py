"""A rollout to look at: the truth, FNO and ours side by side as a GIF, from a study's checkpoints.

chonn run navier_stokes --variants fno-increment-10,rollout-10
python tools/rollout_animation.py rollout.gif    # below 2 MB

With ``--experiment`` the models of another study of the same data, such as rollout_ablations.py.
"""

from __future__ import annotations

import argparse
import textwrap
from pathlib import Path

import numpy as np
import torch
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from PIL import Image

from chonn_ops._files import whole_file
from chonn_ops.experiments import schedule
from chonn_ops.experiments._rollout import frame_errors, rollout
from chonn_ops.experiments.jobs import Job
from chonn_ops.experiments.navier_stokes import GIVEN, NavierStokesConfig

VARIANTS = "fno-increment-10,rollout-10"
MILLISECONDS = 150


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("output", type=Path, help="GIF to write")
    parser.add_argument("--experiment", default="navier_stokes", help="or module:attribute")
    parser.add_argument("--scale", default="small")
    parser.add_argument("--seed", type=int, help="of the training, default: the scale's")
    parser.add_argument(
        "--variants", default=VARIANTS, help="of the experiment, default: %(default)s"
    )
    parser.add_argument("--runs", type=Path, default=Path("runs"), help="results of chonn run")
    parser.add_argument("--data", type=Path, default=Path("data"), help="data files")
    parser.add_argument("--sample", type=int, default=0, help="of the test split")
    parser.add_argument("--force", action="store_true", help="replace an existing file")
    args = parser.parse_args(arguments)
    if args.output.suffix != ".gif":
        raise SystemExit(f"output: expected a name that ends in .gif, got {args.output}")
    jobs = schedule.plan(
        args.experiment,
        args.scale,
        assignments=[] if args.seed is None else [f"seed={args.seed}"],
        output=args.runs,
        data=args.data,
        seeds=1,
        variants=args.variants.split(","),
    )
    panels = {"truth": truth(jobs[0], args.sample)[GIVEN:]}
    for job in jobs:
        panels[job.variant.label] = predicted(job, args.sample)
    with whole_file(args.output, args.force) as staged:
        draw(panels, staged)
    print(f"wrote {args.output}: {args.output.stat().st_size / 2**20:.2f} MB")


def truth(job: Job, sample: int) -> torch.Tensor:
    """All frames of a test trajectory, (T, R, R)."""
    (frames,) = job.experiment.load(job.config, job.data_folder).tests["test"].tensors
    if not 0 <= sample < len(frames):
        raise SystemExit(f"sample: expected 0 to {len(frames) - 1}, got {sample}")
    return frames[sample]


@torch.no_grad()
def predicted(job: Job, sample: int) -> torch.Tensor:
    """The rollout of a trained model, (horizon, R, R)."""
    if not job.checkpoint.exists():
        raise SystemExit(f"no trained {job.variant.name} in {job.folder}: `chonn run` makes it")
    model = job.variant.build(job.config)
    state = torch.load(job.checkpoint, weights_only=True, map_location="cpu")["state_dict"]
    model.load_state_dict({name.removeprefix("model."): value for name, value in state.items()})
    frames = truth(job, sample)
    config = job.config
    assert isinstance(config, NavierStokesConfig)
    known = frames[None, GIVEN - config.history : GIVEN]
    return rollout(model.eval(), known, config.horizon)[0]


def draw(panels: dict[str, torch.Tensor], path: Path) -> None:
    """One panel a field, with the relative error of the frame above it."""
    true = next(iter(panels.values()))
    limit = float(true.abs().max())
    figure = Figure(figsize=(2.4 * len(panels), 2.8), dpi=80)
    axes = figure.subplots(1, len(panels), squeeze=False)[0]
    errors = {name: frame_errors(field[None], true[None])[0] for name, field in panels.items()}
    images = []
    for place, (name, field) in zip(axes, panels.items(), strict=True):
        image = field[0].T.numpy()
        shown = {"cmap": "RdBu_r", "vmin": -limit, "vmax": limit, "origin": "lower"}
        images.append(place.imshow(image, interpolation="bicubic", **shown))
        place.set(xticks=[], yticks=[])
        place.set_title(textwrap.fill(name, 38), fontsize=7)
    figure.tight_layout()
    figure.subplots_adjust(bottom=0.12, top=0.82)
    canvas, pictures = FigureCanvasAgg(figure), []
    for step in range(len(true)):
        for image, place, (name, field) in zip(images, axes, panels.items(), strict=True):
            image.set_data(field[step].T.numpy())
            error = f"error {float(errors[name][step]):.1%}"
            place.set_xlabel(f"t = {GIVEN + 1 + step}" if name == "truth" else error, fontsize=9)
        canvas.draw()
        pixels = np.asarray(canvas.buffer_rgba())[..., :3].copy()
        pictures.append(Image.fromarray(pixels).quantize(64))
    first, *others = pictures
    # By name, as the file has another one until it is complete.
    first.save(path, "GIF", save_all=True, append_images=others, duration=MILLISECONDS, loop=0)


if __name__ == "__main__":
    main()
