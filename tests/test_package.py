"""What a plain `import chonn_ops` brings in."""

from importlib import metadata

from commands import python

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
    assert python(PROBE).stdout.split() == []


def test_public_names_exist_and_are_documented():
    for name in chonn_ops.__all__:
        assert getattr(chonn_ops, name).__doc__, name


def test_version_is_the_distributions():
    assert metadata.version("chonn-ops") == chonn_ops.__version__
