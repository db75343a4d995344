"""What a plain `import chonn_ops` brings in."""

import subprocess
import sys
from importlib import metadata

import chonn_ops

EXTRAS = (
    "h5py", "hydra", "matplotlib", "neuralop", "omegaconf", "pandas", "pdebench", "pooch", "scipy",
    "timm", "tqdm", "triton",
)  # fmt: skip

PROBE = f"""
import sys
import torch
before = set(sys.modules)
import chonn_ops
new = {{name.split('.')[0] for name in set(sys.modules) - before}}
print(*sorted(new & set({EXTRAS!r})))
"""


def test_import_pulls_in_no_extra():
    command = [sys.executable, "-c", PROBE]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    assert run.stdout.split() == []


def test_public_names_exist_and_are_documented():
    for name in chonn_ops.__all__:
        assert getattr(chonn_ops, name).__doc__, name


def test_version_is_the_distributions():
    assert metadata.version("chonn-ops") == chonn_ops.__version__
