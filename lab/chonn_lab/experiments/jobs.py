"""A job: the settings of one run, the places of its files, and whether it has finished.

A run that has finished has the file ``<output>/<experiment>/<scale>/<variant>-seed<k>.json``.
Beside it are the sample fields, ``<variant>-seed<k>.npz``, and the folder ``<variant>-seed<k>``
with the checkpoint from which an interrupted run resumes.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import math
import os
import re
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from filelock import FileLock

from chonn_lab.experiments import get, provenance
from chonn_lab.experiments.base import Config, Experiment, Variant
from chonn_lab.experiments.records import Run
from chonn_ops.checks import check_choice

ACCELERATORS = ("auto", "cpu", "gpu")


def parse_settings(config: Config, assignments: Iterable[str]) -> dict[str, Any]:
    """Parse texts ``field=value`` into values by field; tuples are written as ``10,5,3``.

    Raises
    ------
    ValueError
        For an unknown field, a value of another type, or one that the config refuses.
    """
    types = typing.get_type_hints(type(config))
    known = [field.name for field in dataclasses.fields(config)]
    values: dict[str, Any] = {}
    for assignment in assignments:
        name, equals, text = assignment.partition("=")
        if not equals:
            raise ValueError(f"expected field=value, got {assignment!r}")
        if name not in known:
            raise ValueError(f"{name}: no such field, expected one of {', '.join(known)}")
        values[name] = _value(name, types[name], text)
    dataclasses.replace(config, **values)
    return values


def settings_texts(values: Mapping[str, Any]) -> list[str]:
    """Texts that `parse_settings` reads as these values."""
    plain = {name: str(v).lower() if isinstance(v, bool) else v for name, v in values.items()}
    return [f"{name}={value}" for name, value in plain.items()]


def _value(name: str, kind: Any, text: str) -> Any:
    if typing.get_origin(kind) is tuple:
        item, *rest = typing.get_args(kind)
        if rest == [...] and item in _PARSERS:
            return tuple(_value(name, item, part) for part in text.split(","))
    if kind not in _PARSERS:
        raise ValueError(f"{name}: cannot be set from text")
    expected, parser = _PARSERS[kind]
    try:
        return parser(text)
    except (ValueError, KeyError):
        raise ValueError(f"{name}: expected {expected}, got {text!r}") from None


def _finite(text: str) -> float:
    # NaN passes every comparison with a bound, and is not equal to itself in a result file.
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(text)
    return value


_PARSERS: dict[Any, tuple[str, Callable[[str], Any]]] = {
    int: ("an integer", int),
    float: ("a finite number", _finite),
    str: ("text", str),
    bool: ("true or false", lambda text: {"true": True, "false": False}[text.lower()]),
}


def folder_name(scale: str, config: Config, values: Mapping[str, Any]) -> str:
    """Name such as ``small+epochs=1,n_train=4``: results of different settings stay apart.

    Values that the scale has anyway leave no mark, nor does the seed, which names the runs.
    """
    marks = {
        name: value
        for name, value in values.items()
        if value != getattr(config, name) and name != "seed"
    }
    text = ",".join(f"{name}={_plain(value)}" for name, value in sorted(marks.items()))
    return f"{scale}+{text}" if text else scale


def _plain(value: Any) -> str:
    items = value if isinstance(value, tuple) else (value,)
    return "-".join(re.sub(r"[^\w.+-]", "_", str(item)) for item in items)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Job:
    """One run, described by names, so that it can be sent to another process.

    Parameters
    ----------
    experiment_name : str
        For `chonn_lab.experiments.get`.
    scale : str
        Name of the results' folder.
    base : Config
        Before the changes of the variant.
    variant_name : str
    seed : int
    output, data : Path
        Folders of all results and of all data.
    overrides : mapping
        Fields of the config that hold whatever the variant changes.
    accelerator : {"auto", "cpu", "gpu"}
    mixed : bool
        Accept results and checkpoints that were made with other data.
    """

    experiment_name: str
    scale: str
    base: Config
    variant_name: str
    seed: int
    output: Path
    data: Path
    overrides: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    accelerator: str = "auto"
    mixed: bool = False

    def __post_init__(self) -> None:
        check_choice("accelerator", self.accelerator, ACCELERATORS)

    def __getstate__(self) -> dict[str, Any]:
        # Variants hold functions, which cannot be pickled.
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}

    @property
    def title(self) -> str:
        return f"{self.variant_name} seed {self.seed}"

    @functools.cached_property
    def experiment(self) -> Experiment[Any]:
        return get(self.experiment_name)

    @functools.cached_property
    def variant(self) -> Variant[Any]:
        variants = self.experiment.variants(self.base)
        return next(variant for variant in variants if variant.name == self.variant_name)

    @functools.cached_property
    def config(self) -> Config:
        """Settings that the variant trains with."""
        return dataclasses.replace(self.base, **{**self.variant.changes, **self.overrides})

    @property
    def settings(self) -> dict[str, Any]:
        """Settings that identify a run, as JSON values.

        The config's seed is left out: it says only where the seeds of a comparison start.
        """
        config = dataclasses.asdict(self.config)
        del config["seed"]
        return json.loads(json.dumps(config))

    def differences(self, earlier: Mapping[str, Any]) -> str:
        """Names and settings in which an earlier run differs: ``epochs: 2 there, 3 here``.

        A setting that the earlier run does not record counts as its default.
        """
        names = {"experiment": self.experiment.name, "variant": self.variant_name}
        here = {**names, "seed": self.seed, **self.settings}
        defaults = {
            field.name: field.default
            for field in dataclasses.fields(self.config)
            if field.default is not dataclasses.MISSING and field.name != "seed"
        }
        there = {**names, "seed": self.seed, **json.loads(json.dumps(defaults)), **earlier}
        missing = object()
        return ", ".join(
            f"{name}: {there.get(name, 'none')} there, {here.get(name, 'none')} here"
            for name in sorted(there.keys() | here.keys())
            if there.get(name, missing) != here.get(name, missing)
        )

    @property
    def folder(self) -> Path:
        """Folder of the checkpoint."""
        name = f"{self.variant_name}-seed{self.seed}"
        return self.output / self.experiment.name / self.scale / name

    @property
    def result(self) -> Path:
        return self.folder.with_name(f"{self.folder.name}.json")

    @property
    def fields(self) -> Path:
        return self.folder.with_name(f"{self.folder.name}.npz")

    @property
    def checkpoint(self) -> Path:
        return self.folder / "last.ckpt"

    @property
    def data_folder(self) -> Path:
        return self.data / self.experiment.name

    @property
    def data_files(self) -> tuple[Path, ...]:
        return tuple(self.experiment.files(self.config, self.data_folder))

    def prepare(self) -> None:
        """Make missing data files, one process at a time."""
        if self.data_files and all(path.exists() for path in self.data_files):
            return
        made = [folder for folder in (self.data, self.data_folder) if not folder.exists()]
        self.data_folder.mkdir(parents=True, exist_ok=True)
        try:
            with _locked(self.data_folder):
                self.experiment.prepare(self.config, self.data_folder)
        except BaseException:
            for folder in reversed(made):
                with contextlib.suppress(OSError):
                    folder.rmdir()
            raise

    def finished(self) -> Run | None:
        """The run of the result file; None if there is no file.

        Raises
        ------
        ValueError
            If the file is damaged or not a result, or of another run, other settings or, unless the
            job accepts them, other data; names the difference.
        """
        advice = "move it away to run afresh, or choose another output folder"
        try:
            found = Run.parse(json.loads(self.result.read_text(encoding="utf-8")))
        except FileNotFoundError:
            return None
        except (ValueError, RecursionError) as error:
            raise ValueError(
                f"{self.result}: damaged, or no result of chonn-lab run ({error}); {advice}"
            ) from error
        names = {"experiment": found.experiment, "variant": found.variant, "seed": found.seed}
        if differing := self.differences({**found.config, **names}):
            raise ValueError(f"{self.result}: result of other settings ({differing}); {advice}")
        if not self.mixed and (differing := found.provenance.differences(provenance.of(self))):
            raise ValueError(
                f"{self.result}: result of other data ({differing}); {advice}, "
                f"or accept it with {provenance.ANYWAY}"
            )
        return found


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Hold the lock of a data folder; the lock file is removed afterwards."""
    if not os.access(folder, os.W_OK):
        # The experiment decides whether it needs files that nobody can write here.
        yield
        return
    path = folder / ".lock"
    with FileLock(path):
        try:
            yield
        finally:
            # Removed while it is held: later it may be another process's lock.
            if os.name == "posix":
                path.unlink(missing_ok=True)
