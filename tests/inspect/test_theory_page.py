"""docs/lab/method.md: every equation of the Methods with a number has a function and a test."""

import importlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/lab/method.md").read_text(encoding="utf-8")
ROWS = [
    [cell.strip().strip("`") for cell in line.strip("|").split("|")]
    for line in PAGE.splitlines()
    if re.match(r"\| \d+(,| to|) ", line) and "::" in line
]


def numbers(cell):
    """The equations of a cell such as "15 to 18, 23"."""
    for part in cell.split(", "):
        first, _, last = part.partition(" to ")
        yield from range(int(first), int(last or first) + 1)


def test_every_equation_of_the_methods_is_there_once():
    assert sorted(number for row in ROWS for number in numbers(row[0])) == list(range(15, 71))


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_function_and_test_exist(row):
    _, function, test = row
    parts = function.split(".")
    found = None
    for count in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:count]))
        except ModuleNotFoundError:
            continue
        break
    for name in parts[count:]:
        found = getattr(found, name)
    assert callable(found)
    path, name = test.split("::")
    assert f"def {name}(" in (ROOT / path).read_text(encoding="utf-8")
