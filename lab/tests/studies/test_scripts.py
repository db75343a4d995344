"""Every study finds what it imports, also those that no other test runs."""

import importlib
from pathlib import Path

import pytest

from chonn_lab import studies

EXTRAS = ("filelock", "h5py", "matplotlib", "neuralop", "optuna", "safetensors", "scipy", "tqdm")


@pytest.mark.parametrize("path", sorted(Path(studies.__file__).parent.glob("*.py")), ids=str)
def test_imports(path):
    try:
        importlib.import_module(f"chonn_lab.studies.{path.stem}")
    except ModuleNotFoundError as error:
        if error.name not in EXTRAS:
            raise
        pytest.skip(f"needs {error.name}")
