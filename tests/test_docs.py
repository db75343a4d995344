"""Every Python block of README and docs runs; the pages hold together."""

from __future__ import annotations

import doctest
import pkgutil
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
FENCE = re.compile(r"^```(python|pycon)\n(.*?)^```", re.MULTILINE | re.DOTALL)
# Tested with what they need by tests/experiments/test_own_experiment.py.
ELSEWHERE = {"own_experiments.md"}
NEEDED = {"neuraloperator.md": "neuralop", "theory.md": "schemdraw", "extending.md": "h5py"}
WITH_CODE = [
    page for page in PAGES if FENCE.search(page.read_text()) and page.name not in ELSEWHERE
]


@pytest.mark.parametrize("page", WITH_CODE, ids=lambda page: page.name)
def test_code_blocks_run(page, tmp_path, monkeypatch):
    if page.name in NEEDED:
        pytest.importorskip(NEEDED[page.name])
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    for kind, code in FENCE.findall(page.read_text()):
        if kind == "python":
            exec(compile(code, page.name, "exec"), names)
            continue
        exec("import torch; from chonn_ops import *", names)
        example = doctest.DocTestParser().get_doctest(code, names, page.name, page.name, 0)
        assert not doctest.DocTestRunner(verbose=False).run(example, clear_globs=False).failed


def test_most_pages_have_code():
    assert len(WITH_CODE) >= 6


def test_links_between_pages_lead_somewhere():
    """To files and to headings, as GitHub and the site name them."""
    for page in PAGES:
        for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
            if "://" in target:
                continue
            file, _, anchor = target.partition("#")
            path = (page.parent / file) if file else page
            assert path.exists(), f"{page.name}: {target}"
            if anchor:
                headings = re.findall(r"^#+ (.*)$", path.read_text(), re.MULTILINE)
                assert anchor in {slug(heading) for heading in headings}, f"{page.name}: {target}"


PATH = re.compile(
    r"`((?!benchmarks/results)(?:chonn_ops|plugins|tools|tests|docs|benchmarks|examples)/[\w/.]+)`"
)
NAME = re.compile(r"`(chonn_ops(?:\.\w+)+)`")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_files_and_names_that_pages_tell_are_there(page):
    for path in PATH.findall(page.read_text()):
        assert (ROOT / path).exists(), path
    for name in NAME.findall(page.read_text()):
        pkgutil.resolve_name(name)


def slug(heading: str) -> str:
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def test_every_page_is_in_the_site():
    index = (ROOT / "docs" / "index.md").read_text()
    listed = set(re.findall(r"^(\w[\w/]*)$", index, re.MULTILINE))
    pages = {page.stem for page in (ROOT / "docs").glob("*.md")} - {"index"}
    assert pages <= listed


def test_the_site_builds_without_warnings(tmp_path):
    """As ``make docs`` does; it needs nothing from the network."""
    pytest.importorskip("sphinx")
    pytest.importorskip("myst_parser")
    pytest.importorskip("furo")
    pytest.importorskip("latex2mathml")
    from sphinx.cmd.build import build_main

    assert build_main(["-q", "-W", "--keep-going", str(ROOT / "docs"), str(tmp_path)]) == 0
    front = (tmp_path / "index.html").read_text()
    assert not re.findall(r'(?:src|href)="https?://[^"]*\.(?:js|css|woff2?)', front)
    operators = (tmp_path / "api" / "operators.html").read_text()
    assert "<math" in operators
    assert 'id="chonn_ops.scan.kirchhoff_scan"' in operators
