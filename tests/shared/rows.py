"""Rows of parametrised tests."""

import pytest


def thorough(*row):
    """A row that `make test` takes, and not `make check`."""
    return pytest.param(*row, marks=pytest.mark.thorough)
