"""Settings that nobody reads: PDEBench's runner takes any ``++args.<name>`` and ignores most."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from types import CodeType
from typing import Any

import yaml
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from chonn_plugins.pdebench import CONFIG_DIR
from chonn_plugins.pdebench.contract import JobError
from chonn_plugins.pdebench.job import TAG, Job
from chonn_plugins.pdebench.registry import closest

OURS = frozenset({"ckb", "data_path", "overwrite", "seed", TAG})


def check(
    job: Job,
    outside: Iterable[str],
    runner: Callable[..., Any] | None,
    overrides: Iterable[str] = (),
) -> list[str]:
    """Find settings that neither PDEBench nor the job's model knows.

    Known are all that stand in PDEBench's configs (ours, which are complete, and those beside the
    runner), and all that the runner's function reads, whose copies may read more.

    Parameters
    ----------
    job : Job
    outside : iterable of str
        Keys of the config beside ``args``.
    runner : callable or None
    overrides : iterable of str
        What the command line sets, ``[+]args.<name>=<value>``.

    Returns
    -------
    list of str
        A line for each setting that is ignored.

    Raises
    ------
    JobError
        For a slip of a known name, for a model's option given as ``++args.<option>``, and for a
        setting given without ``args``: what was asked for would not happen.
    """
    folders = [CONFIG_DIR / "base", CONFIG_DIR / "darcy"]
    code = getattr(runner, "__code__", None)
    if code is not None:
        folders.append(Path(code.co_filename).parent / "config")
    top, names = _config_keys(folders)
    names |= OURS
    options: dict[str, str] = {}
    if job.model is not None:
        key = job.model.options_key
        names.add(key)
        options = {option: f"{key}.{option}" for option in job.model.defaults}
    read = _names_read(code) if code is not None else set()
    suggestions = [*sorted(names), *options.values()]

    notes = []
    for name in sorted({o.lstrip("+").partition("=")[0] for o in overrides}):
        option = name.removeprefix("args.")
        if name != option and option in names and option in options:
            notes.append(f"{name} is ignored: {job.name} has its own, ++args.{options[option]}")
    for name, value in job.args.items():
        if name in names or name in read:
            continue
        meant = options.get(name) or closest(name, suggestions)
        if isinstance(value, dict):
            # Options: the job's own under a wrong key, or those of another model of a sweep.
            own = job.model is not None and any(option in options for option in value)
            meant = job.model.options_key if job.model is not None and own else None
        if meant is not None:
            raise JobError(
                f"args.{name}: not a setting of PDEBench, it would be ignored; "
                f"did you mean ++args.{meant}?"
            )
        notes.append(f"args.{name} is ignored: neither PDEBench nor {job.name} has such a setting")
    for name in outside:
        if name in top:
            continue
        meant = options.get(name) or closest(name, suggestions)
        if meant is not None:
            raise JobError(
                f"{name}: settings outside args are ignored; did you mean ++args.{meant}?"
            )
        notes.append(f"{name} is ignored: PDEBench's settings are ++args.<name>")
    return notes


def _config_keys(folders: Iterable[Path]) -> tuple[set[str], set[str]]:
    """Keys beside ``args`` and keys of ``args`` in the configs of PDEBench's layout."""
    top: set[str] = set()
    names: set[str] = set()
    for folder in folders:
        for path in (*folder.glob("*.yaml"), *folder.glob("args/*.yaml")):
            try:
                config = OmegaConf.load(path)
            # Not UTF-8, names that are no keys, too deep: what Hydra cannot read either.
            except (OSError, ValueError, RecursionError, yaml.YAMLError, OmegaConfBaseException):
                continue
            if not isinstance(config, DictConfig):
                continue
            keys = {str(key) for key in config}
            if path.parent == folder:
                top |= keys
                args = config.get("args")
                keys = {str(key) for key in args} if isinstance(args, DictConfig) else set()
            names |= keys
    return top, names


def _names_read(code: CodeType) -> set[str]:
    """Names of all attributes (and globals) that a function and those inside it mention."""
    names = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            names |= _names_read(constant)
    return names
