"""One run: a model trained from one seed by a plain loop that resumes, and its scores in a file.

An interrupted run resumes after its last complete epoch and ends at the same numbers, on a CPU to
the last bit: an epoch depends on the checkpoint before it and on (seed, epoch) alone.

A run that has finished has the file ``<output>/<problem>/<scale>/<model>-seed<k>.json``. Beside it
is the folder ``<model>-seed<k>`` with the checkpoint, ``last.ckpt``, and Hydra's record of the
settings.
"""

import ctypes
import dataclasses
import datetime
import io
import json
import logging
import math
import random
import sys
import time
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from omegaconf import DictConfig
from torch import nn
from torch.optim.lr_scheduler import CosineAnnealingLR, LambdaLR, StepLR
from torch.utils.data import TensorDataset
from tqdm import tqdm

from chonn_lab.baselines.fields import count_parameters
from chonn_lab.experiments import provenance
from chonn_lab.experiments.base import Data, Problem, Untrained, batches, device_of
from chonn_lab.experiments.configuration import build_model, build_problem, flat, resolved
from chonn_lab.experiments.provenance import Provenance
from chonn_lab.experiments.records import HISTORY, Run
from chonn_lab.problems.origin import identify
from chonn_ops.checks import check_above, check_choice, check_integer, check_number
from chonn_ops.files import whole_file

# Entry of a checkpoint with everything that is not torch's.
STATE = "chonn_ops"
DAMAGED = "damaged or foreign checkpoint; move it away to run afresh"
OPTIMIZERS = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}
SCHEDULES = ("step", "cosine")
COUNTS = ("batch_size", "step_size")
NUMBERS = ("learning_rate", "beta2", "weight_decay", "gamma", "gradient_clip")
OTHERS = ("epochs", "seconds", "samples", "optimizer", "schedule")
log = logging.getLogger(__name__)


def run(config: DictConfig, folder: Path) -> Run:
    """Train and score a model; resume an interrupted run, or read a finished one.

    `config` is what conf/run.yaml composes, `folder` that of the checkpoint, beside which the
    result is. A run that diverged has no scores. ValueError or OSError for settings out of range,
    and for data, a checkpoint or a result that is damaged or was made with other settings or data.
    """
    settings, problem, data_folder, device = begin(config)
    result = folder.with_name(f"{folder.name}.json")
    if result.exists():
        log.info("%s: finished before", result)
        return finished(result, settings, origin_of(problem, data_folder))
    problem.prepare(data_folder)
    provenance.reset_peak_memory()
    data = problem.load(data_folder)
    origin = origin_of(problem, data_folder)
    model = seeded_model(settings, problem)
    folder.mkdir(parents=True, exist_ok=True)
    training = Training(settings, problem, model.to(device), origin)
    checkpoint = folder / "last.ckpt"
    if checkpoint.exists():
        training.restore(checkpoint)
    for note in training.notes:
        log.warning("%s: %s", folder, note)
    diverged, evaluation = None, {}
    try:
        training.fit(data, checkpoint)
    except Diverged as error:
        diverged = str(error)
    else:
        with torch.no_grad():
            evaluation = problem.evaluate(model.eval(), data)
    described = settings["model"]
    record = Run(
        experiment=problem.name,
        title=problem.title,
        scale=folder.parent.name,
        variant=folder.name.rpartition("-seed")[0],
        label=described["label"],
        tags=described["tags"],
        seed=settings["seed"],
        config=flat(settings),
        versions=provenance.versions(),
        hardware=provenance.hardware(device),
        # Models have sizes and a training of their own; the problem is one.
        changes=sorted({*flat({**settings, "problem": {}})}),
        **dataclasses.asdict(origin),
        notes=training.notes,
        date=datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        parameters=count_parameters(model),
        curve={"epoch": list(range(1, training.epochs + 1)), **training.history},
        diverged=diverged,
        seconds=training.seconds,
        peak_memory_mib=provenance.peak_memory_mib(device),
        **evaluation,
    )
    # Last, because this file marks the run as finished.
    return record.write(result)


