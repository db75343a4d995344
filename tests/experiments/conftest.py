"""Data at scale smoke; the programs in tools/ are scripts: their helpers are found beside them."""

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[2] / "tools"))


@pytest.fixture(scope="module")
def folder(request, tmp_path_factory):
    """Data of the module's `EXPERIMENT` at scale smoke."""
    experiment, path = request.module.EXPERIMENT, tmp_path_factory.mktemp("data")
    experiment.prepare(experiment.scales["smoke"], path, progress=False)
    return path
