"""Poisson's equation with sine-series sources: the order of the blocks, and other models.

Fields are normalised to [0, 1] with the ranges of the training samples and all errors are those of
normalised fields, as published: about a seventh of what they are for the solution itself, since
predicting u = 0 everywhere scores 14.7% (median relative L1; 10.0% out of distribution).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import ClassVar

from torch.utils.data import TensorDataset

from chonn_lab.experiments.base import Data, Makers
from chonn_lab.experiments.solvers import Physics, SineScheme
from chonn_lab.experiments.steady import Steady, pairs
from chonn_lab.problems import poisson
from chonn_lab.problems.domains import nodes


@dataclasses.dataclass(kw_only=True)
class Poisson(Steady):
    """Source to solution, in the distribution of the training sources and outside.

    Parameters
    ----------
    n_out_of_distribution : int
        Samples with K = 20.
    """

    n_out_of_distribution: int

    on_domains: ClassVar[bool] = True
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
        paths = [folder / poisson.file_name(kind, grid, self.domain) for kind in ("IN", "OUT")]

        def make_both(_: Path) -> None:
            poisson.generate(folder, resolution=grid, domain=self.domain)

        made: dict[Path, Callable[[Path], object]] = dict.fromkeys(paths, make_both)
        for _, kind, samples, n in self._finer_tests():
            stem = Path(poisson.file_name(kind, n, self.domain)).stem
            made[folder / f"{stem}_{samples.start}-{samples.stop - 1}.h5"] = (
                lambda path, law=(kind, samples, n): poisson.generate_samples(
                    path, *law, self.domain
                )
            )
        return made

    def load(self, folder: Path) -> Data:
        grid = self.resolution, self.domain
        splits: dict[str, TensorDataset] = {
            split: pairs(*poisson.read(folder, split, getattr(self, f"n_{split}"), *grid))
            for split in poisson.SPLITS
        }
        normalization = poisson.read_normalization(folder, *grid)
        finer = tuple(self.makers(folder))[2:]
        for path, (name, _, samples, _) in zip(finer, self._finer_tests(), strict=True):
            fields = poisson.read_samples(path, samples, normalization, self.domain)
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
