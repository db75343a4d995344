"""The metrics over a stream of batches."""

from collections.abc import Sequence

import torch
from torch import Tensor

from chonn_ops.metrics._statistics import METRICS, Fields, prepare


class MetricAccumulator:
    """All metrics of this package over a stream of batches, in one pass and without stored fields.

    The result does not depend on how the samples were cut into batches.

    Parameters
    ----------
    initial_step : int
        Number of leading frames that were given to the model and are not scored.
    spacing : float or sequence of float
        Grid spacing for ``h1_error``, one number or one a space axis.

    Examples
    --------
    >>> import torch
    >>> metrics = MetricAccumulator(initial_step=1)
    >>> target = torch.rand(3, 16, 16, 5, 1)
    >>> metrics.update(target[:2] + 1, target[:2])
    >>> metrics.update(target[2:] + 1, target[2:])
    >>> round(metrics.compute()["rmse"], 6)
    1.0
    """

    def __init__(self, initial_step: int = 0, spacing: float | Sequence[float] = 1.0) -> None:
        if initial_step < 0:
            raise ValueError(f"initial_step must be >= 0, got {initial_step}")
        self.initial_step = initial_step
        self.spacing = spacing
        self._samples = 0
        self._sample_shape: tuple[int, ...] = ()
        self._pooled: dict[str, Tensor] = {}

    def update(self, pred: Tensor, target: Tensor) -> None:
        """Add a batch of samples.

        Parameters
        ----------
        pred, target : Tensor
            (batch, \\*space, time, channels); the batch size may differ from call to call.

        Raises
        ------
        ValueError
            If the shapes differ, do not fit the layout or the earlier batches, or leave no frame
            to score. The batches so far are kept.
        """
        fields = prepare(pred, target, self.spacing)
        start = self.initial_step
        if target.shape[-2] <= start:
            raise ValueError(
                f"expected more frames than initial_step={start}, got {target.shape[-2]} "
                f"in shape {tuple(target.shape)}"
            )
        sample_shape = tuple(target.shape[1:])
        if self._samples and sample_shape != self._sample_shape:
            raise ValueError(
                f"expected samples of shape {self._sample_shape} as in the earlier batches, "
                f"got {sample_shape}"
            )
        scored = Fields(fields.error[..., start:, :], fields.target[..., start:, :], fields.spacing)
        for name, metric in METRICS.items():
            statistic = metric.statistic(scored)
            pooled = statistic.amax(dim=0) if metric.worst_sample else statistic.sum(dim=0)
            if self._samples:
                earlier = self._pooled[name].to(pooled.device)
                pooled = torch.maximum(earlier, pooled) if metric.worst_sample else earlier + pooled
            self._pooled[name] = pooled
        self._samples += len(target)
        self._sample_shape = sample_shape

    def compute(self) -> dict[str, float | None]:
        """The metrics of all samples so far.

        Returns
        -------
        dict
            Keys ``rmse, nrmse, csv, max_error, boundary_rmse, fourier_rmse_low, fourier_rmse_mid,
            fourier_rmse_high, relative_l1, relative_l2, h1_error, max_mse, range_nrmse``.
            A Fourier band without modes is ``None``; a NaN or infinity elsewhere is in the data
            (a diverged prediction, or a target of norm zero).

        Raises
        ------
        ValueError
            If there was no sample.
        """
        if not self._samples:
            raise ValueError("expected at least one sample before compute(), got 0")
        results: dict[str, float | None] = {}
        for name, metric in METRICS.items():
            pooled = self._pooled[name]
            values = metric.finish(pooled if metric.worst_sample else pooled / self._samples)
            results.update(zip(metric.keys, values, strict=True))
        return results
