"""The table of docs/installation.md: environments that the package was tested in."""

from __future__ import annotations

from pages.blocks import Build, Row, block, tabulate


def versions(rows: list[Row]) -> str:
    def package(name: str):
        return lambda row: row["versions"][name]

    def commit(row: Row) -> str:
        return f"`{row['commit'][:8]}`{', changed' if row['dirty'] else ''}"

    return tabulate(
        rows,
        ("Python", "python"),
        *((name, package(name)) for name in ("torch", "numpy", "neuraloperator", "timm")),
        ("tests", "tests"),
        ("passed", "passed", "{:,}"),
        ("failed", "failed"),
        ("skipped", "skipped"),
        ("on", lambda row: row["system"]),
        ("commit, day", lambda row: f"{commit(row)}, {row['date']}"),
        texts=(0, 1, 2, 3, 4, 5, 9, 10),
    )


INSTALLATION: dict[str, Build] = {"versions": block("versions", "results", versions)}
