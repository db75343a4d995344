"""What a plain `import chonn_ops` costs and brings in."""

import json
import statistics
import subprocess
import sys
from importlib import metadata

import chonn_ops

EXTRAS = (
    "h5py", "hydra", "matplotlib", "neuralop", "omegaconf", "pandas", "pdebench", "pooch", "scipy",
    "timm", "tqdm", "triton",
)  # fmt: skip

PROBE = f"""
import json, sys, time
import torch
before = set(sys.modules)
start = time.perf_counter()
import chonn_ops
seconds = time.perf_counter() - start
new = set(sys.modules) - before
print(json.dumps({{
    "seconds": seconds,
    "extras": sorted(set(name.split('.')[0] for name in new) & set({EXTRAS!r})),
}}))
"""


def test_import_is_light_and_pulls_in_no_extra():
    runs = []
    for _ in range(3):
        command = [sys.executable, "-c", PROBE]
        runs.append(json.loads(subprocess.run(command, capture_output=True, check=True).stdout))
    assert runs[0]["extras"] == []
    # The promise is 0.1 s; the bound leaves room for a busy machine, a heavy import would not fit.
    assert statistics.median(run["seconds"] for run in runs) < 0.3


def test_public_names_exist_and_are_documented():
    for name in chonn_ops.__all__:
        assert getattr(chonn_ops, name).__doc__, name


def test_version_is_the_distributions():
    assert metadata.version("chonn-ops") == chonn_ops.__version__
