"""The steady problems on grids: the settings of their data, what models see, losses and scores.

The card of each data set is the docstring of its generator in `chonn_lab.problems`.
"""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar

import torch
from joblib import cpu_count
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from chonn_lab.experiments.base import (
    ERRORS,
    PDEBENCH_METRICS,
    Data,
    Makers,
    Problem,
    Scores,
    Standardized,
    Units,
    Untrained,
    batches,
    device_of,
    pairs,
    relative_l1,
)
from chonn_lab.experiments.solvers import Physics, SineScheme, block_scheme, cell_scheme, law_scheme
from chonn_lab.problems import (
    darcy,
    darcy_pdebench,
    fno_darcy,
    poisson,
    rectangle,
    unknown_law,
    upscaling,
)
from chonn_ops import Circuit, Dirichlet, diffusion
from chonn_ops.checks import check_choice, check_integer
from chonn_ops.inspect import conductivity_law
from chonn_ops.metrics import MetricAccumulator
from chonn_ops.models import CHONNNetwork2d

FEW_SAMPLES = 64
LAW_BINS = 64


@dataclasses.dataclass(kw_only=True)
class Steady(Problem):
    """One field in, one field out: settings, losses and scores; the problem is the subclass's."""

    resolution: int  # pyright: ignore[reportIncompatibleVariableOverride]
    # Finer grids, on which the trained model is evaluated without retraining, for the same samples.
    # The scores on 128 x 128 are named "at_128".
    test_resolutions: tuple[int, ...]
    # Let the models see and predict fields of about unit size around zero, by the numbers of
    # `Units`. Loss and scores stay in the data's own units.
    standardize: bool
    units: Sequence[Any]
    # Factors of the inputs and of the targets as models see them, and what is subtracted from the
    # targets before.
    rescale: Sequence[float] = (1.0, 1.0, 0.0)
    # The training loss, the validation error and the first score.
    error: str  # pyright: ignore[reportIncompatibleVariableOverride]

    on_finer_grids: ClassVar[bool] = True  # the same samples on every grid
    in_channels: ClassVar[int] = 1
    out_channels: ClassVar[int] = 1
    physics: ClassVar[Physics]
    # The equation solved by the scheme that made the data: a function of the input in float64, or a
    # model; None where the inputs of the models do not suffice for it.
    scheme: ClassVar[Callable[..., Any] | None] = None
    # Keys of `MetricAccumulator.compute`, and "relative_l1_median".
    metrics: ClassVar[tuple[str, ...]] = ("relative_l1", "relative_l1_median", *PDEBENCH_METRICS)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_integer(1, resolution=self.resolution)
        check_choice("error", self.error, ERRORS)
        if self.test_resolutions and not self.on_finer_grids:
            raise ValueError(
                "test_resolutions: expected none, as samples differ from grid to grid, "
                f"got {self.test_resolutions}"
            )

    @property
    def about_unit_size(self) -> Units:
        """Units of the fields."""
        return Units(*self.units)

    def wrap(self, model: nn.Module) -> nn.Module:
        """The model gets fields of about unit size."""
        has_units = hasattr(model, "calibrate") or getattr(model, "in_data_units", False)
        if self.standardize and not has_units:
            model = Standardized(model, self.about_unit_size)
        return Rescaled(model, *self.rescale) if tuple(self.rescale) != (1, 1, 0) else model

    @property
    def options(self) -> dict[str, Any]:  # pyright: ignore[reportIncompatibleVariableOverride]
        # One process makes a few samples in less time than others need to start.
        return {"workers": cpu_count() if self.n_samples > FEW_SAMPLES else 1}

    def further(self) -> dict[str, dict[str, Any]]:
        return {f"at_{n}": {"resolution": n} for n in self.test_resolutions}

    def conductivity(self, x: Tensor) -> Tensor | None:  # noqa: ARG002
        """The true k of homogeneous media with these inputs, (N,), where the input sets it."""
        return None

    def evaluate(self, model: nn.Module, data: Data) -> dict[str, Any]:
        """The law of the medium that a model of one circuit has learned is scored, too."""
        evaluation = super().evaluate(model, data)
        x = data.tests["test"].tensors[0].flatten()
        true = self.conductivity(x)
        if true is not None and isinstance(model, CHONNNetwork2d):
            error, curves = law_error(model, x, true)
            evaluation["metrics"]["law"] = {self.error: error}
            evaluation["curves"] |= curves
        return evaluation

    def scores(self, model: nn.Module, test: TensorDataset) -> Scores:
        accumulator, errors = MetricAccumulator(), []
        # As many points at once on finer grids.
        size = max(1, self.scored_at_once * self.resolution**2 // test.tensors[0][0].numel())
        for source, target in batches(test, size, device_of(model)):
            fields = model(source).float(), target
            errors.append(relative_l1(*fields).double())
            # (B, 1, *space) to the metrics' (batch, *space, time, channels).
            accumulator.update(*(field.movedim(1, -1)[..., None] for field in fields))
        scores = accumulator.compute()
        scores["relative_l1_median"] = float(torch.cat(errors).quantile(0.5))
        # A grid too coarse for a Fourier band has no score there.
        names = dict.fromkeys((self.error, *self.metrics))
        return {name: value for name in names if (value := scores[name]) is not None}, {}


class Rescaled(nn.Module):
    """A model that sees a x and b (y - c) in the place of inputs x and outputs y."""

    def __init__(self, model: Any, a: float, b: float, c: float) -> None:
        super().__init__()
        self.model, self.numbers = model, (a, b, c)
        if hasattr(model, "calibrate"):
            self.calibrate = lambda x, y: model.calibrate(a * x, b * (y - c))

    def forward(self, x: Tensor) -> Tensor:
        a, b, c = self.numbers
        return self.model(a * x) / b + c


class WithHole(nn.Module):
    """A model of `Rectangle` with a hole: ours gets the mask, and the output is 0 in the hole."""

    def __init__(self, model: Any, hole: str) -> None:
        super().__init__()
        self.model, self.hole = model, hole
        if hasattr(model, "calibrate"):
            self.calibrate = lambda x, y: model.calibrate(x, y, mask=self.exists(x))

    def exists(self, x: Tensor) -> Tensor:
        return torch.from_numpy(rectangle.exists(x.shape[-1], self.hole)).to(x.device)

    def forward(self, x: Tensor) -> Tensor:
        there = self.exists(x)
        return self.model(x, mask=there) if hasattr(self, "calibrate") else self.model(x) * there


def law_error(model: Any, x: Tensor, true: Tensor) -> tuple[float, dict[str, list[float]]]:
    """The error of a learned law k(x), and both laws as curves.

    Both are those of homogeneous media, at the points of some data. `LAW_BINS` groups of like x are
    compared by their geometric means. A law is known up to a factor, so the mean logarithms of both
    are subtracted. The error is the mean of ``|k / true - 1|``.
    """
    x, order = x.sort()
    k = conductivity_law(model, x[:, None].to(device_of(model))).cpu().log().mean((1, 2))
    error, true, k = _by_groups(true[order].log(), k)
    places = torch.stack([part.double().mean() for part in x.tensor_split(LAW_BINS)])
    curves = {"law_input": places, "law_true": true.exp(), "law": k.exp()}
    return error, {name: values.tolist() for name, values in curves.items()}


def media_error(model: Any, x: Tensor, true: Circuit) -> float:
    """The same for the faces' conductances in the media of inputs x (B, C, \\*grid), of which
    `true` is the circuit; groups are those of like true conductance."""
    features: list[Any] = []
    hook = model.head.register_forward_pre_hook(lambda _, inputs: features.extend(inputs))
    model(x.to(device_of(model)))
    hook.remove()
    learned, logarithms = model.head.assemble(*features)[0], []
    for circuit in (true, learned):
        faces = (g.cpu().narrow(i, 0, g.shape[i] - 1) for i, g in enumerate(circuit.conductance, 1))
        logarithms.append(torch.cat([g.flatten() for g in faces]).log())
    order = logarithms[0].argsort()
    return _by_groups(*(logs[order] for logs in logarithms))[0]


def _by_groups(true: Tensor, k: Tensor) -> tuple[float, Tensor, Tensor]:
    """Mean of ``|k / true - 1|`` over groups of neighbours in a list of logarithms, and what is
    compared: the groups' means, less the mean of all."""
    true, k = (
        torch.stack([part.double().mean() for part in logs.tensor_split(LAW_BINS)])
        for logs in (true, k)
    )
    true, k = true - true.mean(), k - k.mean()
    return float((k - true).expm1().abs().mean()), true, k


@dataclasses.dataclass(kw_only=True)
class Darcy(Steady):
    """Medium to pressure: PDEBench's with beta = 1 (Fig. 4), and in harder media."""

    coefficient: str  # law of the medium, see `chonn_lab.problems.random_fields`
    contrast: float  # conductivity of one phase over the other's, or the law's own contrast

    generator: ClassVar[Any] = darcy
    physics: ClassVar[Physics] = Physics("coefficient", "centres")

    def scheme(self, x: Tensor) -> Tensor:  # pyright: ignore[reportIncompatibleVariableOverride]
        return cell_scheme(x, self.resolution)

    def conductivity(self, x: Tensor) -> Tensor:
        return x

    @property
    def law(self) -> dict[str, Any]:
        return {"coefficient": self.coefficient, "contrast": self.contrast}

    def further(self) -> dict[str, dict[str, Any]]:
        """Finer grids have the walls of the training grid."""
        margin = {"margin": 0.5 / self.resolution}
        return {name: {**law, **margin} for name, law in super().further().items()}

    @property
    def published(self) -> str | None:  # pyright: ignore[reportIncompatibleVariableOverride]
        fits = self.resolution == 128 and self.n_samples <= 10_000
        name = darcy.default_name(**self.law)
        return name if fits and name == darcy.OFFICIAL_NAME else None


@dataclasses.dataclass(kw_only=True)
class DarcyPDEBench(Darcy):
    """Medium to a late frame of the transient, by PDEBench's own generator."""

    generator: ClassVar[Any] = darcy_pdebench
    on_finer_grids: ClassVar[bool] = False
    options: ClassVar[dict[str, Any]] = {}  # pyright: ignore[reportIncompatibleMethodOverride]
    law: ClassVar[dict[str, Any]] = {}  # pyright: ignore[reportIncompatibleMethodOverride]
    published: ClassVar[str | None] = None  # pyright: ignore[reportIncompatibleMethodOverride]


@dataclasses.dataclass(kw_only=True)
class FNODarcy(Steady):
    """The Darcy flow of the FNO paper, solved on 421 x 421 nodes, every fifth of them seen.

    The published file to train on has 1,024 samples: the last 24 of them validate.
    """

    # Nodes along each axis where it is solved; other resolutions are every so many of them.
    solver_resolution: int

    physics: ClassVar[Physics] = Physics("coefficient", "corners")

    def makers(self, folder: Path) -> Makers:
        """Generated files, of which that to train on may have the name of a published one; beside
        that one the published test file, if it exists."""
        n, resolution = self.n_train + self.n_validation, self.solver_resolution
        train = folder / fno_darcy.file_name("train", n, resolution)
        test = folder / fno_darcy.OFFICIAL_NAMES[1]
        if train.name != fno_darcy.OFFICIAL_NAMES[0] or not test.exists():
            test = folder / fno_darcy.file_name("test", self.n_test, resolution)

        def make_both(_: Path) -> None:
            fno_darcy.generate(folder, n, self.n_test, resolution, **self.options)

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

    physics: ClassVar[Physics] = Physics("source", "corners", strength=1400.0)
    scheme = SineScheme
    metrics: ClassVar[tuple[str, ...]] = (
        *("relative_l1", "relative_l1_median", "range_nrmse", "max_mse"),
    )

    def makers(self, folder: Path) -> Makers:
        """Both files, at their resolution under the published names; then tests on finer grids."""

        def make_both(_: Path) -> None:
            poisson.generate(folder, resolution=self.resolution)

        paths = [folder / poisson.file_name(kind, self.resolution) for kind in ("IN", "OUT")]
        makers: dict[Path, Callable[[Path], object]] = dict.fromkeys(paths, make_both)
        for path, (_, law) in self._finer_tests(folder).items():
            makers[path] = functools.partial(poisson.generate_samples, **law)
        return makers

    def load(self, folder: Path) -> Data:
        splits: dict[str, TensorDataset] = {
            split: pairs(*poisson.read(folder, split, getattr(self, f"n_{split}"), self.resolution))
            for split in poisson.SPLITS
        }
        normalization = poisson.read_normalization(folder, self.resolution)
        for path, (name, law) in self._finer_tests(folder).items():
            splits[name] = pairs(*poisson.read_samples(path, law["samples"], normalization))
        return Data(splits.pop("train"), splits.pop("validation"), splits)

    def _finer_tests(self, folder: Path) -> dict[Path, tuple[str, dict[str, Any]]]:
        """Files of the tests on finer grids, each with its name and settings."""
        files = {}
        for split, prefix in (("test", ""), ("out_of_distribution", "out_of_distribution_")):
            kind, samples = poisson.SPLITS[split]
            samples = samples[: getattr(self, f"n_{split}")]
            for n in self.test_resolutions:
                stem = Path(poisson.file_name(kind, n)).stem
                path = folder / f"{stem}_{samples.start}-{samples.stop - 1}.h5"
                law = {"kind": kind, "samples": samples, "resolution": n}
                files[path] = f"{prefix}at_{n}", law
        return files


@dataclasses.dataclass(kw_only=True)
class Rectangle(Steady):
    """Medium to potential between a wall at 1 and one at 0, in a rectangle, with a hole or not."""

    hole: str  # of `rectangle.HOLES`

    generator: ClassVar[Any] = rectangle
    physics: ClassVar[Physics] = Physics("plate", "centres")

    def wrap(self, model: nn.Module) -> nn.Module:
        model = super().wrap(model)
        known = self.hole == "none" or isinstance(model, Untrained)
        return model if known else WithHole(model, self.hole)

    def scheme(self, x: Tensor) -> Tensor:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The equation by `chonn_ops.diffusion`."""
        k, step = x.movedim(1, -1), rectangle.WIDTH / x.shape[-1]
        walls = ("neumann", (Dirichlet(1.0), Dirichlet(0.0)))
        there = torch.from_numpy(rectangle.exists(x.shape[-1], self.hole))
        circuit = diffusion(k, step, boundary=walls, mask=there, inner="neumann")
        return circuit.solve(torch.zeros_like(k)).movedim(-1, 1)

    @property
    def law(self) -> dict[str, Any]:
        return {"hole": self.hole}


@dataclasses.dataclass(kw_only=True)
class BeyondSolvers(Steady):
    """Fields at the centres of R x R cells to the pressure there."""

    on_finer_grids: ClassVar[bool] = False
    options: ClassVar[dict[str, Any]] = {}  # pyright: ignore[reportIncompatibleMethodOverride]
    cells: ClassVar[int] = 1  # of the generator, along each axis of a cell of the models

    def laws(self) -> dict[str, dict[str, Any]]:
        return {"": {"resolution": self.cells * self.resolution, **self.sizes}}

    def load(self, folder: Path) -> Data:
        (path,) = self.makers(folder)
        splits = (self.generator.read(path, split) for split in upscaling.SPLITS)
        train, validation, test = (
            TensorDataset(self.inputs(samples).float(), torch.tensor(samples.u).float()[:, None])
            for samples in splits
        )
        return Data(train, validation, {"test": test})

    def inputs(self, samples: Any) -> Tensor:
        """What models see of the generator's samples, (S, C, R, R)."""
        raise NotImplementedError


@dataclasses.dataclass(kw_only=True)
class Upscaling(BeyondSolvers):
    """The values of k in the block of each coarse cell to the mean of u there."""

    generator: ClassVar[Any] = upscaling
    cells: ClassVar[int] = upscaling.PATCH
    in_channels: ClassVar[int] = upscaling.PATCH**2
    physics: ClassVar[Physics] = Physics("medium in blocks", "centres")
    scheme = staticmethod(block_scheme)

    def inputs(self, samples: upscaling.Samples) -> Tensor:
        return upscaling.blocks(torch.from_numpy(samples.k))

    def load(self, folder: Path) -> Data:
        """The test samples of each kind are further splits."""
        data = super().load(folder)
        (path,), test = self.makers(folder), data.tests["test"]
        kind, kinds = upscaling.read(path, "test").kind, enumerate(upscaling.KINDS)
        apart = {name: TensorDataset(*test[kind == number]) for number, name in kinds}
        return dataclasses.replace(data, tests={"test": test, **apart})


@dataclasses.dataclass(kw_only=True)
class UnknownLaw(BeyondSolvers):
    """Porosity to pressure; `own_scheme` knows the law, without the noise that nobody sees."""

    generator: ClassVar[Any] = unknown_law
    physics: ClassVar[Physics] = Physics("porosity", "centres")
    scheme = staticmethod(law_scheme)

    def conductivity(self, x: Tensor) -> Tensor:
        return torch.from_numpy(unknown_law.law(x[:, None, None].numpy())).flatten()

    def evaluate(self, model: nn.Module, data: Data) -> dict[str, Any]:
        """Homogeneous media are none of the data, so the law is read in these media, too."""
        evaluation = super().evaluate(model, data)
        if isinstance(model, CHONNNetwork2d):
            x = data.tests["test"].tensors[0]
            k = torch.from_numpy(unknown_law.law(x[:, 0].numpy()))[..., None]
            error = media_error(model, x, diffusion(k, 1 / x.shape[-1], boundary="dirichlet"))
            evaluation["metrics"]["law_in_media"] = {self.error: error}
        return evaluation

    def inputs(self, samples: unknown_law.Samples) -> Tensor:
        return torch.from_numpy(samples.porosity)[:, None]
