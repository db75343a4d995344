"""Darcy flow: PDEBench's with beta = 1 (Fig. 4), in harder media, and FNO's.

The card of each data set is the docstring of its generator in `chonn_lab.problems`.
"""

from __future__ import annotations

import dataclasses
import functools
from pathlib import Path
from typing import Any, ClassVar

from chonn_lab.experiments.base import Data, Makers
from chonn_lab.experiments.solvers import OwnScheme, Physics, cell_scheme
from chonn_lab.experiments.steady import Steady, pairs
from chonn_lab.problems import darcy, fno_darcy, origin
from chonn_lab.problems.domains import cell_centres, nodes

OFFICIAL_RESOLUTION = 128
PAPER_SAMPLES = 1000


@dataclasses.dataclass(kw_only=True)
class Darcy(Steady):
    """Medium to pressure.

    Parameters
    ----------
    coefficient : str
        Law of the medium, see `chonn_lab.problems.random_fields`.
    contrast : float
        Conductivity of one phase over the other's, or the law's own contrast.
    """

    coefficient: str
    contrast: float

    on_domains: ClassVar[bool] = True
    coordinates = staticmethod(cell_centres)
    physics: ClassVar[Physics] = Physics("coefficient", "centres")

    def own_scheme(self) -> OwnScheme:
        return OwnScheme(functools.partial(cell_scheme, resolution=self.resolution))

    def makers(self, folder: Path) -> Makers:
        """PDEBench's file at its resolution, otherwise a name with the sizes; then the test samples
        on finer grids, with the walls of the training grid."""
        size, first = self.resolution, self.n_train + self.n_validation
        law = {"coefficient": self.coefficient, "contrast": self.contrast}
        medium: dict[str, Any] = {"domain": self.domain, **law}
        name = darcy.default_name(**medium)
        stem = Path(name).stem
        fits = size == OFFICIAL_RESOLUTION and self.n_samples <= PAPER_SAMPLES
        if not fits or name != darcy.OFFICIAL_NAME:
            name = f"{stem}_{size}x{size}_{self.n_samples}.hdf5"
        wanted = {name: {**medium, "n_samples": self.n_samples, "resolution": size}}
        walls = {**medium, "n_samples": self.n_test, "first": first, "margin": 0.5 / size}
        for n in self.test_resolutions:
            which = f"{first}-{first + self.n_test - 1}_walls{size}"
            wanted[f"{stem}_{n}x{n}_{which}.hdf5"] = {**walls, "resolution": n}
        return self.files(folder, darcy.generate, wanted)

    def load(self, folder: Path) -> Data:
        return self.with_finer(folder, lambda path, n: darcy.read(path, 0, n, self.domain))


@dataclasses.dataclass(kw_only=True)
class FNODarcy(Steady):
    """The Darcy flow of the FNO paper, solved on 421 x 421 nodes, every fifth of them seen.

    The published file to train on has 1,024 samples: the last 24 of them validate.

    Parameters
    ----------
    solver_resolution : int
        Nodes along each axis where it is solved; `resolution` and `test_resolutions` are every so
        many of them.
    """

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
