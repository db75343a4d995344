"""Every study finds what it imports, also those that no other test runs."""

import importlib
from pathlib import Path

import pytest

from chonn_lab import studies


@pytest.mark.parametrize("path", sorted(Path(studies.__file__).parent.glob("*.py")), ids=str)
def test_imports(path):
    if path.stem == "pretrained":
        pytest.importorskip("safetensors")
    importlib.import_module(f"chonn_lab.studies.{path.stem}")
