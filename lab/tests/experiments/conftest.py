"""Data at scale smoke."""

import pytest


@pytest.fixture(scope="module")
def folder(request, tmp_path_factory):
    """Data of the module's `EXPERIMENT` at scale smoke."""
    experiment, path = request.module.EXPERIMENT, tmp_path_factory.mktemp("data")
    experiment.prepare(experiment.scales["smoke"], path, progress=False)
    return path
