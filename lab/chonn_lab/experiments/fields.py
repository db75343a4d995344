"""The steady problems on grids: the settings of their data, and what models see of them.

The card of each data set is the docstring of its generator in `chonn_lab.problems`.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from chonn_lab.experiments.base import Data, Makers, consecutive, file_of, or_published
from chonn_lab.experiments.modules import Units
from chonn_lab.experiments.solvers import (
    OwnScheme,
    Physics,
    SineScheme,
    block_scheme,
    cell_scheme,
    corner_scheme,
    law_scheme,
    wave_scheme,
)
from chonn_lab.experiments.steady import Steady, pairs
from chonn_lab.problems import (
    condiff,
    darcy,
    fno_darcy,
    helmholtz_open,
    origin,
    poisson,
    unknown_law,
    upscaling,
)
from chonn_lab.problems.grids import cell_centres, nodes


@dataclasses.dataclass(kw_only=True)
class Drawn(Steady):
    """Problems with a file of all samples, and one of the test samples on each finer grid."""

    generator: ClassVar[ModuleType]

    def laws(self) -> dict[str, dict[str, Any]]:
        """Settings of the generator's files: all samples, ``""``, and further test splits."""
        raise NotImplementedError

    def finer(self, **law: Any) -> dict[str, dict[str, Any]]:
        """Those of the test samples on finer grids."""
        test = {"n_samples": self.n_test, "first": self.n_train + self.n_validation, **law}
        return {f"at_{n}": {**test, "resolution": n} for n in self.test_resolutions}

    def read(self, path: Path, n_samples: int) -> tuple[Tensor, ...]:
        """Inputs and outputs (N, C, R, R) of the first samples of a file."""
        return pairs(*self.generator.read(path, 0, n_samples)).tensors

    def makers(self, folder: Path) -> Makers:
        made: dict[Path, Callable[[Path], object]] = {}
        for law in self.laws().values():
            made |= file_of(folder, self.generator.generate, law, workers=self.workers)
        return made

    def load(self, folder: Path) -> Data:
        found = {}
        for path, (name, law) in zip(self.makers(folder), self.laws().items(), strict=True):
            n, points = law["n_samples"], law["resolution"]
            fields = self.read(path, n)
            if any(field.shape[2:] != (points, points) for field in fields):
                shapes = [tuple(field.shape) for field in fields]
                raise ValueError(f"{path}: expected {n} of {points}^2, got {shapes}")
            found[name] = TensorDataset(*fields)
        data = consecutive(self, *found.pop("").tensors)
        return dataclasses.replace(data, tests={**data.tests, **found})


@dataclasses.dataclass(kw_only=True)
class Darcy(Drawn):
    """Medium to pressure: PDEBench's with beta = 1 (Fig. 4), and in harder media."""

    coefficient: str  # law of the medium, see `chonn_lab.problems.random_fields`
    contrast: float  # conductivity of one phase over the other's, or the law's own contrast

    generator: ClassVar[ModuleType] = darcy
    coordinates = staticmethod(cell_centres)
    physics: ClassVar[Physics] = Physics("coefficient", "centres")

    def own_scheme(self) -> OwnScheme:
        return OwnScheme(functools.partial(cell_scheme, resolution=self.resolution))

    def laws(self) -> dict[str, dict[str, Any]]:
        """Finer grids have the walls of the training grid."""
        law = {"coefficient": self.coefficient, "contrast": self.contrast}
        every = {"n_samples": self.n_samples, "resolution": self.resolution, **law}
        return {"": every, **self.finer(**law, margin=0.5 / self.resolution)}

    def makers(self, folder: Path) -> Makers:
        usual = self.coefficient, self.contrast
        fits = darcy.default_name(*usual) == darcy.OFFICIAL_NAME
        fits = fits and self.resolution == 128 and self.n_samples <= 10_000
        return or_published(super().makers(folder), folder / darcy.OFFICIAL_NAME, fits)


