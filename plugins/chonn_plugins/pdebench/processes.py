"""A job on several processes, which ``torchrun`` starts: each trains on its share of every batch.

The optimiser averages the gradients before each step. Models are not wrapped, so PDEBench's trainer
saves the names that it would save from one process, and may call a model many times before one
backward pass. Every process computes all validation losses; only the first one writes files.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.optim import Optimizer
from torch.utils.data import Sampler

from chonn_plugins.pdebench.contract import JobError
from chonn_plugins.pdebench.job import Job


def number() -> int:
    """How many processes train together."""
    return int(os.environ.get("WORLD_SIZE", 1)) if "RANK" in os.environ else 1


def is_first() -> bool:
    """Whether this process prints and writes files."""
    return number() == 1 or int(os.environ["RANK"]) == 0


def join(job: Job, *, sweep: bool) -> None:
    """Connect the processes of a training; with one process this does nothing. A JobError for a job
    that only one process can do, and a batch that does not have equal shares."""
    if number() == 1:
        return
    alone = "start it without torchrun"
    if job.family == "pinn":
        raise JobError(f"{job.name}: expected one process, got {number()}; {alone}")
    if not job.training:
        raise JobError(f"args.if_training=False: expected one process, got {number()}; {alone}")
    if sweep:
        raise JobError("--multirun: expected one job for each torchrun; start torchrun for each")
    size = job.args.get("batch_size")
    if not isinstance(size, int) or size % number():
        raise JobError(
            f"args.batch_size={size}: expected a multiple of the {number()} processes, which share "
            f"every batch"
        )
    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group()


def leave() -> None:
    """Undo `join`."""
    if dist.is_initialized():
        dist.destroy_process_group()


def agreed(seed: int | None) -> int | None:
    """The seed, or a random one, if processes must begin with the same weights."""
    if seed is not None or number() == 1:
        return seed
    drawn = torch.tensor(torch.seed() % 2**32)
    dist.broadcast(drawn, 0)
    return int(drawn)


def padded(samples: int) -> int:
    """The number of samples of an epoch, in which each process has equally many."""
    return -(-samples // number()) * number()


def loader_settings(data: Any, settings: dict[str, Any]) -> dict[str, Any]:
    """Keywords of a ``DataLoader`` of this process for those of the trainer, whose batch size is
    the share of one process. Validation has the batches of one process."""
    if number() == 1:
        return settings
    if settings.get("shuffle"):
        return {**settings, "shuffle": False, "sampler": Shares(len(data))}
    return {**settings, "batch_size": settings["batch_size"] * number()}


class Shares(Sampler[int]):
    """The samples of one process: every n-th of a permutation that all processes agree on.

    The permutation is the one that a ``RandomSampler`` draws in the first process, so batches have
    the samples that they would have there with one process. As in a ``DistributedSampler``, a
    few samples come twice where their number is no multiple of the processes'.
    """

    def __init__(self, samples: int) -> None:
        self.samples = samples

    def __len__(self) -> int:
        return padded(self.samples) // number()

    def __iter__(self) -> Iterator[int]:
        seed = torch.empty((), dtype=torch.int64).random_()
        dist.broadcast(seed, 0)
        draw = torch.Generator().manual_seed(int(seed))
        order = torch.randperm(self.samples, generator=draw).tolist()
        order += order[: padded(self.samples) - self.samples]
        yield from order[dist.get_rank() :: number()]


def average_gradients(optimizer: Optimizer) -> None:
    """Let every step of an optimiser use the mean of all processes' gradients."""
    if number() > 1:
        optimizer.register_step_pre_hook(_average)


@torch.no_grad()
def _average(optimizer: Optimizer, *_: Any) -> None:
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    gradients = [p.grad for p in parameters if p.grad is not None]
    parts = mean(torch.cat([_real(g).flatten() for g in gradients]))
    for g, part in zip(gradients, parts.split([_real(g).numel() for g in gradients]), strict=True):
        part = part.view(_real(g).shape)
        g.copy_(torch.view_as_complex(part) if g.is_complex() else part)


def _real(gradient: Tensor) -> Tensor:
    return torch.view_as_real(gradient.resolve_conj()) if gradient.is_complex() else gradient


def mean(values: Tensor) -> Tensor:
    """The mean over all processes."""
    if number() > 1:
        dist.all_reduce(values)
        values /= number()
    return values
