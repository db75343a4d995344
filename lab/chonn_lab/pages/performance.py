"""Tables of docs/lab/performance.md: scan, networks, block and models."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from chonn_lab.pages.blocks import (
    MEBIBYTES,
    Build,
    Column,
    Row,
    block,
    number,
    pivot,
    shape,
    tabulate,
    times,
)
from chonn_lab.report.document import markdown

PASSES = {"forward": "forward", "both": "forward and backward"}
JACOBI = "Jacobi-CG"


def beside(
    sections: Sequence[tuple[str, Sequence[Row]]], cell: Callable[[Row, str], str], what: str
) -> str:
    """A line a case and pass, a column a contender; last, ours over the floor where measured."""
    names = list(dict.fromkeys(row["name"] for _, rows in sections for row in rows))
    lines = []
    for label, rows in sections:
        found = {row["name"]: row for row in rows}
        for column, title in PASSES.items():
            if all(f"{column}_ms" not in row for row in rows):
                continue
            cells = [cell(found[name], column) if name in found else "-" for name in names]
            if f"{column}_floors" in found[names[0]]:
                cells.append(number(found[names[0]], f"{column}_floors", "{:.1f}"))
            lines.append([label, title, *cells])
    header = [what, "pass", *names, f"{names[0]} / floor"]
    return markdown(header[: len(lines[0])], lines, (0, 1))


def milliseconds(row: Row, column: str) -> str:
    return number(row, f"{column}_ms", "{:.2f}")


def scans(rows: list[Row]) -> str:
    sizes = dict.fromkeys(shape(row) for row in rows)
    sections = [(size, [row for row in rows if shape(row) == size]) for size in sizes]
    return beside(sections, milliseconds, "B x L x D x N")


def scan_memory(rows: list[Row]) -> str:
    """Peak memory of forward and backward, a column a contender."""
    return pivot(
        [row for row in rows if "peak_bytes" in row],
        ["B x L x D x N"],
        lambda row: [shape(row)],
        lambda row: row["name"],
        lambda row: number(row, "peak_bytes", "{:.1f}", MEBIBYTES),
    )


def passes(row: Row) -> str:
    """Milliseconds of the forward pass and of both; "-" for what was not measured."""
    found = [milliseconds(row, name) for name in PASSES]
    return " / ".join(found) if found != ["-", "-"] else "-"


def precision(rows: list[Row]) -> str:
    return pivot(rows, ["B x L x D x N"], lambda row: [shape(row)], lambda row: row["name"], passes)


def fields(section: Row) -> str:
    """Times by boundary; the largest peaks of memory over the boundaries, in fields."""
    batch, height, width, channels, _ = section["field"]
    unit = 1 / (4 * batch * height * width * channels)
    rows = [row for row in section["rows"] if "refused" not in row]

    def line(row: Row) -> list[str]:
        same = [other for other in rows if other["directions"] == row["directions"]]
        peaks = (max(other[f"{name}_peak_bytes"] for other in same) for name in PASSES)
        return [row["directions"], " / ".join(f"{peak * unit:.1f}" for peak in peaks)]

    header = ["directions", "peak, in fields"]
    return pivot(rows, header, line, lambda row: row["boundary"], passes)


def slopes(memory: str) -> list[Column]:
    """Columns of a series: the exponents of its times and of its `memory`."""
    names = {"forward time": "forward_ms", "time with backward": "both_ms"}
    return [
        (title, lambda series, name=name: series["slopes"].get(name), "{:.2f}")
        for title, name in {**names, "memory with backward": memory}.items()
    ]


def growth(section: list[Row]) -> str:
    def sizes(series: Row) -> str:
        return " to ".join(shape(series["points"][i]) for i in (0, -1))

    return tabulate(
        [{**series["points"][-1], **series} for series in section],
        ("series", "name"),
        ("sizes", sizes),
        *slopes("both_bytes"),
        ("largest, MiB", "both_bytes", "{:.0f}", MEBIBYTES),
    )


def kind(section: Row) -> str:
    return f"{section['networks']} of {times(section['grid'])}"


def networks(sections: list[Row]) -> str:
    """Times of every solver; "~" where they are scaled from fewer networks."""

    def cell(row: Row, column: str) -> str:
        few = row["timed_networks"].get(column, row["networks"]) < row["networks"]
        return ("~" if few else "") + number(row, f"{column}_ms", "{:.1f}")

    cases = [
        (kind(section), [{**row, "networks": section["networks"]} for row in section["rows"]])
        for section in sections
    ]
    return beside(cases, cell, "networks")


def direct(record: Row) -> str:
    """A line a case, a column a solver: times a network and error; memory of the factors."""
    sections = [*record["single"], *record["batches"]]
    rows = [
        {**row, "section": section, "direct": section["rows"][0]}
        for section in sections
        for row in section["rows"]
    ]

    def line(row: Row) -> list[str]:
        memory = [
            number(row["direct"], f"{name}_bytes", "{:.1f}", MEBIBYTES)
            for name in ("held", "predicted")
        ]
        section = row["section"]
        return [kind(section), f"{section['contrast']:,.0f}", " / ".join(memory)]

    def cell(row: Row) -> str:
        error = number(row, "error", "{:.0e}")
        return passes(row).removesuffix(" / -") + (f" ({error})" if error != "-" else "")

    header = ["networks", "contrast", "factors, MiB: held / predicted"]
    return pivot(rows, header, line, lambda row: row["name"], cell)


def accuracy(header: Sequence[str], line: Callable[[Row], list[str]]) -> Callable[[Any], str]:
    """A line a case, a column a contender: the worst errors of potentials and gradients, calls
    without an answer, and "!" where `spsolve` is less accurate than our narrow numbers."""

    def build(sections: list[Row]) -> str:
        rows = [
            {**row, "section": section, "narrow": section["rows"][0]}
            for section in sections
            for row in section["rows"]
        ]

        def cell(row: Row) -> str:
            errors = " / ".join(f"{row[name]:.0e}" for name in ("potential", "gradient"))
            unsolved = f", {row['unsolved']} of {row['calls']} unsolved" if row["unsolved"] else ""
            worse = row["name"] == "spsolve" and row["potential"] > row["narrow"]["potential"]
            return errors + unsolved + (" !" if worse else "")

        return pivot(rows, header, lambda row: line(row["section"]), lambda row: row["name"], cell)

    return build


def _size(section: Row) -> list[str]:
    medium = f"{section['medium']}, {section['boundary']}"
    return [times(section["grid"]), medium, f"{section['contrast']:.0e}"]


def _frequency(section: Row) -> list[str]:
    return [section["medium"], f"{section['loss']:g}", f"{section['condition']:.0e}"]


def many_sources(section: Row) -> str:
    return tabulate(
        section["rows"],
        (f"{section['sources']} sources on one {times(section['grid'])}", "name"),
        ("forward, ms", "forward_ms", "{:.0f}"),
    )


def _graph_case(section: Row) -> str:
    if "pairs" in section:
        return f"{section['pairs']:,} pairs on a raster of {times(section['grid'])}"
    return f"{section['networks']} of {section['nodes']:,} nodes"


def graphs(record: Row) -> str:
    """A line a case and contender; which contenders are faster than ours."""
    sections = [record[name] for name in ("circuits", "single", "pairs")]
    rows = [{**row, "case": _graph_case(x)} for x in sections for row in x["rows"]]
    table = tabulate(
        rows,
        ("circuits", "case"),
        ("solver", "name"),
        ("plan, ms", "plan_ms", "{:.0f}"),
        ("forward, ms", "forward_ms", "{:,.2f}"),
        ("/ chonn-ops", "forward_ratio", "{:.1f}"),
        ("both passes, ms", "both_ms", "{:,.2f}"),
        ("/ chonn-ops", "both_ratio", "{:.1f}"),
        ("error", "error", "{:.0e}"),
        ("peak, MiB", "peak_bytes", "{:.0f}", MEBIBYTES),
        ("its setting", "setting"),
        texts=(0, 1, 9),
    )
    ratios = ("forward_ratio", "both_ratio")
    faster = [
        f"{row['name']} on {row['case']}"
        for row in rows
        if row["name"] in GRAPH_PEERS and min(row.get(key, 1) for key in ratios) < 1
    ]
    return f"{table}\nFaster than chonn-ops: {', '.join(faster) or 'none'}.\n"


GRAPH_PEERS = ("CHOLMOD", "CHOLMOD, one factor", "CHOLMOD, pair by pair", "splu", "torch-sla")


def large_graphs(rows: list[Row]) -> str:
    return tabulate(
        rows,
        ("graph", "name"),
        ("nodes", "nodes", "{:,}"),
        ("edges", "edges", "{:,}"),
        ("plan, s", "plan_ms", "{:.1f}", 1e-3),
        ("its peak, MiB", "plan_peak_bytes", "{:.0f}", MEBIBYTES),
        ("forward, s", "forward_ms", "{:.2f}", 1e-3),
        ("both passes, s", "both_ms", "{:.2f}", 1e-3),
        ("peak, MiB", "peak_bytes", "{:.0f}", MEBIBYTES),
        ("error", "error", "{:.0e}"),
    )


def volumes(rows: list[Row]) -> str:
    return tabulate(
        rows,
        ("voxels a side", "voxels"),
        ("solver", "name"),
        ("tortuosity factor", "tau", "{:.4f}"),
        ("ms", "forward_ms", "{:,.0f}"),
        ("peak, MiB", "peak_bytes", "{:,.0f}", MEBIBYTES),
        texts=(1,),
    )


def inverse_images(rows: list[Row]) -> str:
    """A line a phantom and data set: the error of pyEIT's best setting, and of ours."""
    return tabulate(
        rows,
        ("phantom", "phantom"),
        ("electrodes", "electrodes"),
        ("data of the", "data"),
        ("noise", "noise", "{:g}"),
        ("pyEIT, error", "pyeit_error", "{:.3f}"),
        ("its setting", "pyeit_setting"),
        ("chonn-ops, error", "error", "{:.3f}"),
        ("s", "seconds", "{:.1f}"),
        ("total variation alone", "plain_error", "{:.3f}"),
        texts=(0, 2, 5),
    )


