"""What to run, where its files are, and whether it has run.

In ``<output>/<experiment>/<scale>/``, ``<variant>-seed<k>.json`` appears when a run has finished,
beside the pictures' fields in ``<variant>-seed<k>.npz`` and the folder ``<variant>-seed<k>`` of
checkpoint and logs, from which an interrupted run resumes. Files of other programs in these places
are refused.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from filelock import FileLock

from chonn_ops.experiments import get, provenance, results
from chonn_ops.experiments._ours import is_ours, refuse_foreign
from chonn_ops.experiments.base import Config, Experiment, Variant

CHECKPOINT = "last.ckpt"


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Job:
    """One run, in values that another process can take.

    Parameters
    ----------
    experiment : str
        For `chonn_ops.experiments.get`.
    scale : str
        Name of the results' folder.
    config : Config
        Before the changes of the variant.
    variant : str
    seed : int
    output, data : Path
        Folders of all results and of all data.
    overrides : mapping
        Fields of the config that hold whatever the variant changes.
    accelerator, precision : str
        As Lightning's Trainer has them.
    mixed : bool
        Take results and checkpoints of other data or model code.
    """

    experiment: str
    scale: str
    config: Config
    variant: str
    seed: int
    output: Path
    data: Path
    overrides: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    accelerator: str = "auto"
    precision: str = "32-true"
    mixed: bool = False

    @property
    def title(self) -> str:
        return f"{self.variant} seed {self.seed}"

    def resolve(self) -> Run:
        """Look up experiment and variant."""
        experiment = get(self.experiment)
        variant = next(v for v in experiment.variants(self.config) if v.name == self.variant)
        config = dataclasses.replace(self.config, **{**variant.changes, **self.overrides})
        return Run(self, experiment, variant, config)


@dataclasses.dataclass(frozen=True, eq=False)
class Run:
    """A job with its experiment, its variant and the config that the variant trains with."""

    job: Job
    experiment: Experiment[Any]
    variant: Variant[Any]
    config: Config

    @property
    def folder(self) -> Path:
        """Of checkpoint and logs."""
        name = f"{self.variant.name}-seed{self.job.seed}"
        return self.job.output / self.experiment.name / self.job.scale / name

    @property
    def result(self) -> Path:
        return self.folder.with_name(f"{self.folder.name}.json")

    @property
    def fields(self) -> Path:
        return self.folder.with_name(f"{self.folder.name}.npz")

    @property
    def checkpoint(self) -> Path:
        return self.folder / CHECKPOINT

    @property
    def data(self) -> Path:
        return self.job.data / self.experiment.name

    @property
    def settings(self) -> dict[str, Any]:
        """What makes two runs of a name the same, as JSON has it.

        The config's seed is not among it: it only says where a comparison's seeds start.
        """
        config = dataclasses.asdict(self.config)
        del config["seed"]
        return json.loads(json.dumps(config))

    def prepare(self) -> None:
        """Make data that are not there yet, one process at a time."""
        paths = self.experiment.files(self.config, self.data)
        if paths and all(path.exists() for path in paths):
            return
        made = [folder for folder in (self.job.data, self.data) if not folder.exists()]
        self.data.mkdir(parents=True, exist_ok=True)
        try:
            with _locked(self.data):
                self.experiment.prepare(self.config, self.data)
        except BaseException:
            for folder in reversed(made):
                with contextlib.suppress(OSError):
                    folder.rmdir()
            raise

    def finished(self) -> dict[str, Any] | None:
        """Content of the result file, None if there is none.

        Raises
        ------
        ValueError
            If the file is damaged, another program's, or of another run, other settings, data or
            model code; names what differs. The last two are taken if the job says so.
        """
        advice = "move it away to run afresh, or choose another output folder"
        try:
            record = json.loads(self.result.read_text(encoding="utf-8"))
            found = results.Run.parse(record)
        except FileNotFoundError:
            return None
        except (ValueError, RecursionError) as error:
            raise ValueError(
                f"{self.result}: damaged, or no result of chonn run ({error}); {advice}"
            ) from error
        there = {name: value for name, value in found.config.items() if name != "seed"}
        there = defaults(self.config) | there
        names = {"experiment": found.experiment, "variant": found.variant, "seed": found.seed}
        here = {
            "experiment": self.experiment.name,
            "variant": self.variant.name,
            "seed": self.job.seed,
        }
        if differing := differences({**names, **there}, {**here, **self.settings}):
            raise ValueError(f"{self.result}: result of other settings ({differing}); {advice}")
        if (
            not self.job.mixed
            and provenance.known(record)
            and (differing := provenance.differences(record, provenance.here(self)))
        ):
            raise ValueError(
                f"{self.result}: result of other data or model code ({differing}); {advice}, "
                f"or take it as it is with {provenance.ANYWAY}"
            )
        return record

    def refuse_foreign(self) -> None:
        """Fail early if files that are not ours are where this run would write.

        Raises
        ------
        FileExistsError
            Names the first of them.
        """
        refuse_foreign([self.checkpoint])
        if not self._has_older_fields():
            refuse_foreign([self.fields])

    def _has_older_fields(self) -> bool:
        """Whether the fields are of this run, from before such files were marked."""
        if not (self.fields.exists() and self.checkpoint.exists() and is_ours(self.checkpoint)):
            return False
        with contextlib.suppress(OSError, zipfile.BadZipFile):
            with zipfile.ZipFile(self.fields) as archive:
                names = set(archive.namelist())
            return {"target.npy", "prediction.npy"} <= names <= _OLDER_FIELDS
        return False


_OLDER_FIELDS = {"input.npy", "target.npy", "prediction.npy"}


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


def defaults(config: Config) -> dict[str, Any]:
    """JSON values of the fields that have a default; for records from before they were there."""
    values = {
        field.name: field.default
        for field in dataclasses.fields(config)
        if field.default is not dataclasses.MISSING and field.name != "seed"
    }
    return json.loads(json.dumps(values))


def differences(earlier: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """Which JSON values differ, such as ``epochs: 2 there, 3 here``; empty if none."""
    missing = object()
    return ", ".join(
        f"{name}: {earlier.get(name, 'none')} there, {now.get(name, 'none')} here"
        for name in sorted(earlier.keys() | now.keys())
        if earlier.get(name, missing) != now.get(name, missing)
    )
