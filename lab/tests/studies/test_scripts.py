"""Every study finds what it imports, also those that no other test runs."""

import importlib
from pathlib import Path

import pytest

from chonn_lab import studies
from chonn_lab.paths import DOCS

EXTRAS = ("PIL", "filelock", "h5py", "matplotlib", "neuralop", "safetensors", "scipy")
EXTRAS += ("sklearn", "timm", "tqdm")


@pytest.mark.parametrize(
    "name", sorted(path.stem for path in Path(studies.__file__).parent.glob("*.py"))
)
def test_imports(name):
    try:
        importlib.import_module(f"chonn_lab.studies.{name}")
    except ModuleNotFoundError as error:
        if error.name not in EXTRAS:
            raise
        pytest.skip(f"needs {error.name}")


def test_the_page_of_claims_is_one_that_a_person_reads():
    page = DOCS / "lab" / "claims.md"
    assert page.stat().st_size < 30_000
    rows = [line for line in page.read_text().splitlines() if line.startswith("|")]
    assert max(map(len, rows)) < 400
