"""The fake host package that most tests here use."""

import pytest
from autoload_processes import Fakes


@pytest.fixture
def fakes(tmp_path):
    return Fakes(tmp_path)
