"""Keep the results of studies with the code, in lab/results/runs/.

python -m chonn_lab.studies.keep_results runs
python -m chonn_lab.studies.keep_results runs small+problem.test_resolutions=_128_
python -m chonn_lab.studies.keep_results --beside runs

With ``--beside``, rows of models that were not run again stay as they are, whatever their data and
settings; the pages say where these differ. Smoke runs are not kept, nor are runs of changed
settings but for those whose folders are named behind.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from chonn_lab.experiments import EXPERIMENTS
from chonn_lab.marks import MARK, own_file
from chonn_lab.paths import RUNS
from chonn_lab.report.results import NESTED, Study, read_studies, read_study

DIGITS = 6
CURVE_POINTS = 30
KEPT = ("small", "paper", "night")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("runs", type=Path, help="folder of `chonn-lab run`")
    parser.add_argument("scales", nargs="*", help="folders of changed settings to keep as well")
    parser.add_argument("--beside", action="store_true", help="keep rows of models not run again")
    args = parser.parse_args()
    keep(args.runs, args.scales, args.beside)


def keep(runs: Path, also: Sequence[str] = (), beside: bool = False) -> None:
    """Compact the results of `chonn-lab run`; those of experiments that were not run stay."""
    for study in read_studies(runs):
        kept = study.scale in (*KEPT, *also)
        if study.folder is None or study.experiment not in EXPERIMENTS or not kept:
            continue
        written = RUNS / f"{study.experiment}-{study.scale}.json"
        if beside and written.exists():
            study = with_earlier(study, written)
        print(f"wrote {collect(study, RUNS)}: {len(study.runs)} runs")


def with_earlier(study: Study, written: Path) -> Study:
    """The study with the kept runs of models that were not run again."""
    again = {run.variant for run in study.runs}
    earlier = read_study(written, mixed=True).runs
    stay = tuple(run for run in earlier if run.variant not in again)
    return dataclasses.replace(study, runs=stay + study.runs)


def collect(study: Study, output: Path) -> Path:
    """Merge the runs of a study into one compact file that `read_study` reads.

    What all runs share is written once, numbers keep six digits and training curves at most thirty
    epochs.

    Parameters
    ----------
    study : Study
    output : Path
        Folder to write ``<experiment>-<scale>.json`` to.

    Returns
    -------
    Path
        The file.
    """
    records = [
        dataclasses.asdict(run)
        | {"scale": study.scale, "curve": _thinned(run.curve), "date": run.date[:10]}
        for group in study.groups
        for run in group.runs
    ]
    shared = _common(records)
    runs = [_without(record, shared) for record in records]
    for name in NESTED:
        shared[name] = _common([record[name] for record in records])
        for run, record in zip(runs, records, strict=True):
            run[name] = _without(record[name], shared[name])
    lines = ",\n".join(json.dumps(_rounded(run), ensure_ascii=False) for run in runs)
    head = json.dumps(_rounded(shared), ensure_ascii=False)
    output.mkdir(parents=True, exist_ok=True)
    path = output / f"{study.experiment}-{study.scale}.json"
    with own_file(path) as staged:
        staged.write_text(
            f'{{"generator": "{MARK}",\n"shared": {head},\n"runs": [\n{lines}\n]}}\n',
            encoding="utf-8",
        )
    return path


def _common(records: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The entries that all have."""
    first, *others = records
    return {
        name: value
        for name, value in first.items()
        if all(name in other and other[name] == value for other in others)
    }


def _without(record: Mapping[str, Any], shared: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in record.items() if name not in shared}


def _thinned(curve: Mapping[str, Sequence[Any]]) -> dict[str, list[Any]]:
    return {name: [values[i] for i in _kept(len(values))] for name, values in curve.items()}


def _kept(count: int) -> Iterator[int]:
    """Indices of at most `CURVE_POINTS` evenly spread ones, the first and the last among them."""
    points = min(count, CURVE_POINTS)
    for place in range(points):
        yield round(place * (count - 1) / max(points - 1, 1))


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}") if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {name: _rounded(entry) for name, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [_rounded(entry) for entry in value]
    return value


if __name__ == "__main__":
    main()
