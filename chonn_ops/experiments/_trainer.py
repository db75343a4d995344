"""Lightning's Trainer as experiments use it: checkpoints, logs, devices, and few words."""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import lightning.pytorch as lightning
import torch
from lightning.fabric.plugins.io.torch_io import TorchCheckpointIO
from lightning.fabric.utilities.warnings import PossibleUserWarning
from lightning.pytorch.callbacks import Callback, LearningRateMonitor, ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger, TensorBoardLogger
from tqdm import tqdm

from chonn_ops.experiments.base import Config
from chonn_ops.experiments.jobs import CHECKPOINT
from chonn_ops.problems._files import whole_file


class _WholeFiles(TorchCheckpointIO):
    """Checkpoints under a temporary name in their own folder first.

    Lightning's temporary file is in the system's folder for such, often on another file system,
    from where a move is a copy that a kill can cut short.
    """

    def save_checkpoint(
        self, checkpoint: dict[str, Any], path: str | Path, storage_options: Any = None
    ) -> None:
        path = Path(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        with whole_file(path, force=True) as staged:
            super().save_checkpoint(checkpoint, staged, storage_options)


class _EpochReport(Callback):
    def __init__(self, report: Callable[[], object]) -> None:
        self._report = report

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:  # noqa: ARG002
        self._report()


class _EpochBar(Callback):
    """A bar of the batches of an epoch, counted as people do; on standard error like all others."""

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:  # noqa: ARG002
        self._bar = tqdm(
            desc=f"Epoch {trainer.current_epoch + 1}/{trainer.max_epochs}",
            total=trainer.num_training_batches,
            disable=not trainer.is_global_zero,
        )

    def on_train_epoch_start(self, trainer: Any, pl_module: Any) -> None:  # noqa: ARG002
        text = f"Epoch {trainer.current_epoch + 1}/{trainer.max_epochs}"
        self._bar.set_description(text, refresh=False)
        self._bar.reset()

    def on_train_batch_end(self, *_: Any, **__: Any) -> None:
        self._bar.update()

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:  # noqa: ARG002
        self._bar.set_postfix(
            {name: f"{float(value):.3g}" for name, value in trainer.progress_bar_metrics.items()}
        )

    def on_train_end(self, *_: Any, **__: Any) -> None:
        self._bar.close()

    def on_exception(self, *_: Any, **__: Any) -> None:
        if hasattr(self, "_bar"):
            self._bar.close()


def trainer(
    config: Config,
    folder: Path,
    *,
    accelerator: str = "auto",
    precision: str = "32-true",
    progress: bool = False,
    on_epoch: Callable[[], object] | None = None,
    callbacks: Iterable[Callback] = (),
) -> lightning.Trainer:
    """Trainer that keeps checkpoint and logs in a folder; logs of earlier parts stay.

    Under ``torchrun`` it spans that launcher's processes (distributed data parallel).
    """
    quiet_lightning()
    world = int(os.environ.get("WORLD_SIZE", "1"))
    local = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    chosen: list[Callback] = [
        *callbacks,
        # One file, replaced after every epoch.
        ModelCheckpoint(
            dirpath=folder,
            filename=Path(CHECKPOINT).stem,
            enable_version_counter=False,
            save_on_train_epoch_end=True,
        ),
        LearningRateMonitor("epoch"),
    ]
    if progress:
        chosen.append(_EpochBar())
    if on_epoch is not None:
        chosen.append(_EpochReport(on_epoch))
    return lightning.Trainer(
        accelerator=accelerator,
        strategy="ddp" if world > 1 else "auto",
        devices=local,
        num_nodes=world // local,
        precision=precision,  # pyright: ignore[reportArgumentType]
        max_epochs=config.epochs,
        # CSVLogger counts up versions; TensorBoard reads any number of files in a folder as one.
        logger=[
            CSVLogger(folder, name="csv"),
            TensorBoardLogger(folder, name="", version="tensorboard"),
        ],
        callbacks=chosen,
        plugins=[_WholeFiles()],
        default_root_dir=folder,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
        # Tensors that a model keeps from validation must serve training too.
        inference_mode=False,
        use_distributed_sampler=False,
        sync_batchnorm=world > 1 and accelerator != "cpu" and torch.cuda.is_available(),
    )


def quiet_lightning() -> None:
    """Leave out Lightning's information and advice; its other warnings and errors stay."""
    for name in ("lightning.pytorch", "lightning.fabric"):
        logging.getLogger(name).setLevel(logging.WARNING)
    warnings.filterwarnings("ignore", category=PossibleUserWarning)
    warnings.filterwarnings("ignore", "Checkpoint directory .* exists and is not empty")
    # Of folders moved to another place, where they resume as well.
    warnings.filterwarnings("ignore", "The dirpath has changed")
    # Lightning's own use of torch.
    warnings.filterwarnings("ignore", r".*isinstance\(treespec, LeafSpec\)")
