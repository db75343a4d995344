"""Checks, before a job starts, for what makes PDEBench's trainer crash or ignore a setting.

Every message states what was expected and what was found. The fields themselves are read last,
after all other checks have passed.
"""

from __future__ import annotations

import math
from pathlib import Path

from chonn_plugins.pdebench import checkpoints, processes, samples
from chonn_plugins.pdebench.contract import JobError
from chonn_plugins.pdebench.data import LAYOUTS, Layout, read_layout
from chonn_plugins.pdebench.job import Job

TRAINING_TYPES = ("autoregressive", "single")
ROLLOUTS = {"unet": TRAINING_TYPES, "fno": (*TRAINING_TYPES, "pushforward")}
UNET_DIVISOR = 16
# Settings that are whole numbers, and the least value of each.
INTEGERS = {
    **dict.fromkeys(("epochs", "num_workers", "seed"), 0),
    **dict.fromkeys(("batch_size", "initial_step", "model_update", "scheduler_step"), 1),
    **dict.fromkeys(("reduced_batch", "reduced_resolution", "reduced_resolution_t"), 1),
    **dict.fromkeys(("in_channels", "out_channels", "num_channels", "modes", "width"), 1),
    "unroll_step": 1,
    "t_train": -1,
}
NUMBERS = ("learning_rate", "scheduler_gamma")
# PDEBench takes any other word for true, "no" and "off", too.
BOOLEANS = (
    *("if_training", "continue_training", "single_file", "ar_mode", "pushforward", "plot"),
    *("overwrite", "checkpointing"),
)
NEEDED = (
    "filename",
    "single_file",
    "data_path",
    "batch_size",
    "initial_step",
    "t_train",
    "reduced_batch",
    "reduced_resolution",
    "reduced_resolution_t",
)


def check(job: Job) -> Layout:
    """Check a job of the U-Net or FNO family, and return the layout of the data that it will read;
    a JobError for the first check that fails."""
    _check_arguments(job)
    filename = job.args["filename"]
    if job.args["single_file"] and not filename.endswith(".hdf5"):
        raise JobError(
            f"args.filename={filename!r} with args.single_file=True: this reader expects a .hdf5 "
            f"file there. {LAYOUTS}"
        )
    layout = read_layout(job)
    _check_samples(job, layout)
    _check_frames(job, layout)
    _check_channels(job, layout)
    if job.training and job.family == "unet":
        _check_batches(job, layout)
    _check_checkpoint(job, layout)
    samples.check(job, layout)
    return layout


def _check_arguments(job: Job) -> None:
    args = job.args
    trainer = ("in_channels", "out_channels", "ar_mode", "pushforward", "unroll_step")
    if job.family == "fno":
        trainer = ("num_channels", "modes", "width", "training_type")
    if args.get("training_type") == "pushforward":
        trainer = (*trainer, "unroll_step")
    missing = [key for key in (*NEEDED, *trainer) if key not in args]
    if missing:
        raise JobError(
            f"expected the settings {', '.join('args.' + key for key in missing)}; they are in "
            f"none of the chosen configs. Add a problem's config, for example "
            f"+args=config_Darcy.yaml, or set them with ++args.<name>=<value>."
        )
    for key, least in INTEGERS.items():
        value = args.get(key)
        if value is None and (key not in args or key == "seed"):
            continue
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise JobError(f"args.{key}: expected an integer of at least {least}, got {value!r}")
    for key in NUMBERS:
        value = args.get(key, 0)
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if not number or not 0 <= value < math.inf:
            raise JobError(f"args.{key}: expected a number of at least 0, got {value!r}")
    for key in BOOLEANS:
        if not isinstance(args.get(key, False), bool):
            raise JobError(f"args.{key}: expected true or false, got {args[key]!r}")
    kind, kinds = args.get("training_type", "autoregressive"), ROLLOUTS[job.family]
    if kind not in kinds:
        raise JobError(f"args.training_type: expected one of {kinds}, got {kind!r}")
    if job.family == "unet" and kind == "single" and args["ar_mode"]:
        raise JobError(
            "args.training_type=single with args.ar_mode=True: PDEBench's U-Net trainer has no "
            "working loop for it (it would see the last batch of every epoch only). Expected "
            "++args.ar_mode=False (one step at a time, right for steady problems such as Darcy "
            "flow) or ++args.training_type=autoregressive."
        )
    if job.family == "fno" and kind == "single" and args["initial_step"] != 1:
        raise JobError(
            f"args.training_type=single maps the first frame to frame t_train: expected "
            f"args.initial_step=1, got {args['initial_step']}. For rollouts set "
            f"++args.training_type=autoregressive"
        )


