"""What is set of a run, what to run, where its files are, and whether it has run.

In ``<output>/<experiment>/<scale>/``, ``<variant>-seed<k>.json`` appears when a run has finished,
beside the pictures' fields in ``<variant>-seed<k>.npz`` and the folder ``<variant>-seed<k>`` of
checkpoint and logs, from which an interrupted run resumes. Files of other programs in these places
are refused.
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

from chonn_ops.experiments import get, provenance
from chonn_ops.experiments.base import Config, Experiment, Variant
from chonn_ops.experiments.records import Run
from chonn_ops.problems._parts import clear_folder

ACCELERATORS = ("auto", "cpu", "gpu")
PRECISIONS = ("32-true", "bf16-mixed", "16-mixed")


def parse_settings(config: Config, assignments: Iterable[str]) -> dict[str, Any]:
    """Values by field from texts ``field=value``; tuples as ``10,5,3``.

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
    """What `parse_settings` reads as these values of numbers, texts and switches."""
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


def folder_name(scale: str, config: Config, values: Mapping[str, Any], precision: str) -> str:
    """Name such as ``small+epochs=1,n_train=4``: results of different settings stay apart.

    Values that the scale has anyway leave no mark, nor does the seed, which names the runs.
    """
    marks = {
        name: value
        for name, value in values.items()
        if value != getattr(config, name) and name != "seed"
    }
    if precision != "32-true":
        marks["precision"] = precision
    text = ",".join(f"{name}={_plain(value)}" for name, value in sorted(marks.items()))
    return f"{scale}+{text}" if text else scale


def _plain(value: Any) -> str:
    items = value if isinstance(value, tuple) else (value,)
    return "-".join(re.sub(r"[^\w.+-]", "_", str(item)) for item in items)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Job:
    """One run, by names; another process that gets it finds experiment and variant anew.

    Parameters
    ----------
    experiment_name : str
        For `chonn_ops.experiments.get`.
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
    precision : {"32-true", "bf16-mixed", "16-mixed"}
    mixed : bool
        Take results and checkpoints of other data or model code.
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
    precision: str = "32-true"
    mixed: bool = False

    def __post_init__(self) -> None:
        for name, known in (("accelerator", ACCELERATORS), ("precision", PRECISIONS)):
            if getattr(self, name) not in known:
                raise ValueError(f"{name}: expected one of {known}, got {getattr(self, name)!r}")

    def __getstate__(self) -> dict[str, Any]:
        # Variants hold functions that no pickle takes.
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
        """What the variant trains with."""
        return dataclasses.replace(self.base, **{**self.variant.changes, **self.overrides})

    @property
    def settings(self) -> dict[str, Any]:
        """What makes two runs of a name the same, as JSON has it.

        The config's seed is not among it: it only says where a comparison's seeds start.
        """
        config = dataclasses.asdict(self.config)
        del config["seed"]
        return json.loads(json.dumps(config))

    def differences(self, earlier: Mapping[str, Any]) -> str:
        """In which names and settings an earlier run differs, such as ``epochs: 2 there, 3 here``.

        What it does not tell are names as here, and settings from before they were there.
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
        """Of checkpoint and logs."""
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
        """Make data that are not there yet, one process at a time; clear what killed ones left."""
        clear_folder(self.data_folder)
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
        """The run of the result file, None if there is none.

        Raises
        ------
        ValueError
            If the file is damaged, another program's, or of another run, other settings, data or
            model code; names what differs. The last two are taken if the job says so.
        """
        advice = "move it away to run afresh, or choose another output folder"
        try:
            found = Run.parse(json.loads(self.result.read_text(encoding="utf-8")))
        except FileNotFoundError:
            return None
        except (ValueError, RecursionError) as error:
            raise ValueError(
                f"{self.result}: damaged, or no result of chonn run ({error}); {advice}"
            ) from error
        names = {"experiment": found.experiment, "variant": found.variant, "seed": found.seed}
        if differing := self.differences({**found.config, **names}):
            raise ValueError(f"{self.result}: result of other settings ({differing}); {advice}")
        made = found.provenance
        if not self.mixed and made.known and (differing := made.differences(provenance.here(self))):
            raise ValueError(
                f"{self.result}: result of other data or model code ({differing}); {advice}, "
                f"or take it as it is with {provenance.ANYWAY}"
            )
        return found


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Keep the making of a folder's data to this process; without a trace in the folder."""
    if not os.access(folder, os.W_OK):
        # Nobody makes anything there; whether it is needed is the experiment's to know.
        yield
        return
    path = folder / ".lock"
    with FileLock(path):
        try:
            yield
        finally:
            # While it is held: later, it may be somebody else's.
            if os.name == "posix":
                path.unlink(missing_ok=True)
