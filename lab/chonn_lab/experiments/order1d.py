"""Order-defined benchmark: blocks of order n against n first-order blocks.

Targets are powers n = 1..4 of one first-order operator. The paper compares a block of order n with
a stack of n blocks of order 1 and the same width, which has about twice as many parameters, and at
"similar parameter budgets" stacks of blocks of orders 2 and 3. All scans start from rest.

Scores are means of the relative errors of samples. ``point`` is the paper's, and so is
``derivative``, with the difference to the next point of the periodic grid. ``spectral`` is its
formula on the one-sided discrete Fourier transform. On the whole transform it would be ``point``
once more, by Parseval's theorem; the one-sided one differs as it counts the mean and the highest
mode once, like the others, which have a twin on the other side.
"""

import dataclasses
from pathlib import Path
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from chonn_lab.experiments.base import Data, Makers, Problem, Scores, batches, device_of, pairs
from chonn_lab.problems import order1d
from chonn_ops.checks import check_choice


def scores(prediction: Tensor, target: Tensor) -> dict[str, Tensor]:
    """The paper's three errors of every sample of (B, 1, L), shape (B,) each."""
    prediction, target = prediction.double(), target.double()
    error = prediction - target
    views = {
        "point": lambda y: y,
        "spectral": torch.fft.rfft,
        "derivative": lambda y: y.roll(-1, dims=-1) - y,
    }

    def norm(y: Tensor) -> Tensor:
        return y.flatten(1).norm(dim=1)

    return {name: norm(view(error)) / norm(view(target)) for name, view in views.items()}


@dataclasses.dataclass(kw_only=True)
class Order1d(Problem):
    """Signal to its response under the n-th power of a first-order operator."""

    target: int  # n of the operator to learn, 1 to 4

    scored_at_once: ClassVar[int] = 256

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("target", self.target, order1d.ORDERS)

    def makers(self, folder: Path) -> Makers:
        return {folder / order1d.DEFAULT_NAME: order1d.generate}

    def load(self, folder: Path) -> Data:
        (path,) = self.makers(folder)
        train, validation, test = (
            pairs(*order1d.read(path, split, self.target, self.sizes[f"n_{split}"]))
            for split in order1d.SIZES
        )
        return Data(train, validation, {"test": test})

    def scores(self, model: nn.Module, test: TensorDataset) -> Scores:
        rows = [
            scores(model(source).cpu(), target.cpu())
            for source, target in batches(test, self.scored_at_once, device_of(model))
        ]
        return {name: float(torch.cat([row[name] for row in rows]).mean()) for name in rows[0]}, {}
