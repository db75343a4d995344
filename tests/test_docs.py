"""Every Python block of README and docs runs; links, files and names in the pages exist."""

import doctest
import importlib
import importlib.util
import pkgutil
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(DOCS.glob("**/*.md"))]
FENCE = re.compile(r"^```(python|pycon)\n(.*?)^```", re.MULTILINE | re.DOTALL)
NEEDED = {
    "graphs.md": "scipy",
    "inspect.md": "safetensors",
    "method.md": "chonn_lab",
    "models.md": "matplotlib safetensors",
    "hosts.md": "neuralop omegaconf safetensors timm",
    "start.md": "safetensors",
    "uncertainty.md": "safetensors",
}
# Pages of commands and tables, without any code.
PLAIN = {"CONTRIBUTING.md", "code.md", "contributing.md", "index.md", "many_gpus.md"}
PLAIN |= {"performance.md", "results.md"}
WITH_CODE = [page for page in PAGES if page.name not in PLAIN]


SOURCES = [x for x in sorted((ROOT / "chonn_ops").glob("**/*.py")) if ">>> " in x.read_text()]


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", WITH_CODE, ids=name_of)
def test_code_blocks_run(page, tmp_path, monkeypatch):
    for module in NEEDED.get(page.name, "").split():
        pytest.importorskip(module)
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    blocks = FENCE.findall(page.read_text())
    assert blocks
    for kind, code in blocks:
        if kind == "python":
            exec(compile(code, page.name, "exec"), names)
            continue
        example = doctest.DocTestParser().get_doctest(code, names, page.name, page.name, 0)
        assert example.examples, code
        example.globs = names  # not a copy: later blocks use what earlier ones define
        assert not doctest.DocTestRunner(verbose=False).run(example, clear_globs=False).failed


@pytest.mark.parametrize("source", SOURCES, ids=name_of)
def test_examples_of_docstrings_run_as_pasted(source):
    """They import all that they name: nothing is known of the module that they are in."""
    name = ".".join(source.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
    examples = doctest.DocTestFinder().find(importlib.import_module(name), globs={})
    results = [doctest.DocTestRunner(verbose=False).run(example) for example in examples]
    assert sum(result.attempted for result in results) == source.read_text().count(">>> ")
    assert not any(result.failed for result in results)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_block_of_python_is_found(page):
    text = page.read_text()
    blocks = FENCE.findall(text)
    assert len(blocks) == len(
        re.findall(r"^[ \t]*[`~]{3,} *\{?py", text, re.MULTILINE | re.IGNORECASE)
    )
    assert sum(code.count(">>> ") for _, code in blocks) == text.count(">>> ")
    assert bool(blocks) == (page.name not in PLAIN)


def test_links_between_pages_lead_somewhere():
    """Links to files, and to headings under the names that GitHub and the site give them."""
    for page in PAGES:
        for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
            if "://" in target:
                continue
            file, _, anchor = target.partition("#")
            path = (page.parent / file) if file else page
            assert path.exists(), f"{name_of(page)}: {target}"
            if anchor:
                headings = re.findall(r"^#+ (.*)$", path.read_text(), re.MULTILINE)
                assert anchor in set(map(slug, headings)), f"{name_of(page)}: {target}"


def test_no_linked_file_is_ignored_by_git():
    """A clone lacks an ignored file, although the checkout that wrote the page has it."""
    linked = [
        page.parent / target.partition("#")[0]
        for page in PAGES
        for target in re.findall(r"\]\(([^)#\s][^)\s]*)\)", page.read_text())
        if "://" not in target
    ]
    command = ["git", "-C", str(ROOT), "check-ignore", "--no-index", *map(str, linked)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode == 128:
        pytest.skip("no git checkout")
    assert done.stdout == ""


def slug(heading: str) -> str:
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


# NAME stands for a name.
PATH = re.compile(r"`((?:chonn_ops|docs|examples|lab|plugins|tests)/(?!\S*NAME)[\w/.-]+)`")
NAME = re.compile(r"`((?:chonn_ops|chonn_lab|chonn_plugins)(?:\.\w+)+)`")


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_files_and_names_in_pages_exist(page):
    for path in PATH.findall(page.read_text()):
        assert (ROOT / path).exists(), path
    for name in NAME.findall(page.read_text()):
        if name.startswith("chonn_lab") and importlib.util.find_spec("chonn_lab") is None:
            continue
        pkgutil.resolve_name(name)


def test_functions_in_the_tables_of_the_code_are_in_their_files():
    rows = re.findall(r"^\| (`[\w.`, ]+`) \| `(\S+\.py)` \|", (DOCS / "code.md").read_text(), re.M)
    named = [(name, file) for names, file in rows for name in names.strip("`").split("`, `")]
    assert len(named) > 40
    for name, file in named:
        source = (ROOT / file).read_text()
        for part in name.split("."):
            assert re.search(rf"(def|class) {part}\b", source), f"{file}: {name}"


def test_files_and_names_are_found_in_pages():
    text = (DOCS / "code.md").read_text()
    assert {"chonn_ops/nn/block.py", "chonn_ops/_library.c"} <= set(PATH.findall(text))
    assert PATH.findall("`chonn_ops/nn/NAME.py` and `lab/results/NAME.json`") == []
    assert NAME.findall("`chonn_ops.nn.CKB` and `chonn_ops`") == ["chonn_ops.nn.CKB"]
    assert sum(len(NAME.findall(page.read_text())) for page in PAGES) > 10


def test_every_page_is_in_the_site():
    """The index lists the user's pages by name; its pattern ``lab/*`` takes the laboratory's."""
    index = (DOCS / "index.md").read_text()
    listed = set(re.findall(r"^(\w[\w/]*)$", index, re.MULTILINE))
    assert {page.stem for page in DOCS.glob("*.md")} - {"index"} <= listed
    assert "\nlab/*\n" in index
    assert all((DOCS / f"{page}.md").exists() for page in listed)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """Built as ``make docs`` does, without warnings; it needs nothing from the network."""
    for module in ("sphinx", "myst_parser", "furo", "latex2mathml"):
        pytest.importorskip(module)
    from sphinx.cmd.build import build_main

    folder = tmp_path_factory.mktemp("site")
    assert build_main(["-q", "-W", "--keep-going", str(DOCS), str(folder)]) == 0
    return folder


def test_the_site_loads_nothing_and_has_the_operators(site):
    front = (site / "index.html").read_text()
    assert not re.findall(r'(?:src|href)="https?://[^"]*\.(?:js|css|woff2?)', front)
    operators = (site / "api" / "operators.html").read_text()
    assert "<math" in operators
    assert 'id="chonn_ops.scan.kirchhoff_scan"' in operators


def test_the_pages_of_the_site_fit_the_screen(site, look):
    pages = [site / page.relative_to(DOCS).with_suffix(".html") for page in DOCS.glob("**/*.md")]
    assert len(pages) > 10
    for page in pages:
        look(page)
