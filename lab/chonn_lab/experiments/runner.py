"""One run: a model trained from one seed by a plain loop that resumes, and its scores in a file.

An interrupted run resumes after its last complete epoch and ends at the same numbers, on a CPU to
the last bit: an epoch depends on the checkpoint before it and on (seed, epoch) alone.

A run that has finished has the file ``<output>/<problem>/<scale>/<model>-seed<k>.json``. Beside it
are the sample fields, ``<model>-seed<k>.npz``, and the folder ``<model>-seed<k>`` with the
checkpoint, ``last.ckpt``, and Hydra's record of the settings.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import io
import json
import logging
import math
import pickle
import random
import sys
import time
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from omegaconf import DictConfig
from torch import Tensor, nn
from torch.utils.data import TensorDataset
from tqdm import tqdm

from chonn_lab import cost
from chonn_lab.experiments import provenance
from chonn_lab.experiments.base import Data, Evaluation, Problem, Untrained, device_of
from chonn_lab.experiments.configuration import build_model, build_problem, flat, resolved
from chonn_lab.experiments.provenance import ANYWAY, Provenance
from chonn_lab.experiments.records import HISTORY, Run
from chonn_ops.checks import check_bool, check_choice, check_integer, check_number
from chonn_ops.files import clear_remains, whole_file

Batch = tuple[Tensor, ...]
# Entry of a checkpoint with everything that is not torch's.
STATE = "chonn_ops"
OPTIMIZERS = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}
SCHEDULES = ("step", "cosine")
log = logging.getLogger(__name__)


def run(config: DictConfig, folder: Path) -> Run:
    """Train and score a model; resume an interrupted run, or read a finished one.

    `config` is what conf/run.yaml composes, `folder` that of the checkpoint, beside which the
    result is. A run that diverged has no scores. ValueError or OSError for settings out of range,
    and for data, a checkpoint or a result that is damaged or was made with other settings or data.
    """
    found = resolved(config)
    check_bool(mixed=config.mixed)
    problem = build_problem(found)
    result = folder.with_name(f"{folder.name}.json")
    data_folder = Path(config.data) / problem.name
    use_threads(config.threads)
    device = select_device(config.device)
    done = finished(result, found, problem, data_folder, config.mixed)
    if done is not None:
        log.info("%s: finished before", result)
        return done
    problem.prepare(data_folder)
    provenance.reset_peak_memory()
    data = problem.load(data_folder)
    made = origin_of(problem, data_folder, data)
    model = seeded_model(found, problem)
    size = cost.measure(model, problem.example())
    folder.mkdir(parents=True, exist_ok=True)
    checkpoint = folder / "last.ckpt"
    clear_remains(checkpoint)  # of killed processes
    training = Training(found, problem, model.to(device), made, checkpoint)
    if checkpoint.exists():
        training.restore(config.mixed)
    for note in training.notes:
        log.warning("%s: %s", folder, note)
    diverged, evaluation = None, Evaluation(metrics={})
    try:
        training.fit(data)
    except Diverged as error:
        diverged = str(error)
    else:
        with torch.no_grad():
            evaluation = problem.evaluate(model.eval(), data)
    if evaluation.fields:
        arrays = {name: field.cpu().numpy() for name, field in evaluation.fields.items()}
        fields = folder.with_name(f"{folder.name}.npz")
        with whole_file(fields, force=True) as staged, open(staged, "wb") as file:
            np.savez_compressed(file, allow_pickle=False, **arrays)
    described = found["model"]
    record = Run(
        experiment=problem.name,
        title=problem.title,
        scale=folder.parent.name,
        variant=folder.name.rpartition("-seed")[0],
        label=described["label"],
        tags=described["tags"],
        seed=found["seed"],
        config=flat(found),
        versions=provenance.versions(),
        hardware=provenance.hardware(device),
        # Models have sizes and a training of their own; the problem is one.
        changes=sorted({*flat({**found, "problem": {}})}),
        **dataclasses.asdict(made),
        notes=training.notes,
        date=datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        parameters=size.parameters,
        multiply_adds=size.multiply_adds,
        curve={"epoch": list(range(1, training.epochs + 1)), **training.history},
        diverged=diverged,
        metrics={
            split: {name: float(value) for name, value in scores.items()}
            for split, scores in evaluation.metrics.items()
        },
        curves={name: list(map(float, values)) for name, values in evaluation.curves.items()},
        seconds=training.seconds,
        milliseconds=evaluation.milliseconds,
        peak_memory_mib=provenance.peak_memory_mib(device),
    )
    try:
        # Last, because this file marks the run as finished.
        return record.write(result)
    except FileExistsError:
        # Another process made the same run and was ready first.
        done = finished(result, found, problem, data_folder, config.mixed)
        if done is None:
            raise
        return done


def finished(
    result: Path, found: Mapping[str, Any], problem: Problem, data_folder: Path, mixed: bool
) -> Run | None:
    """The run of a result file; None if there is no file.

    A ValueError if it is damaged or not a result, or of other settings or, unless `mixed`, other
    data; it names the difference.
    """
    advice = "move it away to run afresh, or choose another output folder"
    try:
        run = Run.parse(json.loads(result.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return None
    except (ValueError, RecursionError) as error:
        raise ValueError(
            f"{result}: damaged, or no result of chonn-lab run ({error}); {advice}"
        ) from error
    there = {"problem": run.experiment, "model": run.label, "seed": run.seed, **run.config}
    if differing := differences(there, _identity(found)):
        raise ValueError(f"{result}: result of other settings ({differing}); {advice}")
    now = Provenance(provenance.files(filter(Path.is_file, problem.makers(data_folder))))
    if not mixed and (differing := run.differences(now)):
        raise ValueError(
            f"{result}: result of other data ({differing}); {advice}, or accept it with {ANYWAY}"
        )
    return run


def _identity(found: Mapping[str, Any]) -> dict[str, Any]:
    """What tells runs apart, as JSON has it."""
    names = {"problem": found["problem"]["name"], "model": found["model"]["label"]}
    return json.loads(json.dumps({**names, "seed": found["seed"], **flat(found)}))


def differences(there: Mapping[str, Any], here: Mapping[str, Any]) -> str:
    """Names and settings in which an earlier run differs: ``epochs: 2 there, 3 here``."""
    missing = object()
    return ", ".join(
        f"{name}: {there.get(name, 'none')} there, {here.get(name, 'none')} here"
        for name in sorted(there.keys() | here.keys())
        if there.get(name, missing) != here.get(name, missing)
    )


def origin_of(problem: Problem, data_folder: Path, data: Data) -> Provenance:
    """Data and code behind a run that starts now."""
    splits = {"train": data.train, "validation": data.validation, **data.tests}
    tensors = {name: split.tensors for name, split in splits.items()}
    return provenance.of(problem.makers(data_folder), tensors)


def seeded_model(found: Mapping[str, Any], problem: Problem) -> nn.Module:
    """The model of a configuration; its weights are the first numbers drawn from the seed, which
    is that of the global generators of Python, NumPy and PyTorch from then on."""
    seed = found["seed"]
    check_integer(0, seed=seed)
    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002
    torch.manual_seed(seed)
    return build_model(found, problem)


def use_threads(count: int | None) -> None:
    """Set PyTorch's threads on a CPU; None leaves them."""
    if count is not None:
        check_integer(1, threads=count)
        torch.set_num_threads(count)


