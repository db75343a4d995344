"""Rewrite the tables of README.md from the results files: nobody types a number.

python examples/readme_tables.py           # rewrite
python examples/readme_tables.py --check   # exit 1 if README.md is out of date
"""

from __future__ import annotations

import json
import re
import statistics
import sys
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results"


def main() -> None:
    readme = ROOT / "README.md"
    old = readme.read_text()
    new = old
    for name, build in {"darcy": darcy_table, "scan": scan_table}.items():
        pattern = rf"(<!-- {name} -->\n).*?(<!-- /{name} -->)"
        text = build()
        new, count = re.subn(
            pattern, lambda found, text=text: found[1] + text + found[2], new, flags=re.S
        )
        if count != 1:
            raise SystemExit(f"README.md: expected one block {name!r}, got {count}")
    if "--check" in sys.argv[1:]:
        if new != old:
            raise SystemExit("README.md is out of date: run `make tables`")
        return
    temporary = readme.with_name(".README.md.new")
    temporary.write_text(new)
    temporary.replace(readme)


def markdown(header: list[str], rows: list[list[str]]) -> str:
    lines = [header, ["---", *["---:"] * (len(header) - 1)], *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def darcy_table() -> str:
    record = json.loads((RESULTS / "darcy_16.json").read_text())
    runs = defaultdict(list)
    for result in record["results"]:
        runs[result["model"]].append(result)
    rows = []
    for model, results in runs.items():

        def spread(metric: str, results: list[dict] = results) -> str:
            values = [result["metrics"][metric] for result in results]
            text = f"{statistics.mean(values):.4f}"
            return f"{text} ± {statistics.stdev(values):.4f}" if len(values) > 1 else text

        seconds = statistics.median(result["seconds_per_epoch"] for result in results)
        rows.append(
            [
                f"`{model}`",
                f"{results[0]['parameters']:,}",
                spread("nrmse"),
                spread("relative_l1"),
                spread("boundary_rmse"),
                f"{seconds:.2f}",
                str(len(results)),
            ]
        )
    header = ["model", "parameters", "nRMSE", "rel. L1", "boundary RMSE", "s / epoch", "seeds"]
    return markdown(header, rows)


def scan_table() -> str:
    rows = json.loads((RESULTS / "scan.json").read_text())["rows"]
    cells = []
    for row in rows:
        size = "x".join(map(str, row["shape"]))
        times = [
            f"{row[f'{name}_ms']:.2f} ({row[f'{name}_ratio']:.0f}x)" if f"{name}_ms" in row else "-"
            for name in ("forward", "both")
        ]
        peak = f"{row['peak_bytes'] / 2**20:.0f}" if row.get("peak_bytes") is not None else "-"
        cells.append([size, row["name"], *times, peak])
    header = ["B x L x D x N", "scan", "forward, ms", "forward + backward, ms", "peak MiB"]
    return markdown(header, cells)


if __name__ == "__main__":
    main()
