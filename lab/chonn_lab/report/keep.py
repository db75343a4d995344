"""Keep the runs of a study with the code, in one compact file in lab/results/runs."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from chonn_lab.marks import MARK
from chonn_lab.paths import RUNS
from chonn_lab.report.runs import read_study
from chonn_ops.files import finite, write_whole

DIGITS = 6
CURVE_POINTS = 30


def keep(folder: Path, mixed: bool = False, output: Path = RUNS) -> Path:
    """Merge the runs of a folder into ``<output>/<experiment>-<scale>.json``, for `read_study`.

    What all runs share is written once, numbers keep six digits and training curves at most thirty
    epochs. Runs of an earlier file stay if their model was not run again, whatever their data and
    settings; the pages say where these differ.

    `folder` and `mixed` are those of `read_study`.
    """
    study = read_study(folder, mixed)
    path = output / f"{study.experiment}-{study.scale}.json"
    earlier = read_study(path, mixed=True).runs if path.exists() else ()
    stay = tuple(run for run in earlier if run.variant not in study.table.index)
    study = dataclasses.replace(study, runs=stay + study.runs)
    records = [
        dataclasses.asdict(run)
        | {"scale": study.scale, "curve": _thinned(run.curve), "date": run.date[:10]}
        for runs in study.table.runs
        for run in runs
    ]
    first = records[0]
    shared = {n: x for n, x in first.items() if all(record[n] == x for record in records)}
    runs = [{n: x for n, x in record.items() if n not in shared} for record in records]
    lines = ",\n".join(map(_text, runs))
    text = f'{{"generator": "{MARK}",\n"shared": {_text(shared)},\n"runs": [\n{lines}\n]}}\n'
    write_whole(path, text)
    return path


def _thinned(curve: Mapping[str, Sequence[Any]]) -> dict[str, list[Any]]:
    """Evenly spread points of each, the first and the last among them."""
    thin = {}
    for name, values in curve.items():
        places = np.linspace(0, len(values) - 1, min(len(values), CURVE_POINTS))
        thin[name] = [values[round(place)] for place in places]
    return thin


def _text(record: Any) -> str:
    """As JSON, with numbers of `DIGITS` digits."""
    whole = json.dumps(finite(record))
    rounded = json.loads(whole, parse_float=lambda text: float(f"{float(text):.{DIGITS}g}"))
    return json.dumps(rounded, ensure_ascii=False)
