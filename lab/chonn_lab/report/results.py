"""Studies: the runs of an experiment at a scale, by variant; read, and kept in one file."""

from __future__ import annotations

import dataclasses
import functools
import json
import re
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from chonn_lab.experiments import EXPERIMENTS, provenance
from chonn_lab.experiments.records import Run
from chonn_lab.marks import is_ours
from chonn_lab.report.comparison import Statistic

FAMILIES = ("unet", "fno", "cno", "depth", "stack", "chonn")
# What a model stands for: "paper" as the paper describes it, "ablation" the paper's backbone with
# blocks of another order, "network" ours, "control" a solver or a network without a part, "probe"
# one changed setting. In tables, models of one rank are sorted by order.
ROLES = ("baseline", "paper", "ablation", "network", "control", "probe")
RANKS: Mapping[str, int] = {"baseline": 0, "paper": 1, "ablation": 1, "network": 2, "probe": 4}
# What a model is; tables, figures and claims group, sort and compare by these tags. "order" is that
# of the blocks, "depth" how many are in series, "target" the order of the system that it learns,
# "history" the number of frames that it is given, "recipe" how it is trained.
TAGS: Mapping[str, Any] = {
    "family": "", "role": "", "order": -1, "depth": 0, "target": 0, "history": 0, "recipe": ""
}  # fmt: skip
NESTED = ("config", "versions", "hardware", "data")
# Names of result files and of those of `chonn_lab.studies.keep_results`.
_NAME = re.compile(r".+-(seed\d+|(smoke|small|paper|night)(\+.*)?)\.json")


class ForeignFile(UserWarning):
    """A file among the results that is none of them."""


@dataclasses.dataclass(frozen=True)
class Group:
    """The runs of one variant, a seed each."""

    runs: tuple[Run, ...]

    @functools.cached_property
    def tags(self) -> SimpleNamespace:
        """Those of the file, and `TAGS` for those that it lacks."""
        return SimpleNamespace(**{**TAGS, **self.runs[0].tags})

    @property
    def variant(self) -> str:
        return self.runs[0].variant

    @property
    def label(self) -> str:
        return self.runs[0].label

    @property
    def parameters(self) -> int:
        return self.runs[0].parameters

    @property
    def multiply_adds(self) -> int:
        return self.runs[0].multiply_adds

    @property
    def seconds(self) -> Statistic:
        return Statistic.of(run.seconds for run in self.runs)

    @property
    def epochs(self) -> list[int]:
        """Those of the points of its curves of training."""
        found = next((run.curve["epoch"] for run in self.runs if run.curve.get("epoch")), [])
        return [int(epoch) for epoch in found if epoch is not None]

    @property
    def times(self) -> list[float]:
        """Seconds of training at these epochs, which take equally long in a run."""
        each = self.seconds.mean / max(self.epochs, default=1)
        return [each * epoch for epoch in self.epochs]

    def has(self, **wanted: Any) -> bool:
        """Whether all tags have these values, or one of these in a list."""
        return all(
            getattr(self.tags, name, None) in (value if isinstance(value, list) else [value])
            for name, value in wanted.items()
        )

    def metric(self, name: str, split: str = "test") -> Statistic:
        return Statistic.of(run.metrics.get(split, {}).get(name) for run in self.runs)

    def curve(self, name: str) -> list[Statistic]:
        """Statistic at every point of a curve; runs that stopped early end the curve."""
        curves = [run.curves.get(name) or run.curve.get(name) or [] for run in self.runs]
        return [Statistic.of(point) for point in zip(*curves, strict=False)]

    def final(self, name: str) -> Statistic:
        """Last value of a training curve."""
        curves = [run.curve.get(name) or [None] for run in self.runs]
        return Statistic.of(curve[-1] for curve in curves)