def inverse_gradients(rows: list[Row]) -> str:
    return tabulate(
        rows,
        ("electrodes", "electrodes"),
        ("elements of pyEIT", "elements"),
        ("cells", "cells"),
        ("measurements", "measurements"),
        ("pyEIT, Jacobian, ms", "pyeit_jacobian_s", "{:.0f}", 1e3),
        ("Jacobian, ms", "jacobian_s", "{:.0f}", 1e3),
        ("gradient, ms", "gradient_s", "{:.1f}", 1e3),
        ("pyEIT's Jacobian / gradient", "ratio", "{:.0f}"),
        texts=(),
    )


def _wells(rows: list[Row]) -> str:
    return tabulate(
        rows,
        ("cells", lambda row: times(row["grid"])),
        ("sources", "sources"),
        ("wells", "wells"),
        ("seed", "seed"),
        ("error", "error", "{:.3f}"),
        ("error of the prior's mean", "prior_error", "{:.3f}"),
        ("in 90 % intervals", lambda row: f"{row['coverage']:.1%}"),
        ("steps", "iterations"),
        ("s", "seconds", "{:.1f}"),
    )


def inverse_wells(section: Row) -> str:
    """The first three media, and the coverage over all."""
    rows = section["rows"]
    ratios = [row["ratio"] for row in rows]
    return (
        f"{_wells(rows[:3])}\nOver {len(rows)} media {section['coverage']:.1%} of the true values "
        f"lie in their 90 % intervals. The error is {min(ratios):.2f} to {max(ratios):.2f} of that "
        "of the prior's mean.\n"
    )


