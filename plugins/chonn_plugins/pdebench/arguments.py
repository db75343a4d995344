"""Checks for settings that PDEBench ignores: its runner accepts any ``++args.<name>``."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from types import CodeType
from typing import Any

from omegaconf import DictConfig, OmegaConf

from chonn_plugins._entry_points import closest
from chonn_plugins.pdebench import CONFIG_DIR
from chonn_plugins.pdebench.contract import JobError
from chonn_plugins.pdebench.job import TAG, Job

# About three letters in four of a misspelt setting agree with those of the setting meant.
CLOSE = 0.75
OURS = frozenset({"bands", "ckb", "data_path", "overwrite", "seed", TAG})


def check(
    job: Job,
    outside: Iterable[str],
    runner: Callable[..., Any] | None,
    overrides: Iterable[str] = (),
) -> list[str]:
    """Find settings that neither PDEBench nor the job's model knows, and return a line for each
    that is ignored. `outside` are the keys of the config outside of ``args``, `overrides` those of
    the command line, ``[+]args.<name>=<value>``.

    A setting is known if it is in PDEBench's configs (our complete copies or those beside the
    runner), or if the runner's function reads it; a copy of the runner may read more settings. A
    misspelt known name, a model's option given as ``++args.<option>``, and a setting given without
    ``args`` are a JobError, because PDEBench would ignore them.
    """
    code = getattr(runner, "__code__", None)
    names, read = OURS | _listed(CONFIG_DIR), set()
    if code is not None:
        names, read = names | _listed(Path(code.co_filename).parent / "config"), _names_read(code)
    options: dict[str, str] = {}
    if job.model is not None:
        key = job.model.options_key
        options = {option: f"{key}.{option}" for option in job.model.defaults}
        names |= {key}
    if job.family == "fno":
        names |= {"checkpointing"}
    suggestions = [*sorted(names), *options.values()]

    notes = []
    for name in sorted({o.lstrip("+").partition("=")[0] for o in overrides}):
        option = name.removeprefix("args.")
        if name != option and option in names and option in options:
            notes.append(f"{name} is ignored: {job.name} has its own, ++args.{options[option]}")
    for name, value in job.args.items():
        if name in names or name in read:
            continue
        meant = options.get(name) or closest(name, suggestions, CLOSE)
        if isinstance(value, dict):
            # These are the model's options under a wrong key, or options of another model of a
            # sweep.
            is_ours = job.model is not None and any(option in options for option in value)
            meant = job.model.options_key if job.model is not None and is_ours else None
        if meant is not None:
            raise JobError(
                f"args.{name}: not a setting of PDEBench, it would be ignored; "
                f"did you mean ++args.{meant}?"
            )
        notes.append(f"args.{name} is ignored: neither PDEBench nor {job.name} has such a setting")
    for name in outside:
        meant = options.get(name) or closest(name, suggestions, CLOSE)
        if meant is not None:
            raise JobError(
                f"{name}: settings outside args are ignored; did you mean ++args.{meant}?"
            )
        if name not in read:
            notes.append(f"{name} is ignored: PDEBench's settings are ++args.<name>")
    return notes


def _listed(folder: Path) -> set[str]:
    """The settings in the configs of a folder of PDEBench's layout."""
    names: set[str] = set()
    for path in folder.rglob("*.yaml"):
        try:
            config = OmegaConf.load(path)
        except Exception:  # Hydra says so if the job uses the file.
            continue
        if isinstance(config, DictConfig):
            args = config.get("args")
            names |= {str(key) for key in (args if isinstance(args, DictConfig) else config)}
    return names


def _names_read(code: CodeType) -> set[str]:
    """Names of all attributes and globals that a function and its inner functions use."""
    names = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            names |= _names_read(constant)
    return names
