"""The page is one valid HTML file that needs nothing else."""

import re
from html.parser import HTMLParser

import pytest
import result_files

from chonn_lab.report.page import write_report

VOID = {"meta", "img"}


class Page(HTMLParser):
    """Tags that are open, and what the page refers to."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.open, self.links, self.ids, self.images, self.text = [], [], set(), [], []
        self.feed(text)
        self.close()
        assert not self.open, f"not closed: {self.open}"

    def handle_starttag(self, tag, attributes):
        given = dict(attributes)
        assert tag not in ("script", "link", "iframe", "object")
        if tag not in VOID:
            self.open.append(tag)
        self.links += [given[name] for name in ("href", "src") if name in given]
        if "id" in given:
            assert given["id"] not in self.ids
            self.ids.add(given["id"])
        if tag == "img":
            assert given["alt"]
            self.images.append(given["src"])

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    folder = tmp_path_factory.mktemp("report")
    result_files.everything(folder / "runs", seeds=2)
    spoiled = result_files.record("darcy", "odd", {"family": "mine"}, 0.1, label="<b>a & 'b'</b>")
    result_files.write(folder / "runs", [spoiled])
    path = write_report(folder / "runs", folder / "report")
    return path, Page(path.read_text(encoding="utf-8"))


def test_page_needs_no_other_file(written):
    path, page = written
    for link in page.links:
        assert link.startswith(("#", "data:image/")), link[:80]
        if link.startswith("#"):
            assert link[1:] in page.ids
    style = re.search(r"<style>(.*?)</style>", path.read_text(), flags=re.S)
    assert style
    assert "url(" not in style[1]
    assert "@import" not in style[1]
    assert "prefers-color-scheme: dark" in style[1]


def test_page_holds_every_figure_and_study(written):
    path, page = written
    drawn = sorted((path.parent / "figures").glob("*/*/*"))
    assert len(page.images) == len(drawn) == 13
    studies = ("order1d", "darcy", "poisson", "shallow-water", "navier-stokes")
    assert page.ids == {"scoreboard", *(f"{name}-small" for name in studies)}
    shown = re.findall(r"^!\[.+\]\((\S+)\)$", (path.parent / "results.md").read_text(), flags=re.M)
    assert {path.parent / name for name in shown} == set(drawn)


def test_page_says_what_ran_where_and_how_well(written):
    _, page = written
    text = "".join(page.text)
    for expected in (
        *("supported", "contradicted", "inconclusive", "not tested", "scaled down"),
        *("a processor", "0123456789ab", "data.hdf5", "da7ada7ada7a"),
        *("multiply-adds, M", "training, s", "parameters", "3.0", "torch 2.15", "±"),
    ):
        assert expected in text, expected


def test_labels_are_text_not_markup(written):
    path, page = written
    assert "<b>a & 'b'</b>" in page.text
    assert "<b>" not in path.read_text()


def test_tables_are_written_beside_it(written):
    path, _ = written
    text = (path.parent / "results.md").read_text()
    assert text.startswith("# Results")
    # Markdown, with everything in tables as cells: the same number of them in every row.
    for block in re.findall(r"(?:^\|.*\n)+", text, flags=re.M):
        assert len({line.count(" | ") for line in block.splitlines()}) == 1, block


def test_page_starts_with_what_was_run(tmp_path):
    result_files.write(tmp_path / "runs", result_files.shallow_water(seeds=2))
    path = write_report(tmp_path / "runs", tmp_path / "report")
    page = path.read_text().partition("<body>")[2]
    text = path.with_name("results.md").read_text()
    for content, first in ((page, "<figure>"), (text, "| unet |")):
        verdict = content.index("supported")
        assert content.index("Shallow water") < content.index(first) < verdict
        # The others are named once, after everything else.
        assert content.count("Poisson equation") == content.count("Darcy flow") == 1
        assert content.index("Scoreboard") < content.index("Not run, with the number of claims")
        assert "not tested" not in content[:verdict]


def test_own_experiment_has_its_title_and_no_claims(tmp_path):
    own = [
        result_files.record("mine", name, {"family": "x"}, 0.1, title="My <own> problem")
        for name in ("one", "two")
    ]
    result_files.write(tmp_path / "runs", own)
    path = write_report(tmp_path / "runs", tmp_path / "report")
    page, text = Page(path.read_text()), path.with_name("results.md").read_text()
    assert "My <own> problem, small" in page.text
    assert "## My <own> problem, small" in text
    for content in (path.read_text().partition("<body>")[2], text):
        for word in ("tested", "Scoreboard", "Not run", "Navier"):
            assert word not in content


def test_no_results_are_said(tmp_path):
    with pytest.raises(FileNotFoundError, match="no result files"):
        write_report(tmp_path, tmp_path / "report")
    assert not (tmp_path / "report").exists()
