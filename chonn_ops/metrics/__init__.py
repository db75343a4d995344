"""Error metrics of PDEBench and of the CHONN paper, streaming and exact for any batch split.

All functions take two real tensors of shape (batch, \\*space, time, channels) with one, two or
three space axes, work in float64 and return Python numbers. A steady problem has a time axis of
length 1.

Every metric is one statistic per sample, pooled over samples (mean or maximum) and then
reduced to a number, so `MetricAccumulator` and the functions share one table and agree however the
samples were batched. Averaging finished per-batch numbers does not have that property: ``csv``
and the Fourier bands take a square root after the mean over samples, and a ragged last batch would
weigh too much.

The PDEBench metrics (``rmse`` to ``fourier_rmse``) equal ``pdebench.models.metrics.metric_func`` of
PDEBench 0.1.0 with its default unit domain lengths; they are written from the definitions in [1]_.
Version 0.1.0 scores the given initial frames too, later versions drop them: choose with the
``initial_step`` of `MetricAccumulator`.

References
----------
.. [1] M. Takamoto et al., "PDEBench: An Extensive Benchmark for Scientific Machine Learning",
   NeurIPS Datasets and Benchmarks, 2022, Appendix B.
"""

from chonn_ops.metrics._accumulator import MetricAccumulator
from chonn_ops.metrics._functions import (
    FourierBands,
    boundary_rmse,
    csv,
    fourier_rmse,
    h1_error,
    max_error,
    max_mse,
    nrmse,
    range_nrmse,
    relative_l1,
    relative_l2,
    rmse,
)

__all__ = [
    "FourierBands",
    "MetricAccumulator",
    "boundary_rmse",
    "csv",
    "fourier_rmse",
    "h1_error",
    "max_error",
    "max_mse",
    "nrmse",
    "range_nrmse",
    "relative_l1",
    "relative_l2",
    "rmse",
]