def select_device(name: str) -> torch.device:
    """The device for "cpu", "gpu" or "auto"; a ValueError if there is no GPU for "gpu"."""
    check_choice("device", name, ("auto", "cpu", "gpu"))
    if name != "cpu":
        if torch.cuda.is_available():
            return torch.device("cuda")
        if torch.backends.mps.is_available():
            return torch.device("mps")
        if name == "gpu":
            raise ValueError("device: expected a GPU, found none")
    return torch.device("cpu")


class Diverged(Exception):
    """The loss or the weights are not finite; the last checkpoint is of the epoch before."""

    def __init__(self, epoch: int) -> None:
        super().__init__(f"training loss or weights not finite in epoch {epoch}")


def clock(device: torch.device) -> float:
    """CPU seconds, which leave out waiting for other programs; on a GPU those of the wall."""
    return time.process_time() if device.type == "cpu" else time.perf_counter()


class Training:
    """A model in training, on the device where its weights are.

    `found` is the resolved configuration, whose ``train`` conf/run.yaml describes; a ValueError for
    values out of range. `made` is stored in the `checkpoint`, which is written after every epoch.
    `history` has the training loss and the validation error of every epoch, `seconds` is the time
    of all epochs by `clock`, those before an interruption included, and `notes` are remarks for the
    result, such as a resumption at another commit.
    """

    def __init__(
        self,
        found: Mapping[str, Any],
        problem: Problem,
        model: nn.Module,
        made: Provenance,
        checkpoint: Path | None = None,
    ) -> None:
        self.found, self.problem, self.model = found, problem, model
        self.made, self.checkpoint = made, checkpoint
        self.seed, train = found["seed"], found["train"]
        integers = ("batch_size", "epochs", "step_size")
        numbers = ("learning_rate", "weight_decay", "gamma", "gradient_clip")
        known = (*integers, *numbers, "optimizer", "schedule")
        if unknown := [name for name in train if name not in known]:
            raise ValueError(
                f"train: expected settings among {', '.join(known)}, got {', '.join(unknown)}"
            )
        check_integer(1, **{name: train[name] for name in integers})
        for name in numbers:
            check_number(**{name: train[name]})
            if not 0 <= train[name] < math.inf:
                raise ValueError(
                    f"{name}: expected a finite number of at least 0, got {train[name]}"
                )
        check_choice("optimizer", train["optimizer"], tuple(OPTIMIZERS))
        check_choice("schedule", train["schedule"], SCHEDULES)
        self.batch_size, self.wanted = train["batch_size"], train["epochs"]
        self.clip = train["gradient_clip"]
        self.notes: list[str] = []
        self.history: dict[str, list[float]] = {name: [] for name in HISTORY}
        self.seconds = 0.0
        # An optimiser refuses a model without parameters, which it has nothing to do with.
        weights = list(model.parameters()) or [torch.zeros(())]
        self.optimizer = OPTIMIZERS[train["optimizer"]](
            weights, lr=train["learning_rate"], weight_decay=train["weight_decay"]
        )
        schedules = torch.optim.lr_scheduler
        self.schedule: torch.optim.lr_scheduler.LRScheduler = (
            schedules.StepLR(self.optimizer, train["step_size"], train["gamma"])
            if train["schedule"] == "step"
            else schedules.CosineAnnealingLR(self.optimizer, self.wanted)
        )
        self.device = device_of(model)

    @property
    def epochs(self) -> int:
        """Epochs that are done."""
        return len(self.history["train_loss"])

    def fit(self, data: Data) -> None:
        """Train the remaining epochs, with a checkpoint after each; none of an `Untrained` model.
        Errors are those of `epoch`."""
        if isinstance(self.model, Untrained):
            self.model.fit(data.train)
            return
        with tqdm(
            total=self.wanted, initial=self.epochs, unit="epoch", disable=not sys.stderr.isatty()
        ) as bar:
            while self.epochs < self.wanted:
                self.epoch(data.train, data.validation)
                if self.checkpoint is not None:
                    self.save(self.checkpoint)
                bar.set_postfix({name: f"{v[-1]:.3g}" for name, v in self.history.items()})
                bar.update()

    def epoch(self, train: TensorDataset, validation: TensorDataset) -> None:
        """Train one epoch and add to the history; `Diverged` if a number is not finite, a
        ValueError if a batch exceeds the training split."""
        if len(train) < self.batch_size:
            raise ValueError(
                f"batch_size: expected at most the {len(train)} training samples, "
                f"got {self.batch_size}"
            )
        started = clock(self.device)
        torch.manual_seed(
            int(np.random.SeedSequence((self.seed, self.epochs)).generate_state(1)[0])
        )
        # Sums of the losses and of the errors, each with its number of samples.
        sums = torch.zeros(4, device=self.device)
        self.model.train()
        for batch in training_batches(train, self.batch_size):
            with self._watched():
                loss = self.problem.loss(self.model, self._moved(batch))
            self.optimizer.zero_grad()
            loss.backward()
            if self.clip:
                nn.utils.clip_grad_norm_(self.model.parameters(), self.clip)
            self.optimizer.step()
            sums[0] += loss.detach().to(sums.dtype) * len(batch[0])
            sums[1] += len(batch[0])
        self.schedule.step()
        self.model.eval()
        for chosen in torch.arange(len(validation)).split(self.batch_size):
            with self._watched(), torch.no_grad():
                errors = self.problem.errors(self.model, self._moved(validation[chosen]))
            sums[2] += errors.to(sums.dtype).sum()
            sums[3] += len(errors)
        means = (sums[::2] / sums[1::2]).tolist()
        if not math.isfinite(means[0]):
            raise Diverged(self.epochs + 1)
        for values, mean in zip(self.history.values(), means, strict=True):
            values.append(mean)
        self.seconds += clock(self.device) - started

    def _moved(self, batch: Batch) -> Batch:
        return tuple(tensor.to(self.device) for tensor in batch)

    @contextlib.contextmanager
    def _watched(self) -> Iterator[None]:
        """A ValueError from a model whose weights are not finite, which scans refuse, is a
        divergence. Weights are checked after an error only."""
        try:
            yield
        except ValueError as error:
            if all(bool(weights.isfinite().all()) for weights in self.model.parameters()):
                raise
            raise Diverged(self.epochs + 1) from error

    def save(self, path: Path) -> None:
        """Write a checkpoint, whole or not at all."""
        content = {
            "state_dict": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "schedule": self.schedule.state_dict(),
            STATE: {
                "settings": json.loads(json.dumps(self.found)),
                "history": self.history,
                "seconds": self.seconds,
                "provenance": dataclasses.asdict(self.made),
                "notes": self.notes,
            },
        }
        # torch.save hides what the system says of a failed write.
        buffer = io.BytesIO()
        torch.save(content, buffer)
        with whole_file(path, force=True) as staged:
            staged.write_bytes(buffer.getbuffer())

    def restore(self, mixed: bool = False) -> None:
        """Continue from the checkpoint; a ValueError if it is damaged, of another kind of run, of
        other settings or, unless `mixed`, other data, which says why and which file to remove."""
        path = self.checkpoint
        assert path is not None
        content = load_checkpoint(path)
        try:
            state = content[STATE]
            there = Provenance(**state["provenance"])
            if differing := differences(_identity(state["settings"]), _identity(self.found)):
                raise _refusal(path, f"checkpoint of other settings ({differing})")
            if not mixed and (differing := there.differences(self.made)):
                raise _refusal(
                    path,
                    f"checkpoint of other data ({differing})",
                    f", or continue from it with {ANYWAY}",
                )
            self.model.load_state_dict(content["state_dict"])
            self.optimizer.load_state_dict(content["optimizer"])
            self.schedule.load_state_dict(content["schedule"])
            self.history = {name: list(map(float, state["history"][name])) for name in HISTORY}
            self.seconds = float(state["seconds"])
            self.notes = list(state["notes"])
        except ValueError:
            raise
        # Content of another kind fails in many ways.
        except Exception as error:
            raise _refusal(path, f"checkpoint of another model ({_line(error)})") from error
        if note := there.note(self.made):
            self.notes.append(f"resumed after epoch {self.epochs}: {note}")


def load_checkpoint(path: Path) -> dict[str, Any]:
    """Content of a checkpoint of `Training`, of which nothing is executed; a ValueError if it is
    damaged or holds anything but tensors and plain values."""
    # The errors of zipfile and torch.load for a damaged file vary with the damage.
    try:
        with zipfile.ZipFile(path) as archive:
            if part := archive.testzip():
                raise ValueError(f"wrong checksum of its part {part}")
        return torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        raise _refusal(path, f"damaged or foreign checkpoint ({_line(error)})") from error


def _refusal(path: Path, reason: str, more: str = "") -> ValueError:
    return ValueError(f"{path}: {reason}; remove {path} to start this run afresh{more}")


def _line(error: Exception) -> str:
    if isinstance(error, pickle.UnpicklingError):
        # Torch's message advises to load the file all the same, which would run its code.
        return "it holds more than tensors and plain values"
    text = str(error).partition("\n")[0]
    return text if " " in text else f"{type(error).__name__} {text}".rstrip()


def training_batches(train: TensorDataset, size: int) -> Iterator[Batch]:
    """Batches of an epoch in random order; a last incomplete one is left out."""
    order = torch.randperm(len(train))
    for chosen in order.split(size)[: len(train) // size]:
        yield train[chosen]