def contrast(sections: list[Row]) -> str:
    """A line a grid and kind of region; iterations of both solvers, ours' time and residual."""
    contrasts = sorted({section["contrast"] for section in sections})
    lines: dict[tuple[str, str], list[str]] = {}
    for section in sorted(sections, key=lambda section: section["contrast"]):
        rows = {row["name"]: row for row in section["rows"]}
        ours = next((row for name, row in rows.items() if name != JACOBI), {})
        counts = [number(row, "iterations", "{:d}") for row in (ours, rows.get(JACOBI, {}))]
        cells = lines.setdefault((kind(section), section["regions"]), [])
        residual = number(ours, "residual", "{:.0e}") + ("" if ours.get("holds", True) else " !")
        cells += [" / ".join(counts), residual]
    header = ["networks", "regions"]
    for value in contrasts:
        header += [f"contrast {value:,.0f}: iterations", "residual"]
    return markdown(header, [[*name, *cells] for name, cells in lines.items()], (0, 1))


def network_growth(section: list[Row]) -> str:
    def ends(series: Row) -> str:
        return " to ".join(times(series["points"][i]["grid"]) for i in (0, -1))

    def counts(series: Row) -> str:
        return " ".join(number(point, "iterations", "{:d}") for point in series["points"])

    return tabulate(
        [{**series["points"][-1], **series} for series in section if series["points"]],
        ("sixteen networks of", ends),
        *slopes("both_peak_bytes"),
        ("iterations at each size", counts),
        ("largest, MiB", "both_peak_bytes", "{:.0f}", MEBIBYTES),
    )


