"""The fake host package that most tests here use."""

import pytest
from autoload_processes import FAKES, HOST, INTEGRATION, write


@pytest.fixture
def fakes(tmp_path):
    """A host package, a module that integrates it, and a table that says so."""
    files = {"host/__init__.py": "", "host/models.py": HOST, "host/other.py": "", "ours.py": ""}
    write(tmp_path, {**files, "ours.py": INTEGRATION, "fakes.py": FAKES})
    return tmp_path