@dataclasses.dataclass(kw_only=True)
class ConDiff(Drawn):
    """Coefficient and source to solution.

    Models see all cells of the coefficient but the last row and column, as ConDiff's models do. At
    each node they get the four cells around it, the first of which is ConDiff's own input; copies
    stand for the missing ones. With that one alone networks had an error of 0.21 to 0.36 instead of
    0.165, and F-FNO the same 0.34 (cubic, variance 2). ConDiff's models minimise the L2 error
    itself and are compared by the relative one.
    """

    # Of the logarithm of the coefficient, see the card.
    covariance: str
    variance: float

    generator: ClassVar[ModuleType] = condiff
    on_finer_grids: ClassVar[bool] = False
    fields_in: ClassVar[int] = 5
    coordinates = staticmethod(condiff.corners)
    physics: ClassVar[Physics] = Physics("coefficient and source", "centres")

    def __post_init__(self) -> None:
        super().__post_init__()
        condiff.check_medium(self.covariance, self.variance)

    @property
    def about_unit_size(self) -> Units:
        """Mean and deviation of the log-normal law, without the limits on the contrast. That of u
        is nearly 0.06 over R + 1, at every covariance and variance."""
        mean = math.exp(self.variance / 2)
        deviation = mean * math.sqrt(math.expm1(self.variance))
        spread = 0.06 / (self.resolution + 1)
        return Units((*[mean] * 4, 0.0), (*[deviation] * 4, 1.0), 0.0, spread)

    def own_scheme(self) -> OwnScheme:
        return OwnScheme(corner_scheme)

    def laws(self) -> dict[str, dict[str, Any]]:
        law = {"covariance": self.covariance, "variance": self.variance}
        return {"": {"n_samples": self.n_samples, "resolution": self.resolution, **law}}

    def read(self, path: Path, n_samples: int) -> tuple[Tensor, ...]:
        k, f, u = condiff.read(path, 0, n_samples)
        k = nn.functional.pad(k[:, :-1, :-1], [0, 1, 0, 1], mode="replicate")
        around = k[:, :-1, :-1], k[:, 1:, :-1], k[:, :-1, 1:], k[:, 1:, 1:]
        return torch.stack((*around, f), dim=1), u[:, None]


@dataclasses.dataclass(kw_only=True)
class HelmholtzOpen(Drawn):
    """Wave number and source to outgoing waves, real and imaginary part."""

    # Other wave numbers, at which the trained model is evaluated on the test samples. The scores at
    # 24 are named "at_wavenumber_24".
    test_wavenumbers: tuple[float, ...]

    generator: ClassVar[ModuleType] = helmholtz_open
    coordinates = staticmethod(cell_centres)
    physics: ClassVar[Physics] = Physics("wave number", "centres")
    fields_in: ClassVar[int] = 2
    fields_out: ClassVar[int] = 2
    # "matched" walls alone reflect oblique waves: 0.075 without the margin (one seed).
    boundary: ClassVar[str | None] = "matched"
    margin: ClassVar[float] = 0.125

    def own_scheme(self) -> OwnScheme:
        layer = {"layer": helmholtz_open.LAYER, "attenuation": helmholtz_open.ATTENUATION}
        return OwnScheme(functools.partial(wave_scheme, **layer))

    def laws(self) -> dict[str, dict[str, Any]]:
        known = {"wavenumber": helmholtz_open.WAVENUMBER}
        every = {"n_samples": self.n_samples, "resolution": self.resolution, **known}
        test = {**every, "n_samples": self.n_test, "first": self.n_train + self.n_validation}
        others = {f"at_wavenumber_{k:g}": {**test, "wavenumber": k} for k in self.test_wavenumbers}
        return {"": every, **self.finer(**known), **others}

    def read(self, path: Path, n_samples: int) -> tuple[Tensor, ...]:
        return helmholtz_open.read(path, 0, n_samples)