def _check_samples(job: Job, layout: Layout) -> None:
    if layout.train and layout.validation:
        return
    samples = layout.train + layout.validation
    least = 10 if job.args["single_file"] else 2
    raise JobError(
        f"{job.args['filename']}: expected at least {least} samples, PDEBench keeps a tenth for "
        f"validation; got {samples} (reduced_batch={job.args['reduced_batch']}), which leaves "
        f"{layout.train} for training and {layout.validation} for validation"
    )


def _check_frames(job: Job, layout: Layout) -> None:
    start, last = job.args["initial_step"], job.args["t_train"]
    if start >= layout.frames:
        raise JobError(
            f"args.initial_step={start}: expected less than the {layout.frames} frames of "
            f"{job.args['filename']} (reduced_resolution_t={job.args['reduced_resolution_t']}), "
            f"or there is no frame left to predict"
        )
    if job.training and last <= start:
        raise JobError(
            f"args.t_train={last}: expected more than args.initial_step={start} (and at most the "
            f"{layout.frames} frames of the data), or there is nothing to train on but the input"
        )


def _check_channels(job: Job, layout: Layout) -> None:
    keys = ("num_channels",) if job.family == "fno" else ("in_channels", "out_channels")
    wrong = [f"args.{key}={job.args[key]}" for key in keys if job.args[key] != layout.channels]
    if wrong:
        raise JobError(
            f"{', '.join(wrong)}: expected {layout.channels}, the number of variables in "
            f"{job.args['filename']}"
        )
    if job.name not in ("Unet", "chonn_unet"):
        return
    if any(n % UNET_DIVISOR for n in layout.space):
        raise JobError(
            f"args.reduced_resolution={job.args['reduced_resolution']}: expected a grid of "
            f"multiples of {UNET_DIVISOR} for the U-Net, got {layout.space}"
        )


def _check_batches(job: Job, layout: Layout) -> None:
    """Reject a ragged last batch: the trainer crashes when it reshapes it to (batch_size, -1)."""
    size = job.args["batch_size"]
    numbers = layout.channels * math.prod(layout.space)
    counts = {"training": processes.padded(layout.train), "validation": layout.validation}
    ragged = {k: n % size for k, n in counts.items() if (n % size) * numbers % size}
    if ragged:
        remainders = " and ".join(f"{rest} in {split}" for split, rest in ragged.items())
        raise JobError(
            f"args.batch_size={size}: PDEBench's U-Net trainer needs full batches, but "
            f"{layout.train} training and {layout.validation} validation samples leave a last "
            f"batch of {remainders}. Expected a size that divides both."
        )


def _check_checkpoint(job: Job, layout: Layout) -> None:
    path = job.checkpoint(layout.frames)
    if not path.parent.is_dir():
        raise JobError(
            f"args.filename={job.args['filename']!r}: PDEBench names its results after the file, "
            f"and there is no folder {path.parent.resolve()}. Expected the folder of the data in "
            f"args.data_path"
        )
    continues = bool(job.args.get("continue_training"))
    if (not job.training or continues) and not path.is_file():
        wanted = "args.continue_training=True" if job.training else "args.if_training=False"
        similar = sorted(Path(path.parent).glob(f"{Path(job.stem).name}_*.pt"))
        raise JobError(
            f"{wanted}: expected the checkpoint {path.resolve()}, which does not exist"
            + (f"; there are {', '.join(p.name for p in similar)}" if similar else "")
            + (". Its name holds the model's options and the seed" if job.model else "")
            + ". Expected the same settings as in training."
        )
    if not job.training or continues:
        checkpoints.check(job, layout, path)
    if job.training and not job.replaces and path.exists():
        raise JobError(
            f"the checkpoint {path.resolve()} exists, and a new training would overwrite it. "
            f"Either go on from it with ++args.continue_training=True, replace it with "
            f"++args.overwrite=True, or run in another directory."
        )
