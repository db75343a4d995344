"""Replacements of attributes of PDEBench's modules while a job runs.

PDEBench 0.1.0 fails on current dependencies and with some combinations of settings. Each function
here corrects one such fault without changing the installed files.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch.utils.checkpoint import checkpoint

from chonn_ops.files import whole_file
from chonn_plugins.pdebench import processes
from chonn_plugins.pdebench.contract import JobError
from chonn_plugins.pdebench.data import Layout, reductions
from chonn_plugins.pdebench.job import DataName, Job
from chonn_plugins.pdebench.training import Watch, WatchedLoader, calibrate

# The key of the random generator's state in a checkpoint. The order of the samples comes from it.
RANDOM = "random_state"


class Patches(ExitStack):
    """Replaced attributes, which `close` restores, the last one first."""

    def set(self, owner: object, name: str, value: object) -> None:
        """Replace ``owner.name``."""
        self.callback(setattr, owner, name, getattr(owner, name))
        setattr(owner, name, value)


class Overlay:
    """A module with a few replaced attributes, which leaves the module itself unchanged."""

    def __init__(self, module: ModuleType, **replaced: object) -> None:
        self._module = module
        vars(self).update(replaced)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)


def numpy_infty(patches: Patches, train: ModuleType) -> None:
    """Supply ``np.infty``, which 0.1.0 uses and NumPy 2 removed."""
    patches.set(train, "np", Overlay(np, infty=np.inf))


def grouped_reader(patches: Patches, train: ModuleType, job: Job) -> None:
    """Pass the reader of grouped files ``initial_step``, which no trainer passes: any value except
    10 crashes."""
    name = {"unet": "UNetDatasetMult", "fno": "FNODatasetMult"}[job.family]
    reader = partial(getattr(train, name), initial_step=job.args["initial_step"])
    patches.set(train, name, reader)


def torch_functions(
    patches: Patches, train: ModuleType, save: Callable[..., None], watch: Watch
) -> None:
    """Replace the functions with which one trainer saves, loads, reads its batches and makes its
    optimiser.

    Batches are on the device from the start.
    """

    def loader(*args: Any, **kwargs: Any) -> WatchedLoader:
        # Both trainers shuffle the training data and nothing else.
        training = bool(kwargs.get("shuffle"))
        settings = processes.loader_settings(args[0], kwargs)
        batches = torch.utils.data.DataLoader(*args, **settings)
        return WatchedLoader(batches, train.device, watch, training=training)

    schedules: list[torch.optim.lr_scheduler.StepLR] = []

    def load(*args: Any, **kwargs: Any) -> Any:
        checkpoint = torch.load(*args, **kwargs)
        if RANDOM in checkpoint:
            checkpoint = after_its_epoch(checkpoint, schedules[-1])
        watch.resumed(checkpoint)
        return checkpoint

    def step_lr(*args: Any, **kwargs: Any) -> torch.optim.lr_scheduler.StepLR:
        schedules.append(torch.optim.lr_scheduler.StepLR(*args, **kwargs))
        return schedules[-1]

    def adam(*args: Any, **kwargs: Any) -> torch.optim.Adam:
        if not watch.decays:
            kwargs["weight_decay"] = 0.0
        optimizer = torch.optim.Adam(*args, **kwargs)
        processes.average_gradients(optimizer)
        return optimizer

    utils = Overlay(torch.utils, data=Overlay(torch.utils.data, DataLoader=loader))
    schedulers = Overlay(torch.optim.lr_scheduler, StepLR=step_lr)
    optim = Overlay(torch.optim, Adam=adam, lr_scheduler=schedulers)
    patches.set(train, "torch", Overlay(torch, save=save, load=load, utils=utils, optim=optim))


def after_its_epoch(
    checkpoint: dict[str, Any], schedule: torch.optim.lr_scheduler.StepLR
) -> dict[str, Any]:
    """The checkpoint with which a training goes on to the next epoch and ends as an uninterrupted
    one.

    With its own checkpoint, PDEBench trains the last epoch again, begins the schedule of the
    learning rate anew and draws another order of the samples, and ignores a new learning rate.
    """
    optimizer, epoch = schedule.optimizer, checkpoint["epoch"]
    rates = [group["initial_lr"] for group in optimizer.param_groups]
    optimizer.load_state_dict(checkpoint["optimizer_state_dict"])
    # A count of 1 is a first step, before which PyTorch expects one of this optimiser.
    schedule.load_state_dict({"last_epoch": epoch, "_step_count": epoch + 2})
    schedule.step()
    decayed = schedule.gamma ** (schedule.last_epoch // schedule.step_size)
    for group, rate in zip(optimizer.param_groups, rates, strict=True):
        group["initial_lr"] = rate
        # Steps of a schedule that has not changed have roundings of their own.
        if not math.isclose(group["lr"], rate * decayed, rel_tol=1e-9):
            group["lr"] = rate * decayed
    torch.set_rng_state(checkpoint[RANDOM].cpu())
    return {**checkpoint, "epoch": epoch + 1, "optimizer_state_dict": optimizer.state_dict()}


def loss_function(patches: Patches, train: ModuleType, watch: Watch) -> None:
    """Let the watch see the losses of one trainer."""
    patches.set(train, "nn", Overlay(torch.nn, MSELoss=watch.loss))


def model_builders(
    patches: Patches, train: ModuleType, job: Job, layout: Layout, watch: Watch, save: WholeSave
) -> None:
    """Make the trainer build the job's model in the place of its U-Net or FNO, for the geometry of
    the data, and store a description of the model in its checkpoints."""
    model = job.model
    if model is None:
        return
    stem = {"unet": "UNet", "fno": "FNO"}[model.family]
    _, every_frame, every_point = reductions(job)
    geometry: dict[str, Any] = {"box": layout.box}
    if model.family == "unet":
        geometry = {"lengths": layout.lengths, "nodes": layout.nodes}

    def builder(ndim: int) -> Callable[..., torch.nn.Module]:
        def build(*channels: int, **host: Any) -> torch.nn.Module:
            host.update(zip(("in_channels", "out_channels"), channels, strict=False), **geometry)
            save.described = {
                "name": job.name,
                "ndim": ndim,
                "host": dict(host),
                "options": model.complete(job.options),
                "every_frame": every_frame,
                "every_point": every_point,
            }

            try:
                built = model.build(ndim, host, job.options)
            except ValueError as error:
                # Only here are options and the data's axes known together.
                where = f"args.{model.options_key}, on data of {ndim} axes"
                raise JobError(f"{where}: {error}") from error
            save.described["options"] |= getattr(built, "recorded", {})
            watch.decays = getattr(built, "decays", True)
            watch.start = partial(calibrate, built, job)
            return built

        return build

    for ndim in (1, 2, 3):
        patches.set(train, f"{stem}{ndim}d", builder(ndim))


def rollouts(patches: Patches, train: ModuleType, job: Job, layout: Layout, watch: Watch) -> None:
    """Make the FNO trainer differentiate the last `unroll_step` frames only if ``training_type`` is
    pushforward, as the U-Net trainer does, and with ``checkpointing`` keep nothing of a frame for
    its gradient but its input, from which it is computed again."""
    args, without = job.args, 0
    if args["training_type"] == "pushforward":
        without = min(args["t_train"], layout.frames) - args["initial_step"] - args["unroll_step"]

    def built(build: Callable[..., torch.nn.Module], **host: Any) -> torch.nn.Module:
        model = build(**host)
        compute = model.forward

        def forward(*fields: torch.Tensor) -> torch.Tensor:
            differentiated = torch.is_grad_enabled() and len(watch.losses) >= without
            if differentiated and args.get("checkpointing"):
                return checkpoint(compute, *fields, use_reentrant=False)
            with torch.set_grad_enabled(differentiated):
                return compute(*fields)

        model.forward = forward
        return model

    for name in ("FNO1d", "FNO2d", "FNO3d"):
        patches.set(train, name, partial(built, getattr(train, name)))


class FirstToo(int):
    """A number of epochs between validations, by which the first epoch is validated, too."""

    def __new__(cls, epochs: int, watch: Watch) -> FirstToo:
        number = super().__new__(cls, epochs)
        number.watch, number.is_first = watch, True
        return number

    watch: Watch
    is_first: bool

    def __rmod__(self, epoch: int) -> int:
        rest = epoch % int(self)
        self.watch.is_extra = self.is_first and rest != 0
        self.is_first = False
        return 0 if self.watch.is_extra else rest


def training_call(
    patches: Patches,
    train: ModuleType,
    job: Job,
    watch: Watch,
    around: AbstractContextManager[None],
) -> None:
    """Correct the arguments of ``run_training``, and undo all patches when it returns.

    0.1.0 does not pass the data's folder to its U-Net trainer, and concatenates folder and
    file name without a separator. The FNO trainer prints a validation loss after each epoch,
    which it does not have if it goes on with an epoch that ``model_update`` skips.
    """
    run_training = train.run_training
    changes: dict[str, object] = {"base_path": folder(job.args)}
    if job.args.get("training_type") == "pushforward":
        changes["training_type"] = "autoregressive"
    if job.family == "fno" and job.args.get("continue_training"):
        changes["model_update"] = FirstToo(job.args["model_update"], watch)
    if processes.number() > 1:
        changes["batch_size"] = job.args["batch_size"] // processes.number()
    if job.model is not None:
        changes["flnm"] = DataName.of(job)

    def run(**kwargs: Any) -> Any:
        with around:
            try:
                return run_training(**{**kwargs, **changes})
            finally:
                patches.close()

    patches.set(train, "run_training", run)


def folder(args: Mapping[str, Any]) -> str:
    """The data's folder, with the trailing separator that PDEBench's readers need."""
    return os.path.join(str(args["data_path"]), "")


class WholeSave:
    """``torch.save`` that writes a job's checkpoint completely or not at all, in one process.

    Parameters
    ----------
    settings : dict, optional
        What the checkpoint stores as ``settings``, see `Job.settings`.
    replace : bool
        Whether the first call may replace a file. A file that has appeared since the job began is
        another job's.

    Attributes
    ----------
    described : dict, optional
        The arguments of `HostModel.build` and the name of its entry point. The checkpoint stores
        them as ``model`` and the state of torch's random generator as ``random_state``, which
        PDEBench does not read.
    """

    def __init__(self, settings: dict[str, Any] | None = None, *, replace: bool = True) -> None:
        self.settings, self.replace = settings, replace
        self.count = 0
        self.described: dict[str, Any] | None = None

    def __call__(self, obj: dict[str, Any], f: Any, **kwargs: Any) -> None:
        obj = {**obj, RANDOM: torch.get_rng_state(), "settings": self.settings}
        if self.described is not None:
            obj["model"] = self.described
        path = Path(f)
        if processes.is_first():
            try:
                # A checkpoint may be a link to another disk.
                with whole_file(path.resolve(), force=self.replace or self.count > 0) as staged:
                    torch.save(obj, staged, **kwargs)
            except FileExistsError:
                raise JobError(
                    f"the checkpoint {path.resolve()} has appeared since this training began: "
                    f"another one writes it. Expected one training a directory, or other options"
                ) from None
        self.count += 1
