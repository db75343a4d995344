"""A model in training: loss, optimiser, schedule, the history of its epochs, its batches.

A run stopped anywhere resumes at its last whole epoch and ends at the same numbers, to the last bit
on a CPU: an epoch depends on the checkpoint before it and on (seed, epoch) alone.
"""

from __future__ import annotations

import contextlib
import math
import os
import pickle
import re
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lightning.pytorch as lightning
import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import BatchSampler, DataLoader, DistributedSampler, TensorDataset
from torchmetrics import MeanMetric

from chonn_ops.experiments import _schema, provenance
from chonn_ops.experiments.base import Config, Experiment
from chonn_ops.experiments.jobs import defaults, differences

_STATE = "chonn_ops"
_HISTORY = ("train_loss", "validation_error")
# Of a checkpoint: Lightning's, and the state above.
_PARTS = {
    *("state_dict", "optimizer_states", "lr_schedulers", "loops", "callbacks", "epoch"),
    *("global_step", "pytorch-lightning_version", _STATE),
}


class Diverged(Exception):
    """Training has left the finite numbers; the last checkpoint is of the epoch before."""

    def __init__(self, epoch: int) -> None:
        super().__init__(f"training loss or weights not finite in epoch {epoch}")


class Training(lightning.LightningModule):
    """A model of an experiment in training, with the history of its epochs.

    Parameters
    ----------
    experiment, config : Experiment, Config
    model : nn.Module
    seed : int
        Of the order of samples and of what the loss draws.
    settings : mapping
        JSON values that name the run; kept in its checkpoints.
    origin : mapping
        Of `chonn_ops.experiments.provenance.of`; kept there, too.

    Attributes
    ----------
    history : dict of str to list of float
        Training loss and validation error of every epoch.
    seconds : float
        Of all epochs, those before an interruption included.
    notes : list of str
        What to say of earlier parts of the run, if these were of another commit, say.
    """

    def __init__(
        self,
        experiment: Experiment[Any],
        config: Config,
        model: nn.Module,
        seed: int,
        settings: dict[str, Any],
        origin: dict[str, Any],
    ) -> None:
        super().__init__()
        self.experiment = experiment
        self.config = config
        self.model = model
        self.seed = seed
        self.settings = settings
        self.origin = origin
        self.notes: list[str] = []
        # Unlike the mean of `log`, exact where processes have unequal numbers of samples.
        self._validation_error = MeanMetric(nan_strategy="disable")
        self.history: dict[str, list[float]] = {name: [] for name in _HISTORY}
        self.seconds = 0.0

    def configure_optimizers(self) -> Any:
        config = self.config
        kinds = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}
        optimizer = kinds[config.optimizer](
            self.model.parameters(), lr=config.learning_rate, weight_decay=config.weight_decay
        )
        if config.schedule == "step":
            schedule = torch.optim.lr_scheduler.StepLR(optimizer, config.step_size, config.gamma)
        else:
            schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, config.epochs)
        return [optimizer], [schedule]

    def on_train_epoch_start(self) -> None:
        self._started = time.perf_counter()
        entropy = (self.seed, self.current_epoch)
        torch.manual_seed(int(np.random.SeedSequence(entropy).generate_state(1)[0]))
        sampler: Any = self.trainer.train_dataloader
        sampler.sampler.sampler.set_epoch(self.current_epoch)

    def training_step(self, batch: tuple[Tensor, ...], _index: int) -> Tensor:
        with self._watched():
            loss = self.experiment.loss(self.config, self.model, batch)
        self.log(
            "train_loss",
            loss,
            on_step=False,
            on_epoch=True,
            prog_bar=True,
            sync_dist=True,
            batch_size=len(batch[0]),
        )
        return loss

    def validation_step(self, batch: tuple[Tensor, ...], _index: int) -> None:
        with self._watched():
            errors = self.experiment.errors(self.config, self.model, batch)
        self._validation_error.update(errors)
        self.log("validation_error", self._validation_error, prog_bar=True)

    @contextlib.contextmanager
    def _watched(self) -> Iterator[None]:
        """A model that refuses its own weights, as scans do, has diverged if these are not finite.

        The weights are looked at after a refusal only. They are the same in every process of a
        distributed run, so all of them stop.
        """
        try:
            yield
        except ValueError as error:
            if all(bool(weights.isfinite().all()) for weights in self.model.parameters()):
                raise
            raise Diverged(self.current_epoch + 1) from error

    def on_train_epoch_end(self) -> None:
        means = {name: float(self.trainer.callback_metrics[name]) for name in _HISTORY}
        if not math.isfinite(means["train_loss"]):
            raise Diverged(self.current_epoch + 1)
        for name, values in self.history.items():
            values.append(means[name])
        self.seconds += time.perf_counter() - self._started

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        checkpoint[_STATE] = {
            "settings": self.settings,
            "history": self.history,
            "seconds": self.seconds,
            "origin": self.origin,
            "notes": self.notes,
        }

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        state = checkpoint[_STATE]
        self.history = {name: list(state["history"][name]) for name in _HISTORY}
        self.seconds = state["seconds"]

    def restore(self, path: Path, mixed: bool = False) -> None:
        """Take weights and history from a checkpoint of the same run.

        Parameters
        ----------
        path : Path
        mixed : bool
            Go on with a checkpoint of other data or model code, and note it.

        Raises
        ------
        ValueError
            If the file is damaged, refused, of another run or, unless `mixed`, of other data or
            model code; says why and what to remove. A run goes on at another commit with the same
            model code, and notes it.
        """
        advice = f"remove {path} to start this run afresh"
        checkpoint = _read(path, advice)
        if (
            not isinstance(checkpoint, dict)
            or not checkpoint.keys() >= _PARTS
            or not isinstance(checkpoint[_STATE], dict)
        ):
            raise ValueError(f"{path}: no checkpoint of chonn run; {advice}")
        try:
            _check_state(checkpoint[_STATE])
        except ValueError as error:
            raise ValueError(f"{path}: damaged checkpoint ({error}); {advice}") from error
        there = defaults(self.config) | checkpoint[_STATE]["settings"]
        if differing := differences(there, self.settings):
            raise ValueError(f"{path}: checkpoint of other settings ({differing}); {advice}")
        origin = checkpoint[_STATE].get("origin", {})
        if (
            not mixed
            and provenance.known(origin)
            and (differing := provenance.differences(origin, self.origin))
        ):
            raise ValueError(
                f"{path}: checkpoint of other data or model code ({differing}); {advice}, or go "
                f"on from it all the same with {provenance.ANYWAY}"
            )
        self.on_load_checkpoint(checkpoint)
        self.notes = list(checkpoint[_STATE].get("notes", []))
        if note := provenance.note(origin, self.origin):
            epochs = len(self.history["train_loss"])
            self.notes.append(f"resumed after epoch {epochs}: {note}")
        try:
            self.load_state_dict(checkpoint["state_dict"])
        # What is no mapping of names to tensors fails in other ways than weights that do not fit.
        except (RuntimeError, TypeError, AttributeError) as error:
            raise ValueError(f"{path}: checkpoint of another model; {advice}") from error


