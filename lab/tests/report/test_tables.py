"""The tables of README.md and docs/ are those of the result files, and so is what they sum up."""

import json
import re
import subprocess
import sys

from chonn_lab.paths import DOCS, ROOT


def test_tables_of_the_pages_come_from_the_result_files():
    subprocess.run([sys.executable, "-m", "chonn_lab.pages.tables", "--check"], check=True)


def test_the_kernels_are_as_much_faster_than_pytorch_as_the_pages_say():
    """From the least to the largest ratio of all operators and of the block."""
    scan, network, block = (
        json.loads((ROOT / "lab" / "results" / f"{name}.json").read_text())
        for name in ("scan", "network", "block")
    )
    groups = [peers["rows"] for peers in network["peers"]]
    shapes = {tuple(row["shape"]) for row in scan["rows"]}
    groups += [[row for row in scan["rows"] if tuple(row["shape"]) == one] for one in shapes]
    pairs = [[next(r for r in g if r["name"] == n) for n in ("chonn-ops", "torch")] for g in groups]
    layer = "order 1 axial"
    names = {row["name"]: row for row in block["rows"]}
    pairs.append([names[layer], names[f"{layer}, torch"]])
    ratios = [
        torch[time] / ours[time]
        for ours, torch in pairs
        for time in ("forward_ms", "both_ms", "step_ms")
        if time in ours and time in torch
    ]
    assert len(ratios) == 2 * len(pairs) > 20
    said = f"{min(ratios):.1f} to {max(ratios):.0f} times"
    for page in (ROOT / "README.md", DOCS / "start.md"):
        assert re.findall(r"[\d.]+ to [\d.]+ times (?=as fast|slower)", page.read_text()) == [
            f"{said} "
        ], page