@dataclasses.dataclass(frozen=True)
class Study:
    """All runs of an experiment at one scale.

    Parameters
    ----------
    experiment, scale : str
    runs : tuple of Run
    folder : Path, optional
        Where the arrays of sample fields lie, beside the result files.
    mixed : tuple of str
        In which data, settings or model code the runs differ, and which do; empty if in none.
    """

    experiment: str
    scale: str
    runs: tuple[Run, ...]
    folder: Path | None = None
    mixed: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        """The experiment's, of its latest run; older results of an own experiment have none."""
        titles = [run.title for run in sorted(self.runs, key=lambda run: run.date) if run.title]
        return titles[-1] if titles else ""

    @functools.cached_property
    def groups(self) -> tuple[Group, ...]:
        """The variants: by target and history, baselines first, then by order and depth."""
        found: dict[str, list[Run]] = {}
        for run in sorted(self.runs, key=lambda run: run.seed):
            found.setdefault(run.variant, []).append(run)
        return tuple(sorted((Group(tuple(runs)) for runs in found.values()), key=_place))

    def find(self, **tags: Any) -> tuple[Group, ...]:
        """The variants with these tags."""
        return tuple(group for group in self.groups if group.has(**tags))

    def splits(self) -> list[str]:
        return list(dict.fromkeys(split for run in self.runs for split in run.metrics))

    def metrics(self, split: str = "test") -> list[str]:
        """Names of the metrics of a split that any run has a number for."""
        found = (item for run in self.runs for item in run.metrics.get(split, {}).items())
        values: dict[str, list[Any]] = {}
        for name, value in found:
            values.setdefault(name, []).append(value)
        return [name for name, given in values.items() if any(v is not None for v in given)]

    def papers(self) -> Group | None:
        """CHONN as the paper describes it for the problem: blocks of order 2 in its backbone."""
        return next(iter(self.find(family="chonn", order=2, role=["paper", "ablation"])), None)


def _place(group: Group) -> tuple[Any, ...]:
    tags = group.tags
    rank = RANKS.get(tags.role, len(RANKS)), _rank(FAMILIES, tags.family)
    return tags.target, -tags.history, *rank, max(tags.order, 0), tags.depth, group.label


def _rank(names: Sequence[str], name: str) -> int:
    return names.index(name) if name in names else len(names)


def read_study(source: Path, mixed: bool = False) -> Study:
    """The runs of a scale's folder, or of a file written by `chonn_lab.studies.keep_results`.

    Parameters
    ----------
    source : Path
        ``<results>/<experiment>/<scale>`` or a JSON file.
    mixed : bool
        Take results of different data, settings or model code.

    Raises
    ------
    FileNotFoundError
        If there is no result file.
    ValueError
        For a damaged file, with its name and what is wrong; for results of different data,
        settings or model code unless `mixed`, with what differs in which.

    Warns
    -----
    ForeignFile
        For a JSON file of another name and content, which is left out.
    """
    folder = source if source.is_dir() else None
    runs = _runs_in(source) if folder else _read(source)
    if not runs:
        raise FileNotFoundError(f"no result files in {source}")
    return _study(source, runs, mixed)


def read_studies(results: Path, mixed: bool = False) -> list[Study]:
    """All studies of a folder of results, in the paper's order, then by scale.

    Parameters
    ----------
    results : Path
        Holds ``<experiment>/<scale>/*.json``, or files of `chonn_lab.studies.keep_results`; what is
        neither is left out with the warning `ForeignFile`.
    mixed : bool
        As for `read_study`.
    """
    if not results.is_dir():
        raise FileNotFoundError(f"folder of results does not exist: {results}")
    read = {folder: _runs_in(folder) for folder in {p.parent for p in results.glob("*/*/*.json")}}
    read |= {path: _found(path) for path in sorted(results.glob("*.json"))}
    found = [_study(source, runs, mixed) for source, runs in read.items() if runs]
    if not found:
        raise FileNotFoundError(f"no result files in {results}")
    return sorted(found, key=lambda study: (_rank(EXPERIMENTS, study.experiment), study.scale))


def _study(source: Path, runs: tuple[Run, ...], mixed: bool) -> Study:
    names = sorted({run.experiment for run in runs})
    if len(names) > 1:
        raise ValueError(f"{source}: expected runs of one experiment, got {names}")
    folder = source if source.is_dir() else None
    scale = source.name if folder else runs[0].scale
    return Study(names[0], scale, runs, folder, provenance.mixture(source, runs, mixed))


def _runs_in(folder: Path) -> tuple[Run, ...]:
    return tuple(run for path in sorted(folder.glob("*.json")) for run in _found(path))


def _found(path: Path) -> tuple[Run, ...]:
    """Runs of a file; none of another program's, which is left out with a warning."""
    try:
        return _read(path)
    except IsADirectoryError:
        pass
    except ValueError:
        if _NAME.fullmatch(path.name) or is_ours(path):
            raise
    warnings.warn(f"{path}: not a result file, left out", ForeignFile, stacklevel=3)
    return ()


def _read(path: Path) -> tuple[Run, ...]:
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        if isinstance(record, dict) and "runs" in record:
            shared = record["shared"]
            return tuple(Run.parse(_merged(shared, run)) for run in record["runs"])
        return (Run.parse(record),)
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise ValueError(f"{path} is not a result file, or damaged: {error}") from error


def _merged(shared: Mapping[str, Any], run: Mapping[str, Any]) -> dict[str, Any]:
    nested = {name: shared.get(name, {}) | run.get(name, {}) for name in NESTED}
    return {**shared, **run, **nested}