def blocks(rows: list[Row]) -> str:
    """A line an order of the block, a column the directions of its scans."""
    ours = [row for row in rows if row.get("directions") and not row.get("backend")]

    def line(row: Row) -> list[str]:
        peaks = [
            other["peak_bytes"] * MEBIBYTES for other in ours if other["order"] == row["order"]
        ]
        low, high = f"{min(peaks):.0f}", f"{max(peaks):.0f}"
        return [f"{row['order']}", f"{row['parameters']:,}", f"{low} to {high}"]

    def cell(row: Row) -> str:
        times = " / ".join(number(row, f"{name}_ms", "{:.1f}") for name in ("forward", "step"))
        return f"{times} ({row['scan_share']:.0%})"

    header = ["order", "parameters", "peak, MiB"]
    return pivot(ours, header, line, lambda row: row["directions"], cell)


def block_peers(rows: list[Row]) -> str:
    """Other layers of the same size, and the scans without the kernel."""
    return tabulate(
        [row for row in rows if row.get("backend") or not row.get("directions")],
        ("layer", "name"),
        ("parameters", "parameters", "{:,}"),
        ("forward, ms", "forward_ms", "{:.1f}"),
        ("step, ms", "step_ms", "{:.1f}"),
        ("peak, MiB", "peak_bytes", "{:.0f}", MEBIBYTES),
    )


def models(rows: list[Row]) -> str:
    return tabulate(
        rows,
        ("model", "name", "`{}`"),
        ("parameters", "parameters", "{:,}"),
        ("step, ms", "step_ms", "{:.0f}"),
        ("/ plain", "step_ratio", "{:.2f}x"),
        ("peak MiB", "peak_bytes", "{:.0f}", MEBIBYTES),
        ("/ plain", "peak_ratio", "{:.2f}x"),
        ("scan", "scan_share", "{:.0%}"),
    )


def gpu_steps(sections: list[Row]) -> str:
    (rows,) = (section["rows"] for section in sections if "steps" in section)
    return tabulate(
        rows,
        ("model", "name", "`{}`"),
        ("step, ms", "step_ms", "{:.1f}"),
        ("peak MiB", "peak_bytes", "{:.0f}", MEBIBYTES),
    )


def gpu_scans(sections: list[Row]) -> str:
    rows = [section for section in sections if "shape" in section]

    def cell(section: Row, column: str) -> str:
        return milliseconds(section["rows"][0], column)

    return tabulate(
        rows,
        ("B x L x D x N", shape),
        ("dtype", "dtype"),
        ("forward, ms", lambda section: cell(section, "forward")),
        ("both passes, ms", lambda section: cell(section, "both")),
    )


def gpu_machine(about: Row) -> str:
    versions = {**about["versions"], "gpu": about["gpu"]}
    return tabulate([versions], ("GPU", "gpu"), ("PyTorch", "torch"), ("Triton", "triton"))


PERFORMANCE: dict[str, Build] = {
    "scan": block("scan", "rows", scans),
    "scan memory": block("scan", "rows", scan_memory),
    "precision": block("scan", "precision", precision),
    "fields": block("scan", "fields", fields),
    "growth": block("scan", "growth", growth),
    "network peers": block("network", "peers", networks),
    "network contrast": block("network", "contrast", contrast),
    "network growth": block("network", "growth", network_growth),
    "direct": block("direct", "", direct),
    "graphs": block("graphs", "", graphs),
    "graphs large": block("graphs", "large", large_graphs),
    "direct sources": block("direct", "sources", many_sources),
    "accuracy": block(
        "accuracy",
        "media",
        accuracy(("medium", "contrast"), lambda case: [case["medium"], f"{case['contrast']:.0e}"]),
    ),
    "accuracy sizes": block("accuracy", "sizes", accuracy(("grid", "medium", "contrast"), _size)),
    "accuracy complex": block(
        "accuracy", "complex", accuracy(("network", "loss", "condition number"), _frequency)
    ),
    "inverse images": block("inverse", "images", inverse_images),
    "inverse gradients": block("inverse", "gradients", inverse_gradients),
    "inverse wells": block("inverse", "wells", inverse_wells),
    "inverse seconds": block("inverse", "seconds", _wells),
    "volumes": block("volumes", "rows", volumes),
    "block": block("block", "rows", blocks),
    "block peers": block("block", "rows", block_peers),
    "models": block("models", "rows", models),
    "gpu machine": block("gpu", "environment", gpu_machine),
    "gpu steps": block("gpu", "sections", gpu_steps),
    "gpu scans": block("gpu", "sections", gpu_scans),
}