@dataclasses.dataclass(kw_only=True)
class FNODarcy(Steady):
    """The Darcy flow of the FNO paper, solved on 421 x 421 nodes, every fifth of them seen.

    The published file to train on has 1,024 samples: the last 24 of them validate.
    """

    # Nodes along each axis where it is solved; other resolutions are every so many of them.
    solver_resolution: int

    coordinates = staticmethod(nodes)
    physics: ClassVar[Physics] = Physics("coefficient", "corners")

    def check_finer(self) -> None:
        steps = self.solver_resolution - 1
        for n in (self.resolution, *self.test_resolutions):
            if n < 2 or steps % (n - 1):
                raise ValueError(
                    f"resolution, test_resolutions: expected 1 + divisors of {steps} "
                    f"(solver_resolution - 1), got {n}"
                )

    def makers(self, folder: Path) -> Makers:
        """Both published files if the one for training exists, otherwise generated ones."""
        n, resolution = self.n_train + self.n_validation, self.solver_resolution
        train = folder / fno_darcy.file_name("train", n, resolution)
        test = folder / fno_darcy.file_name("test", self.n_test, resolution)
        named = train.name in fno_darcy.OFFICIAL_NAMES and train.exists()
        if published := named and origin.read(train).generator is None:
            test = folder / fno_darcy.OFFICIAL_NAMES[1]

        def make_both(_: Path) -> None:
            if published:
                raise FileNotFoundError(f"{test}: expected beside the published {train.name}")
            fno_darcy.generate(folder, n, self.n_test, resolution, workers=self.workers)

        return {train: make_both, test: make_both}

    def load(self, folder: Path) -> Data:
        train, test = self.makers(folder)
        start, stop = self.n_train, self.n_train + self.n_validation
        grids = {"test": self.resolution, **{f"at_{n}": n for n in self.test_resolutions}}
        return Data(
            pairs(*fno_darcy.read(train, self.resolution, 0, start)),
            pairs(*fno_darcy.read(train, self.resolution, start, stop)),
            {name: pairs(*fno_darcy.read(test, n, 0, self.n_test)) for name, n in grids.items()},
        )


@dataclasses.dataclass(kw_only=True)
class Poisson(Steady):
    """Source to solution, in the distribution of the training sources and outside.

    Fields are normalised to [0, 1] with the ranges of the training samples and all errors are those
    of normalised fields, as published: about a seventh of what they are for the solution itself,
    since predicting u = 0 everywhere scores 14.7% (median relative L1; 10.0% out of distribution).
    """

    n_out_of_distribution: int  # samples with K = 20

    coordinates = staticmethod(nodes)
    physics: ClassVar[Physics] = Physics("source", "corners", strength=1400.0)
    metrics: ClassVar[tuple[str, ...]] = (
        *("relative_l1", "relative_l1_median", "range_nrmse", "max_mse"),
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_least(3, "resolution")
        for split, (_, samples) in poisson.SPLITS.items():
            if not 1 <= (n := getattr(self, f"n_{split}")) <= len(samples):
                raise ValueError(f"n_{split}: expected 1 to {len(samples)}, got {n}")

    def own_scheme(self) -> SineScheme:
        return SineScheme()

    def makers(self, folder: Path) -> Makers:
        """Both files, at their resolution under the published names; then tests on finer grids."""
        grid = self.resolution
        paths = [folder / poisson.file_name(kind, grid) for kind in ("IN", "OUT")]

        def make_both(_: Path) -> None:
            poisson.generate(folder, resolution=grid)

        made: dict[Path, Callable[[Path], object]] = dict.fromkeys(paths, make_both)
        for _, kind, samples, n in self._finer_tests():
            stem = Path(poisson.file_name(kind, n)).stem
            made[folder / f"{stem}_{samples.start}-{samples.stop - 1}.h5"] = (
                lambda path, law=(kind, samples, n): poisson.generate_samples(path, *law)
            )
        return made

    def load(self, folder: Path) -> Data:
        splits: dict[str, TensorDataset] = {
            split: pairs(*poisson.read(folder, split, getattr(self, f"n_{split}"), self.resolution))
            for split in poisson.SPLITS
        }
        normalization = poisson.read_normalization(folder, self.resolution)
        finer = tuple(self.makers(folder))[2:]
        for path, (name, _, samples, _) in zip(finer, self._finer_tests(), strict=True):
            fields = poisson.read_samples(path, samples, normalization)
            splits[name] = pairs(*fields)
        return Data(splits.pop("train"), splits.pop("validation"), splits)

    def _finer_tests(self) -> Iterator[tuple[str, str, range, int]]:
        """For each test on a finer grid: name, kind, numbers of the samples, resolution."""
        for split, prefix, n in (
            ("test", "", self.n_test),
            ("out_of_distribution", "out_of_distribution_", self.n_out_of_distribution),
        ):
            kind, samples = poisson.SPLITS[split]
            for resolution in self.test_resolutions:
                yield f"{prefix}at_{resolution}", kind, samples[:n], resolution


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
        law = {"resolution": self.cells * self.resolution, **self.sizes}
        return file_of(folder, self.generator.generate, law)

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
