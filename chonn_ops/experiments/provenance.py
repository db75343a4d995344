"""What a result was made of: data, the model's code, the commit; and where results differ in it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

from chonn_ops.experiments import _environment
from chonn_ops.experiments._sources import digest, package, sources
from chonn_ops.problems import origin

if TYPE_CHECKING:
    from chonn_ops.experiments.base import Data
    from chonn_ops.experiments.jobs import Run as Work
    from chonn_ops.experiments.results import Run

ANYWAY = "--mixed"
SHOWN = 12
NAMED = 3
# A record's entry for the data of an experiment that names no files.
_LOADED = "as loaded"
_models: dict[tuple[str, str, str], dict[str, str]] = {}


def of(work: Work, model: torch.nn.Module, data: Data) -> dict[str, Any]:
    """Record of a run that starts now.

    Returns
    -------
    dict
        ``data``: by file what `chonn_ops.problems.origin.Origin` knows, the SHA-256 among it;
        ``model`` and ``sources``: digest of the model's code, and of its parts; ``commit`` and
        ``dirty``: of the checkout that holds the package, None if it is none.
    """
    commit, dirty = _environment.commit()
    found = sources(model, work.variant.name)
    return {
        "data": _files(work) or {_loaded_name(work): {"sha256": _checksum(data)}},
        "model": digest(found),
        "sources": found,
        "commit": commit,
        "dirty": dirty,
    }


def here(work: Work) -> dict[str, Any]:
    """The same of a run that has finished, without the data that are no files or not there."""
    key = (work.experiment.name, work.variant.name, repr(work.config))
    if key not in _models:
        _models[key] = sources(work.variant.build(work.config), work.variant.name)
    commit, dirty = _environment.commit()
    return {
        "data": _files(work),
        "model": digest(_models[key]),
        "sources": _models[key],
        "commit": commit,
        "dirty": dirty,
    }


def _files(work: Work) -> dict[str, dict[str, Any]]:
    paths = work.experiment.files(work.config, work.data)
    return {path.name: origin.identify(path).record() for path in paths if path.is_file()}


def _loaded_name(work: Work) -> str:
    """Models that change settings of their own may load other data by right."""
    changes = ", ".join(f"{name}={value}" for name, value in sorted(work.variant.changes.items()))
    return f"{_LOADED}, {changes}" if changes else _LOADED


def _checksum(data: Data) -> str:
    splits = {"train": data.train, "validation": data.validation, **data.tests}
    found = hashlib.sha256()
    for name, split in splits.items():
        for tensor in split.tensors:
            found.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
            values = tensor.detach().cpu().contiguous().flatten().view(torch.uint8)
            found.update(memoryview(values.numpy()))  # pyright: ignore[reportArgumentType]
    return found.hexdigest()


def known(record: Mapping[str, Any]) -> bool:
    """Whether a result or checkpoint says what it was made of; old ones do not."""
    return bool(record.get("data") and record.get("model"))


def differences(there: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """In which data and which parts of the model's code two records differ; empty if in none."""
    found = [
        f"data {name}: SHA-256 {_sha256(there, name)} there, {_sha256(now, name)} here"
        for name in sorted(there["data"].keys() & now["data"].keys())
        if there["data"][name].get("sha256") != now["data"][name].get("sha256")
    ]
    earlier, later = there.get("sources", {}), now.get("sources", {})
    parts = [
        name
        for name in sorted(earlier.keys() | later.keys())
        if earlier.get(name) != later.get(name)
    ]
    return ", ".join([*found, *([f"model code: {', '.join(parts)}"] if parts else [])])


def _sha256(record: Mapping[str, Any], name: str) -> str:
    return str(record["data"][name].get("sha256"))[:SHOWN]


def state(record: Mapping[str, Any]) -> str:
    """Commit of a record for people, with "-dirty" if files were changed."""
    return f"{(record['commit'] or 'none')[:SHOWN]}{'-dirty' if record.get('dirty') else ''}"


def note(there: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """What is said of an earlier part that is taken all the same; empty if nothing differs."""
    if not known(there):
        return "without a record of data and model code"
    parts = [differences(there, now)]
    if state(there) != state(now):
        parts.append(f"commit {state(there)} there, {state(now)} here")
    return ", ".join(filter(None, parts))


def conflicts(runs: Iterable[Run]) -> list[str]:
    """In which data, settings or model code the results of one table differ, and which they are.

    Settings that a model changes by design may differ between models. Old results, which do not
    say what they were made of, are compared where they can be.
    """
    values: dict[str, dict[str, list[str]]] = {}
    for run in runs:
        for what, value in _facts(run):
            values.setdefault(what, {}).setdefault(value, []).append(
                f"{run.variant} seed {run.seed}"
            )
    split: dict[tuple[tuple[str, ...], ...], list[str]] = {}
    for what, found in values.items():
        if len(found) > 1:
            by_size = sorted(found.items(), key=lambda item: len(item[1]))
            against = " / ".join(value for value, _ in by_size)
            shown = f"{what} ({against})" if what.startswith(("setting", "data")) else what
            split.setdefault(tuple(tuple(names) for _, names in by_size), []).append(shown)
    return [
        f"{', '.join(whats)}: {' differ from '.join(map(_titles, groups))}"
        for groups, whats in split.items()
    ]


def mixture(source: object, runs: Sequence[Run], allowed: bool) -> tuple[str, ...]:
    """`conflicts`, refused with a ValueError that names them unless `allowed`."""
    found = tuple(conflicts(runs))
    if found and not allowed:
        raise ValueError(
            f"{source}: results of different data, settings or model code are not for one table: "
            f"{'; '.join(found)} (run them again, move some away, or mix them all the same with "
            f"{ANYWAY} / mixed=True)"
        )
    return found


def _facts(run: Run) -> Iterator[tuple[str, str]]:
    yield "setting precision", run.precision
    for name, value in run.config.items():
        if name != "seed":
            own = run.changes is None or name in run.changes
            yield f"setting {name}{f' of {run.variant}' if own else ''}", str(value)
    for name, file in run.data.items():
        yield f"data {name}", str(file.get("sha256"))[:SHOWN]
    for name, part in run.sources.items():
        yield f"model code {name}", part


def _titles(names: tuple[str, ...]) -> str:
    more = len(names) - NAMED
    return ", ".join(names[:NAMED]) + (f" and {more} more" if more > 0 else "")


def flags(runs: Sequence[Run]) -> dict[str, list[str]]:
    """What must be said of results in one table, and the variants it is said of."""
    found: dict[str, dict[str, None]] = {}
    for run in runs:
        unknown = [] if run.data and run.model else ["no record of data and model code"]
        for text in (*unknown, *run.notes):
            found.setdefault(text, {})[run.variant] = None
    return {text: list(variants) for text, variants in found.items()}


def code() -> dict[str, Any]:
    """Which code numbers are of that no experiment gave: ``code``, ``commit`` and ``dirty``.

    ``code`` is a digest of all files of the package; the others are those of `of`.
    """
    commit, dirty = _environment.commit()
    return {"code": package(), "commit": commit, "dirty": dirty}
