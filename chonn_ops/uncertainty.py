"""Bands around the predictions of any model of fields, with the coverage of split conformal
prediction.

A band is ``prediction +- scale * spread``. The spread says where errors are large: it is constant,
the standard deviation of an `Ensemble`, or a model that `fit_spread` has trained. Calibration
samples, which the model was not trained on, set the scale. Whatever model and spread are, the bands
of a new sample then have the stated coverage on average over draws of the calibration samples and
the new one, provided that these are exchangeable (drawn from one distribution). For inputs of
another distribution nothing is guaranteed.

The points of a field are not exchangeable with each other, so no guarantee counts them as samples.
With ratios ``r = |target - prediction| / spread`` at the P points of n calibration samples there
are two guarantees:

- On average over points and samples (default), by conformal risk control [1]_: the scale is the
  least number that ``r`` exceeds at no more than a share ``(1 - level)(n + 1) / n - 1 / n`` of all
  points, the mean over the samples. The expected share of points in the band of a new sample is
  then at least `level`, and at most ``2 / (n + 1)`` above it where no ratios are equal.
- Sample by sample, by split conformal prediction [2]_: the scale is the
  ``ceil((n + 1) level)``-th smallest of the samples' ``share``-quantiles of ``r``. With probability
  at least `level` the band of a new sample then holds at least that `share` of its points. This
  is the coverage of neuraloperator's UQNO [3]_ with ``alpha = 1 - share`` and
  ``delta = 1 - level``; ``share=1`` gives bands that hold whole fields.

For P = 1 both are the split conformal intervals of a number.

References
----------
.. [1] A. Angelopoulos, S. Bates, A. Fisch, L. Lei and T. Schuster, "Conformal Risk Control", ICLR
   2024, Theorems 1 and 2.
.. [2] J. Lei, M. G'Sell, A. Rinaldo, R. Tibshirani and L. Wasserman, "Distribution-Free Predictive
   Inference for Regression", JASA 113, 2018, sections 2.2 and 5.2.
.. [3] Z. Ma, D. Pitt, K. Azizzadenesheli and A. Anandkumar, "Calibrated Uncertainty Quantification
   for Operator Learning via Conformal Prediction", TMLR, 2024.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset, IterableDataset

from chonn_ops._dtypes import widened
from chonn_ops.checks import (
    check_axes,
    check_each,
    check_integer,
    check_number,
    check_open_unit_interval,
    error,
    numbers_of,
)

__all__ = [
    "Band",
    "Bands",
    "Coverage",
    "Ensemble",
    "conformal",
    "conformal_scale",
    "fit_spread",
    "samples_needed",
]

# A learned spread stays within these powers of e around its mean error.
_EXPONENTS = 10.0
# Arguments of a model for a batch of samples, and their target.
_Batch = tuple[tuple[Any, ...], dict[str, Any], Tensor]


class Band(NamedTuple):
    """The prediction of a model and the ends of its band, three fields of one shape. The ends are
    float64, on "mps" float32."""

    prediction: Tensor
    lower: Tensor
    upper: Tensor


class Coverage(NamedTuple):
    """Coverage and width of bands at N samples with known targets: the share of the points of each
    sample that lie in its band, (N,), and the mean width of each sample's band, in the unit of the
    field, (N,)."""

    shares: Tensor
    widths: Tensor


class Ensemble(nn.Module):
    """Models of the same fields; predicts their mean.

    Parameters
    ----------
    models : sequence of nn.Module
        At least 2, called alike: one architecture trained from several seeds, for example.

    Raises
    ------
    ValueError
        For fewer than 2 models, and for one model twice.
    """

    def __init__(self, models: Sequence[nn.Module]) -> None:
        super().__init__()
        models = list(models)
        if len(models) < 2:
            raise error("models", "at least 2", len(models))
        if len(set(map(id, models))) < len(models):
            raise error("models", "different models, whose predictions spread", "one of them twice")
        self.models = nn.ModuleList(models)

    def forward(self, *args: Any, **kwargs: Any) -> Tensor:
        """The mean of the models' predictions, whose arguments these are."""
        return self.mean_and_spread(*args, **kwargs)[0]

    def mean_and_spread(self, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        """Mean and spread of the predictions.

        The standard deviation of two or three numbers is often near zero by chance. The spread is
        therefore the root of the mean of two variances, the one at the point and its average over
        the sample.
        """
        members = [_checked(model(*args, **kwargs)) for model in self.models]
        for prediction in members:
            if prediction.shape != members[0].shape:
                wanted = f"predictions of one shape, {tuple(members[0].shape)}"
                raise error("models", wanted, tuple(prediction.shape))
        predictions = torch.stack(members)
        # Squares may be beyond the precision of fields: those of 300 are infinite in float16.
        variance = widened(predictions).var(dim=0)
        average = _per_sample(_points(variance).mean(dim=1), variance)
        spread = ((variance + average) / 2).sqrt()
        return predictions.mean(dim=0), spread.to(predictions.dtype)


class Bands(nn.Module):
    """A model with bands around its predictions; `conformal` makes them.

    Parameters
    ----------
    model : nn.Module
        From fields (B, ...) to a field (B, ...).
    spread : nn.Module, optional
        Called as the model is; returns the spread, of the prediction's shape and at least 0. By
        default an `Ensemble` gives its own, and other models have the spread 1.
    scale : float
        Half the width of a band where the spread is 1. A buffer, saved with the weights.
    """

    scale: Tensor

    def __init__(self, model: nn.Module, spread: nn.Module | None = None, scale: float = 1) -> None:
        super().__init__()
        check_number(scale=scale)
        if not 0 <= scale < math.inf:
            raise error("scale", "at least 0, and finite", scale)
        self.model, self.spread = model, spread
        self.register_buffer("scale", torch.tensor(float(scale)))

    def forward(self, *args: Any, **kwargs: Any) -> Band:
        """Prediction and band; arguments are the model's.

        Model and spread are evaluated in evaluation mode and then have the modes that they had.
        """
        with _evaluating(self):
            prediction, spread = self._predict(*args, **kwargs)
        # Around 10^6 numbers of float32 are a sixteenth apart, and around 100 those of bfloat16 are
        # half a unit apart. Bands may be narrower: rounded ends would hold all targets or none.
        middle, half = widened(prediction), widened(self.scale) * widened(spread)
        return Band(prediction, middle - half, middle + half)

    @torch.no_grad()
    def evaluate(self, loader: Iterable[Any]) -> Coverage:
        """Coverage and width of the bands of samples with known targets.

        Parameters
        ----------
        loader : iterable
            Batches of samples, in the forms that `conformal` takes.
        """
        shares, widths = [], []
        for args, kwargs, target in _batches(loader, self):
            band = self(*args, **kwargs)
            _check_fields(band.prediction, target)
            inside = (band.lower <= target) & (target <= band.upper)
            shares.append(_points(widened(inside)).mean(dim=1).cpu())
            widths.append(_points(widened(band.upper - band.lower)).mean(dim=1).cpu())
        if not shares:
            raise error("loader", "at least one sample", 0)
        return Coverage(torch.cat(shares), torch.cat(widths))

    def _predict(self, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        if self.spread is None and isinstance(self.model, Ensemble):
            prediction, spread = self.model.mean_and_spread(*args, **kwargs)
        else:
            prediction = _checked(self.model(*args, **kwargs))
            if self.spread is None:
                return prediction, torch.ones_like(prediction)
            spread = _tensor("spread", self.spread(*args, **kwargs))
        if spread.shape != prediction.shape:
            wanted = f"shape {tuple(prediction.shape)}, as the prediction has"
            raise error("spread", wanted, tuple(spread.shape))
        right = (spread >= 0) & spread.isfinite()
        check_each("spread", spread, right, "at least 0 and finite everywhere")
        # Models agree on a boundary value to rounding, and so does the target: no band is narrower.
        size = _per_sample(_points(prediction.detach().abs()).amax(dim=1), prediction)
        return prediction, spread.maximum(size * torch.finfo(spread.dtype).eps)


@torch.no_grad()
def conformal(
    model: nn.Module,
    calibration_loader: Iterable[Any],
    level: float = 0.9,
    *,
    spread: nn.Module | None = None,
    share: float | None = None,
) -> Bands:
    """Give a model bands with the stated coverage, by split conformal prediction.

    Parameters
    ----------
    model : nn.Module
        From fields (B, ...) to a field (B, ...); channels may be anywhere. An `Ensemble` brings its
        spread.
    calibration_loader : iterable
        Batches of samples that neither model nor spread was trained on, or chosen by: (x, target);
        (x, target, further arguments), as PDEBench has them; or mappings with the target "y" and
        the model's keywords, as neuraloperator has them. They are moved to the model's device.
    level : float
        Coverage, between 0 and 1.
    spread : nn.Module, optional
        Called as the model is; says where errors are large, see `Bands` and `fit_spread`. By
        default the bands of a model are equally wide everywhere, which suits fields of one unit.
    share : float, optional
        Above 0, at most 1. By default `level` is the expected share of the points in the band.
        Otherwise it is the probability that the band holds at least this share of the points of a
        sample.

    Returns
    -------
    Bands
        A module called as the model is. The model itself stays as it is.

    Raises
    ------
    ValueError
        For a level or share out of range; a dataset in place of a loader; fewer samples than the
        level needs, which are ``ceil(1 / (1 - level)) - 1``; predictions or targets that are not
        finite or differ in shape; and a spread of 0 where there are errors.

    Examples
    --------
    >>> import torch
    >>> from chonn_ops.uncertainty import conformal
    >>> x = torch.rand(200, 1, 8, 8)
    >>> samples = list(zip(x.split(50), (x + 0.1 * torch.randn_like(x)).split(50)))
    >>> bands = conformal(torch.nn.Identity(), samples[:2], level=0.9)
    >>> prediction, lower, upper = bands(x[:1])
    >>> 0.85 < bands.evaluate(samples[2:]).shares.mean() < 0.95
    tensor(True)
    """
    _check_level(level, share)
    bands = Bands(model, spread)
    ratios = []
    for args, kwargs, target in _batches(calibration_loader, bands):
        with _evaluating(bands):
            prediction, width = bands._predict(*args, **kwargs)
        _check_fields(prediction, target)
        missed = (widened(target) - widened(prediction)).abs()
        # Where both are 0 the target is in the band of any scale.
        ratio = torch.where(missed == 0, 0, missed / widened(width))
        ratios += ratio.cpu()
    exact = conformal_scale(ratios, level, share=share)
    scale = bands.scale.new_tensor(exact)
    # Rounded up: bands a little too narrow would miss every error that is as large as the scale.
    bands.scale.copy_(scale if scale.item() >= exact else scale.nextafter(scale + math.inf))
    return bands


def conformal_scale(ratios: Any, level: float = 0.9, *, share: float | None = None) -> float:
    """The scale of the bands of `conformal`, for predictions that were made elsewhere.

    Parameters
    ----------
    ratios : array_like or sequence of array_like
        ``|target - prediction| / spread`` at the points of each calibration sample, (N, ...) or N
        arrays; 0 where there is no error, also where the spread is 0.
    level, share : float
        The coverage, see `conformal`.

    Returns
    -------
    float
        Half the width of a band over the spread.

    Raises
    ------
    ValueError
        As `conformal`; for samples without points, and for ratios that are NaN, below 0, or
        infinite at too many points.
    """
    _check_level(level, share)
    needed = samples_needed(level)
    fields = [numbers_of("ratios", ratio) for ratio in ratios]
    if any(ratio.is_complex() for ratio in fields):
        raise error("ratios", "real numbers", next(x.dtype for x in fields if x.is_complex()))
    flat = [ratio.flatten().cpu().double() for ratio in fields]
    if len(flat) < needed:
        raise error("samples", f"at least {needed} to calibrate the level {level}", len(flat))
    if not all(map(len, flat)):
        raise error("samples", "at least one point each", 0)
    least = torch.stack([ratio.min() for ratio in flat]).min().item()  # NaN where one is
    if not least >= 0:
        raise error("ratios", "numbers >= 0", least)
    scale = _mean_scale(flat, level) if share is None else _share_scale(flat, level, share)
    if not math.isfinite(scale):
        raise error("spread", "above 0 where there are errors", "0 at too many points")
    return scale


def samples_needed(level: float) -> int:
    """The least number of calibration samples for a level, ``ceil(1 / (1 - level)) - 1``."""
    _check_level(level, None)
    # 1 / (1 - 0.9) is 10 and a rounding error.
    return math.ceil(1 / (1 - level) - 1 - 1e-9)


@torch.enable_grad()
def fit_spread(
    model: nn.Module,
    loader: Iterable[Any],
    network: nn.Module | None = None,
    *,
    level: float = 0.9,
    epochs: int = 30,
    learning_rate: float = 1e-3,
) -> nn.Module:
    """Train a network to say where a model's errors are large.

    It minimises the mean of ``s + max(|target - prediction| - s, 0) / (1 - level)``: the mean width
    of the bands, with a price for what they miss. At the minimum `s` is the quantile of this level
    of the absolute error, for this input at this point, as in UQNO. Adam with a cosine schedule.

    Parameters
    ----------
    model : nn.Module
        It is not changed. Its errors are computed once and kept, with the samples, in memory.
    loader : iterable
        Batches in the forms that `conformal` takes, of other samples than it gets. The training
        samples serve, too, unless the model has fitted them exactly: its errors on them are
        smaller, but have the same pattern.
    network : nn.Module, optional
        From the model's arguments to a field of the prediction's shape, of about unit size for
        inputs as in the loader; trained in place. By default a copy of the model, which starts from
        its weights, with outputs divided by their root mean square.
    level : float
        Between 0 and 1; the level for which `conformal` calibrates the bands.
    epochs : int
    learning_rate : float

    Returns
    -------
    nn.Module
        For `conformal`; in evaluation mode.

    Raises
    ------
    ValueError
        For samples or sizes that do not fit, and if the loss is not finite.
    """
    _check_level(level, None)
    check_integer(1, epochs=epochs)
    batches, unit = _errors(model, loader)
    mean_error = _mean(missed for *_, missed in batches)
    if not mean_error:
        raise error("model", "errors, which a spread can describe", "none")
    if network is not None:
        unit = 1.0
    learner = copy.deepcopy(model) if network is None else network
    if not any(True for _ in learner.parameters()):
        raise error("network", "a module with weights to train", type(learner).__name__)
    device = batches[0][2].device
    sizes = (torch.tensor(size, device=device) for size in (mean_error, unit))
    spread = _LearnedSpread(learner.to(device).requires_grad_(), *sizes).train()
    optimizer = torch.optim.Adam(learner.parameters(), lr=learning_rate)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs)
    for epoch in range(epochs):
        for index in torch.randperm(len(batches)).tolist():
            args, kwargs, missed = batches[index]
            size = spread.exponent(*args, **kwargs).exp()
            if size.shape != missed.shape:
                raise error("network", f"shape {tuple(missed.shape)}", tuple(size.shape))
            loss = (size + (missed / mean_error - size).relu() / (1 - level)).mean()
            if not bool(loss.isfinite()):
                raise error("loss", "a finite value", f"{loss.item()} in epoch {epoch}")
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        schedule.step()
    return spread.eval()


class _LearnedSpread(nn.Module):
    """The mean error times e to the power of a network's output."""

    mean_error: Tensor
    unit: Tensor

    def __init__(self, network: nn.Module, mean_error: Tensor, unit: Tensor) -> None:
        super().__init__()
        self.network = network
        self.register_buffer("mean_error", mean_error)
        self.register_buffer("unit", unit)

    def exponent(self, *args: Any, **kwargs: Any) -> Tensor:
        output = _tensor("network", self.network(*args, **kwargs))
        return (output / self.unit).clamp(-_EXPONENTS, _EXPONENTS)

    def forward(self, *args: Any, **kwargs: Any) -> Tensor:
        return self.mean_error * self.exponent(*args, **kwargs).exp()


@torch.no_grad()
def _errors(model: nn.Module, loader: Iterable[Any]) -> tuple[list[_Batch], float]:
    """Arguments and absolute errors of each batch; the root mean square of the predictions."""
    batches, squares = [], []
    for args, kwargs, target in _batches(loader, model):
        with _evaluating(model):
            prediction = model(*args, **kwargs)
        _check_fields(prediction, target)
        batches.append((args, kwargs, (target - prediction).abs()))
        squares.append(widened(prediction).square())
    if not batches:
        raise error("loader", "at least one sample", 0)
    return batches, math.sqrt(_mean(squares)) or 1.0


def _mean(fields: Iterable[Tensor]) -> float:
    """The mean over all values of fields of any shapes."""
    sums = [(widened(field).sum().item(), field.numel()) for field in fields]
    return sum(total for total, _ in sums) / sum(number for _, number in sums)


def _check_level(level: float, share: float | None) -> None:
    check_open_unit_interval(level=level)
    if share is not None:
        check_number(share=share)
        if not 0 < share <= 1:
            raise error("share", "above 0 and at most 1", share)


def _mean_scale(ratios: Sequence[Tensor], level: float) -> float:
    """The least scale at which the mean share of points outside is small enough."""
    samples = len(ratios)
    allowed = (1 - level) * (samples + 1) - 1
    values, order = torch.cat(list(ratios)).sort(descending=True)
    # A point counts by its share of its sample; samples may have different numbers of points.
    weights = torch.cat([torch.full_like(ratio, 1 / len(ratio)) for ratio in ratios])[order]
    # With the scale values[k], at most those before k are outside.
    outside = weights.cumsum(0) - weights
    fits = outside <= allowed + 1e-9
    return values[int(fits.sum()) - 1].item()


def _share_scale(ratios: Sequence[Tensor], level: float, share: float) -> float:
    """The split conformal quantile of what each sample needs."""
    needs = [r.kthvalue(max(1, math.ceil(share * len(r) - 1e-9))).values for r in ratios]
    place = math.ceil((len(needs) + 1) * level - 1e-9)
    return torch.stack(needs).kthvalue(place).values.item()


def _batches(loader: Iterable[Any], module: nn.Module) -> Iterator[_Batch]:
    """The batches of a loader, on the module's device."""
    if isinstance(loader, Dataset) and not isinstance(loader, IterableDataset):
        expected = "batches of samples (wrap it: DataLoader(dataset, batch_size=16))"
        raise error("loader", expected, f"the dataset {type(loader).__name__}")
    # None for a module without weights.
    device = next((weight.device for weight in module.parameters()), None)

    def moved(value: Any) -> Any:
        return value.to(device) if isinstance(value, Tensor) and device is not None else value

    for batch in loader:
        if isinstance(batch, Mapping):
            if "y" not in batch or len(batch) < 2:
                raise error("loader", 'keys "y" and the model\'s keywords', sorted(map(str, batch)))
            kwargs = {str(name): moved(value) for name, value in batch.items() if name != "y"}
            yield (), kwargs, moved(batch["y"])
        elif isinstance(batch, (tuple, list)) and len(batch) >= 2:
            x, target, *further = map(moved, batch)
            yield (x, *further), {}, target
        else:
            raise error("loader", "batches (x, target, ...) or mappings", type(batch).__name__)


@contextmanager
def _evaluating(module: nn.Module) -> Iterator[None]:
    """Context in which a module and its parts are in evaluation mode."""
    training = [part for part in module.modules() if part.training]
    module.eval()
    try:
        yield
    finally:
        for part in training:
            part.training = True


def _points(field: Tensor) -> Tensor:
    """A field (B, ...) as (B, points)."""
    return field.reshape(len(field), math.prod(field.shape[1:]))


def _per_sample(values: Tensor, field: Tensor) -> Tensor:
    """Values (B,) in a shape that broadcasts with a field (B, ...)."""
    return values.view(-1, *(1,) * (field.ndim - 1))


def _tensor(name: str, output: Any) -> Tensor:
    if not isinstance(output, Tensor):
        raise error(name, "a tensor as its output", type(output).__name__)
    return output


def _checked(prediction: Any) -> Tensor:
    """The output of a model, a real field (B, ...)."""
    if not _tensor("model", prediction).ndim:
        raise error("prediction", "a field (B, ...)", "a number")
    check_axes("prediction", tuple(prediction.shape))
    if prediction.is_complex():
        wanted = "a real field, with real and imaginary parts as channels"
        raise error("prediction", wanted, prediction.dtype)
    return prediction


def _check_fields(prediction: Tensor, target: Tensor) -> None:
    _checked(prediction)
    if not isinstance(target, Tensor):
        raise error("target", "a tensor (B, ...)", type(target).__name__)
    if target.is_complex():
        raise error("target", "a real field, as the prediction is", target.dtype)
    # Shapes that differ would be broadcast.
    if prediction.shape != target.shape:
        raise error(
            "prediction", f"the target's shape {tuple(target.shape)}", tuple(prediction.shape)
        )
    for name, field in (("prediction", prediction), ("target", target)):
        check_each(name, field, field.isfinite(), "finite values")