def begin(config: DictConfig) -> tuple[dict[str, Any], Problem, Path, torch.device]:
    """The resolved configuration, the problem, the folder of its data, and the device; sets the
    threads of a CPU. A ValueError for settings out of range, or if there is no GPU for "gpu"."""
    keep_memory()
    settings = resolved(config)
    problem = build_problem(settings)
    if config.threads is not None:
        check_integer(1, threads=config.threads)
        torch.set_num_threads(config.threads)
    check_choice("device", config.device, ("auto", "cpu", "gpu"))
    gpu = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    if config.device == "gpu" and gpu is None:
        raise ValueError("device: expected a GPU, found none")
    device = torch.device("cpu") if config.device == "cpu" or gpu is None else gpu
    return settings, problem, Path(config.data) / problem.name, device


def keep_memory() -> None:
    """Let glibc keep what is freed.

    It gives memory back to the system after some steps of a training and not after others, as the
    sizes of earlier tensors happen to be: the same step had 13 page faults in one process and 6,500
    in another, and took 31 and 45 ms.
    """
    if sys.platform == "linux" and (mallopt := getattr(ctypes.CDLL(None), "mallopt", None)):
        mmap_threshold, trim_threshold = -3, -1  # M_MMAP_THRESHOLD and M_TRIM_THRESHOLD of malloc.h
        mallopt(mmap_threshold, 2**25)
        mallopt(trim_threshold, 2**30)


def finished(result: Path, settings: Mapping[str, Any], now: Provenance) -> Run:
    """The run of a result file; a ValueError if it is damaged or not a result, or as
    `refuse_other`."""
    try:
        run = Run.parse(json.loads(result.read_text(encoding="utf-8")))
    except ValueError as error:
        text = f"damaged, or no result of chonn-lab run ({error})"
        raise ValueError(f"{result}: {text}; move it away to run afresh") from error
    there = {"problem": run.experiment, "model": run.label, "seed": run.seed, **run.config}
    refuse_other(result, there, settings, run, now)
    return run


def refuse_other(
    path: Path,
    there: Mapping[str, Any],
    settings: Mapping[str, Any],
    origin: Provenance,
    now: Provenance,
) -> None:
    """A ValueError that names the difference, ``epochs: 2 there, 3 here``, if a result or
    checkpoint has other settings than `settings` or other data than `now`."""
    here, missing = identity(settings), object()
    differing = ", ".join(
        f"{name}: {there.get(name, 'none')} there, {here.get(name, 'none')} here"
        for name in sorted(there.keys() | here.keys())
        if there.get(name, missing) != here.get(name, missing)
    )
    for what, text in (("settings", differing), ("data", origin.differences(now))):
        if text:
            raise ValueError(f"{path}: of other {what} ({text}); move it away to run afresh")


def identity(settings: Mapping[str, Any]) -> dict[str, Any]:
    """What tells runs apart, as JSON has it."""
    names = {"problem": settings["problem"]["name"], "model": settings["model"]["label"]}
    return json.loads(json.dumps({**names, "seed": settings["seed"], **flat(settings)}))


def origin_of(problem: Problem, folder: Path) -> Provenance:
    """Files of the data and code behind a run that starts now."""
    paths = filter(Path.is_file, problem.makers(folder))
    return Provenance({p.name: identify(p) for p in paths}, **provenance.code())


def seeded_model(settings: Mapping[str, Any], problem: Problem) -> nn.Module:
    """The model of a configuration; its weights are the first numbers drawn from the seed, which
    is that of the global generators of Python, NumPy and PyTorch from then on."""
    seed = settings["seed"]
    check_integer(0, seed=seed)
    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002
    torch.manual_seed(seed)
    return build_model(settings, problem)


class Diverged(Exception):
    """The loss or the weights are not finite; the last checkpoint is of the epoch before."""

    def __init__(self, epoch: int) -> None:
        super().__init__(f"training loss or weights not finite in epoch {epoch}")


def clock(device: torch.device) -> float:
    """CPU seconds, which leave out waiting for other programs; on a GPU those of the wall."""
    return time.process_time() if device.type == "cpu" else time.perf_counter()


