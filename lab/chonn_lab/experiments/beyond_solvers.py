"""Problems that no solver takes over: upscaling of a fine medium, and an unknown law.

The card of each data set is the docstring of its generator in `chonn_lab.problems`. Models see the
logarithms of the positive inputs, but for networks of resistors, which take them themselves.
"""

from __future__ import annotations

import dataclasses
import functools
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.utils.data import TensorDataset

from chonn_lab.experiments.base import Data, Makers
from chonn_lab.experiments.modules import Units
from chonn_lab.experiments.solvers import OwnScheme, Physics, block_scheme, law_scheme
from chonn_lab.experiments.steady import Steady
from chonn_lab.problems import unknown_law, upscaling


@dataclasses.dataclass(kw_only=True)
class BeyondSolvers(Steady):
    """Fields at the centres of R x R cells to the pressure there."""

    on_finer_grids: ClassVar[bool] = False
    generator: ClassVar[ModuleType]
    cells: ClassVar[int] = 1  # of the generator, along each axis of a cell of the models

    @property
    def about_unit_size(self) -> Units:
        return super().about_unit_size._replace(logarithm=True)

    def makers(self, folder: Path) -> Makers:
        points = self.cells * self.resolution
        name = f"{self.name}_{points}_{'+'.join(map(str, self.sizes.values()))}.h5"
        make = functools.partial(self.generator.generate, resolution=points, **self.sizes)
        return {folder / name: make}

    def load(self, folder: Path) -> Data:
        (path,) = self.makers(folder)
        found = [self.generator.read(path, split) for split in upscaling.SPLITS]
        train, validation, test = (
            TensorDataset(self.inputs(samples).float(), torch.tensor(samples.u).float()[:, None])
            for samples in found
        )
        return Data(train, validation, {"test": test, **self.kinds(test, found[-1])})

    def inputs(self, samples: Any) -> Tensor:
        """What models see of the generator's samples, (S, C, R, R)."""
        raise NotImplementedError

    def kinds(self, test: TensorDataset, samples: Any) -> dict[str, TensorDataset]:  # noqa: ARG002
        """The test samples of each kind, where there are several."""
        return {}


@dataclasses.dataclass(kw_only=True)
class Upscaling(BeyondSolvers):
    """The values of k in the block of each coarse cell to the mean of u there."""

    generator: ClassVar[ModuleType] = upscaling
    cells: ClassVar[int] = upscaling.PATCH
    fields_in: ClassVar[int] = upscaling.PATCH**2
    physics: ClassVar[Physics] = Physics("medium in blocks", "centres")

    def own_scheme(self) -> OwnScheme:
        return OwnScheme(block_scheme)

    def inputs(self, samples: upscaling.Samples) -> Tensor:
        return upscaling.blocks(torch.from_numpy(samples.k))

    def kinds(self, test: TensorDataset, samples: upscaling.Samples) -> dict[str, TensorDataset]:
        kinds = enumerate(upscaling.KINDS)
        return {name: TensorDataset(*test[samples.kind == number]) for number, name in kinds}


@dataclasses.dataclass(kw_only=True)
class UnknownLaw(BeyondSolvers):
    """Porosity to pressure; `own_scheme` knows the law, without the noise that nobody sees."""

    generator: ClassVar[ModuleType] = unknown_law
    physics: ClassVar[Physics] = Physics("porosity", "centres")

    def own_scheme(self) -> OwnScheme:
        return OwnScheme(law_scheme)

    def inputs(self, samples: unknown_law.Samples) -> Tensor:
        return torch.from_numpy(samples.porosity)[:, None]
