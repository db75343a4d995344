"""Helmholtz' equation: in a closed square, where resistors must fail, and in open space.

Networks at a frequency have coils and capacitors, whose admittances have both signs.
"""

from __future__ import annotations

import dataclasses
import functools
from pathlib import Path
from typing import ClassVar

from torch.utils.data import TensorDataset

from chonn_lab.experiments.base import Data, Makers, consecutive
from chonn_lab.experiments.solvers import OwnScheme, Physics, wave_scheme
from chonn_lab.experiments.steady import Steady
from chonn_lab.problems import helmholtz, helmholtz_open
from chonn_lab.problems.domains import cell_centres


@dataclasses.dataclass(kw_only=True)
class Helmholtz(Steady):
    """Wave number to wave; samples are the same on every grid.

    The inverse of a resistor network's matrix has no negative entry, so a positive source gives a
    solution without negative values. About two thirds of the absolute value of these solutions is
    negative, and no field without negative values has a relative L1 error below that.
    """

    coordinates = staticmethod(cell_centres)
    physics: ClassVar[Physics] = Physics("wave number", "centres")

    def own_scheme(self) -> OwnScheme:
        return OwnScheme(wave_scheme)

    def makers(self, folder: Path) -> Makers:
        """All samples; then the test samples on finer grids."""
        first, size = self.n_train + self.n_validation, self.resolution
        name = f"{Path(helmholtz.default_name(size)).stem}_{self.n_samples}.hdf5"
        wanted = {name: {"n_samples": self.n_samples, "resolution": size}}
        test = {"n_samples": self.n_test, "first": first, "drawn_at": size}
        for n in self.test_resolutions:
            which = f"{first}-{first + self.n_test - 1}_drawn{size}"
            name = f"{Path(helmholtz.default_name(n)).stem}_{which}.hdf5"
            wanted[name] = {**test, "resolution": n}
        return self.files(folder, helmholtz.generate, wanted)

    def load(self, folder: Path) -> Data:
        return self.with_finer(folder, lambda path, n: helmholtz.read(path, 0, n))


@dataclasses.dataclass(kw_only=True)
class HelmholtzOpen(Helmholtz):
    """Wave number and source to outgoing waves, real and imaginary part.

    Parameters
    ----------
    test_wavenumbers : tuple of float
        Other wave numbers, at which the trained model is evaluated on the test samples. The scores
        at 24 are named "at_wavenumber_24".
    """

    test_wavenumbers: tuple[float, ...]

    fields_in: ClassVar[int] = 2
    fields_out: ClassVar[int] = 2
    # "matched" walls alone reflect oblique waves: 0.075 without the margin (one seed).
    boundary: ClassVar[str | None] = "matched"
    margin: ClassVar[float] = 0.125

    def own_scheme(self) -> OwnScheme:
        layer = {"layer": helmholtz_open.LAYER, "attenuation": helmholtz_open.ATTENUATION}
        return OwnScheme(functools.partial(wave_scheme, **layer))

    def makers(self, folder: Path) -> Makers:
        """All samples; then the test samples on finer grids, and at other wave numbers."""
        first, size = self.n_train + self.n_validation, self.resolution
        known = helmholtz_open.WAVENUMBER
        grids = [(self.n_samples, size, known, 0)]
        grids += [(self.n_test, n, known, first) for n in self.test_resolutions]
        grids += [(self.n_test, size, k, first) for k in self.test_wavenumbers]
        wanted = {}
        for law in grids:
            count, n, k, start = law
            stem = Path(helmholtz_open.default_name(n, k)).stem
            names = ("n_samples", "resolution", "wavenumber", "first")
            wanted[f"{stem}_{start}-{start + count - 1}.hdf5"] = dict(zip(names, law, strict=True))
        return self.files(folder, helmholtz_open.generate, wanted)

    def load(self, folder: Path) -> Data:
        path, *further = self.makers(folder)
        data = consecutive(self, *helmholtz_open.read(path, 0, self.n_samples))
        names = [f"at_{n}" for n in self.test_resolutions]
        names += [f"at_wavenumber_{k:g}" for k in self.test_wavenumbers]
        tests = {
            name: TensorDataset(*helmholtz_open.read(file, 0, self.n_test))
            for name, file in zip(names, further, strict=True)
        }
        return dataclasses.replace(data, tests={**data.tests, **tests})
