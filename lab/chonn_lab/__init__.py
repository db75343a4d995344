"""chonn-lab: problems, baselines, experiments, reports and benchmarks around chonn-ops."""

from chonn_plugins.openmp import sleep_while_waiting

sleep_while_waiting()  # before any of our modules imports torch

__version__ = "0.1.0"