class Training:
    """A model in training, on the device where its weights are.

    `settings` is the resolved configuration, whose ``train`` conf/run.yaml describes; a ValueError
    for values out of range. Checkpoints store it with `origin`, the data and code behind them.
    `history` has the training loss and the validation error of every epoch, `seconds` is the time
    of all epochs by `clock`, those before an interruption included, and `notes` are remarks for the
    result, such as a resumption at another commit.
    """

    def __init__(
        self, settings: Mapping[str, Any], problem: Problem, model: nn.Module, origin: Provenance
    ) -> None:
        train = settings["train"]
        counts, numbers = ({name: train[name] for name in names} for names in (COUNTS, NUMBERS))
        check_integer(1, **counts)
        check_number(**numbers)
        # An end by epochs, or by seconds, over which the rate falls to 0 then.
        self.wanted, self.budget = train["epochs"], train["seconds"]
        self.samples = train["samples"]
        if self.budget is None:
            check_integer(1, epochs=self.wanted)
        else:
            check_above(0, seconds=self.budget)
            check_choice("schedule of a training by seconds", train["schedule"], ("cosine",))
        if self.samples is not None:
            check_integer(1, samples=self.samples)
        check_choice("optimizer", train["optimizer"], OPTIMIZERS)
        check_choice("schedule", train["schedule"], SCHEDULES)
        if unknown := train.keys() - {*COUNTS, *NUMBERS, *OTHERS}:
            raise ValueError(f"train: expected no settings {', '.join(unknown)}")
        self.settings, self.problem, self.model, self.origin = settings, problem, model, origin
        self.batch_size = train["batch_size"]
        self.device = device_of(model)
        self.notes: list[str] = []
        self.history: dict[str, list[float]] = {name: [] for name in HISTORY}
        self.seconds, self.started = 0.0, clock(self.device)
        # An optimiser refuses a model without parameters, which it has nothing to do with.
        weights = list(model.parameters()) or [torch.zeros(())]
        rate, betas, decay = train["learning_rate"], (0.9, train["beta2"]), train["weight_decay"]
        self.optimizer = OPTIMIZERS[train["optimizer"]](weights, rate, betas, weight_decay=decay)
        self.schedule = (
            StepLR(self.optimizer, train["step_size"], train["gamma"])
            if train["schedule"] == "step"
            else CosineAnnealingLR(self.optimizer, self.wanted)
            if self.budget is None
            else LambdaLR(self.optimizer, lambda _: (1 + math.cos(math.pi * self.share)) / 2)
        )

    @property
    def epochs(self) -> int:
        """Epochs that are done."""
        return len(self.history["train_loss"])

    @property
    def share(self) -> float:
        """How much of the seconds is over, or of the epochs; from 1 on the training ends."""
        if self.budget is None:
            return self.epochs / self.wanted
        return min(1.0, (self.seconds + clock(self.device) - self.started) / self.budget)

    def fit(self, data: Data, checkpoint: Path | None = None) -> None:
        """Train the remaining epochs, with a checkpoint after each; an `Untrained` model
        fits its numbers. Errors are those of `epoch`."""
        train = data.train
        if isinstance(self.model, Untrained):
            self.started = clock(self.device)
            self.model.fit(train)
            if checkpoint is not None and any(True for _ in self.model.parameters()):
                self.seconds = clock(self.device) - self.started
                self.save(checkpoint)
            return
        if self.samples is not None:
            if self.samples > len(train):
                raise ValueError(f"samples: expected at most {len(train)}, got {self.samples}")
            # Again and again, so that an epoch has as many steps as one of all samples.
            train = TensorDataset(*train[torch.arange(len(train)) % self.samples])
        self.started = clock(self.device)
        if not self.epochs:
            chosen = train if self.samples is None else TensorDataset(*train[: self.samples])
            self.problem.calibrate(self.model, chosen)
        with tqdm(total=1.0, initial=self.share, disable=not sys.stderr.isatty()) as bar:
            while self.share < 1:
                self.epoch(train, data.validation)
                bar.update(self.share - bar.n)
                if checkpoint is not None:
                    self.save(checkpoint)

    def epoch(self, train: TensorDataset, validation: TensorDataset) -> None:
        """Train one epoch and add to the history; `Diverged` if a number is not finite, a
        ValueError if a batch exceeds the training split."""
        if len(train) < self.batch_size:
            raise ValueError(
                f"batch_size: expected at most the {len(train)} training samples, "
                f"got {self.batch_size}"
            )
        place = np.random.SeedSequence((self.settings["seed"], self.epochs))
        torch.manual_seed(int(place.generate_state(1)[0]))
        try:
            means = self._learn(train), self._validate(validation)
        except ValueError as error:
            # Scans refuse weights that are not finite.
            if all(bool(weights.isfinite().all()) for weights in self.model.parameters()):
                raise
            raise Diverged(self.epochs + 1) from error
        if not math.isfinite(means[0]):
            raise Diverged(self.epochs + 1)
        for values, mean in zip(self.history.values(), means, strict=True):
            values.append(mean)
        now = clock(self.device)
        self.seconds, self.started = self.seconds + now - self.started, now

    def _learn(self, train: TensorDataset) -> float:
        """Mean loss of an epoch, in random order; a last incomplete batch is left out."""
        self.model.train()
        total, steps = torch.zeros((), device=self.device), 0
        for chosen in torch.randperm(len(train)).split(self.batch_size):
            if len(chosen) < self.batch_size:
                break
            batch = tuple(tensor.to(self.device) for tensor in train[chosen])
            loss = self.problem.loss(self.model, batch)
            self.optimizer.zero_grad()
            loss.backward()
            if clip := self.settings["train"]["gradient_clip"]:
                nn.utils.clip_grad_norm_(self.model.parameters(), clip)
            self.optimizer.step()
            total += loss.detach().to(total.dtype)
            steps += 1
            if self.budget is not None:
                self.schedule.step()
                if self.share == 1:
                    break
        if self.budget is None:
            self.schedule.step()
        return float(total / steps)

    @torch.no_grad()
    def _validate(self, validation: TensorDataset) -> float:
        self.model.eval()
        total = torch.zeros((), device=self.device)
        for batch in batches(validation, self.problem.scored_at_once, self.device):
            total += self.problem.errors(self.model, batch).to(total.dtype).sum()
        return float(total / len(validation))

    def save(self, path: Path) -> None:
        """Write a checkpoint, whole or not at all."""
        weights = self.model.state_dict()
        weights.pop("_metadata", None)  # neuraloperator's arguments of its models
        content = {
            "state_dict": weights,
            "optimizer": self.optimizer.state_dict(),
            "schedule": self.schedule.state_dict(),
            STATE: {
                "settings": json.loads(json.dumps(self.settings)),
                "history": self.history,
                "seconds": self.seconds,
                "provenance": dataclasses.asdict(self.origin),
                "notes": self.notes,
            },
        }
        # torch.save hides what the system says of a failed write.
        buffer = io.BytesIO()
        torch.save(content, buffer)
        with whole_file(path, force=True) as staged:
            staged.write_bytes(buffer.getbuffer())

    def restore(self, path: Path) -> None:
        """Continue from a checkpoint; a ValueError if it is damaged, or as `refuse_other`."""
        content = load_checkpoint(path)
        state = content[STATE]
        there = Provenance(**state["provenance"])
        refuse_other(path, identity(state["settings"]), self.settings, there, self.origin)
        self.model.load_state_dict(content["state_dict"])
        self.optimizer.load_state_dict(content["optimizer"])
        self.schedule.load_state_dict(content["schedule"])
        self.history, self.seconds = state["history"], state["seconds"]
        self.notes = list(state["notes"])
        if note := there.note(self.origin):
            self.notes.append(f"resumed after epoch {self.epochs}: {note}")


def load_checkpoint(path: Path) -> dict[str, Any]:
    """Content of a checkpoint of `Training`, of which nothing is executed; a ValueError if it is
    damaged, foreign, or holds anything but tensors and plain values."""
    # The errors of zipfile and torch.load for a damaged file vary with the damage.
    try:
        with zipfile.ZipFile(path) as archive:
            damaged = archive.testzip()
        content = None if damaged else torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        raise ValueError(f"{path}: {DAMAGED}") from error
    if not isinstance(content, dict) or STATE not in content:
        raise ValueError(f"{path}: {DAMAGED}")
    return content