def _check_state(state: dict[str, Any]) -> None:
    """ValueError for the first part of a checkpoint's own state that is of another kind."""
    history, settings = state.get("history"), state.get("settings")
    if not isinstance(settings, dict):
        raise ValueError(f"settings: expected a mapping, got {settings!r:.80}")
    if not isinstance(state.get("seconds"), float):
        raise ValueError(f"seconds: expected a number, got {state.get('seconds')!r:.80}")
    columns = [history.get(name) for name in _HISTORY] if isinstance(history, dict) else [None]
    for values in columns:
        if not isinstance(values, list) or not all(isinstance(value, float) for value in values):
            raise ValueError(f"history: expected lists of numbers, got {history!r:.80}")
    if len({len(values) for values in columns if values is not None}) != 1:
        raise ValueError("history: expected lists of one length")
    origin = state.get("origin", {})
    if not isinstance(origin, dict):
        raise ValueError(f"origin: expected a mapping, got {origin!r:.80}")
    _schema.check({**origin, "notes": state.get("notes", [])})


def _read(path: Path, advice: str) -> Any:
    """Content of a checkpoint; ValueError says what is wrong with the file."""

    def damaged(reason: str) -> ValueError:
        return ValueError(f"{path}: damaged checkpoint ({reason}); {advice}")

    with open(path, "rb") as file:
        # What zipfile and torch.load raise for a damaged file varies with the damage.
        try:
            with zipfile.ZipFile(file) as archive:
                part = archive.testzip()
        except Exception as error:
            size = os.fstat(file.fileno()).st_size
            raise damaged(f"no whole archive, {size:,} bytes: {_line(error)}") from error
    if part is not None:
        raise damaged(f"wrong checksum of its part {part}")
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    # The checksums are right: someone wrote this. Torch's message ends with the advice to load it
    # all the same, which would run its code.
    except pickle.UnpicklingError as error:
        found = re.search(r"GLOBAL [^\s`]+", str(error))
        detail = f" ({found[0]})" if found else ""
        raise ValueError(
            f"{path}: refused checkpoint, it holds other things than numbers and texts{detail} "
            f"and could run code; {advice}"
        ) from error
    except Exception as error:
        raise damaged(_line(error)) from error


def _line(error: Exception) -> str:
    """What an error says, where it says anything but a key."""
    text = str(error).partition("\n")[0]
    return text if " " in text else f"{type(error).__name__} {text}".rstrip()


def loaders(
    config: Config,
    train: TensorDataset,
    validation: TensorDataset,
    seed: int,
    rank: int,
    world: int,
) -> tuple[DataLoader[Any], DataLoader[Any]]:
    """Training and validation batches of one process of `world`.

    A global batch is the same set of samples for every number of processes.

    Raises
    ------
    ValueError
        If the batch does not split over the processes, or is larger than the training split.
    """
    size, rest = divmod(config.batch_size, world)
    if rest:
        raise ValueError(
            f"batch_size: expected a multiple of {world} processes, got {config.batch_size}"
        )
    if len(train) < config.batch_size:
        raise ValueError(
            f"batch_size: expected at most the {len(train)} training samples, "
            f"got {config.batch_size}"
        )
    order = DistributedSampler(train, world, rank, shuffle=True, seed=seed, drop_last=True)
    # Validation has no step to take in step: no sample is repeated to fill up.
    share = range(rank, len(validation), world)
    return (
        _batches(train, BatchSampler(order, size, drop_last=True)),
        _batches(validation, BatchSampler(share, size, drop_last=False)),
    )


def _batches(dataset: TensorDataset, sampler: BatchSampler) -> DataLoader[Any]:
    # Indexed by a list of samples, a TensorDataset gives the whole batch at once. The generator is
    # the loader's own: starting a loader draws a number, and a resumed run starts it elsewhere.
    return DataLoader(
        dataset, batch_size=None, sampler=sampler, collate_fn=tuple, generator=torch.Generator()
    )
