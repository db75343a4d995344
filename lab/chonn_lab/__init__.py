"""chonn-lab: problems, baselines, experiments, reports and benchmarks around chonn-ops."""

__version__ = "0.1.0"
