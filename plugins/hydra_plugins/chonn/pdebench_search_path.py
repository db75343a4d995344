"""Register `chonn_plugins.pdebench` with PDEBench's Hydra runner and no other application.

Hydra imports this module in every application of an environment with chonn-ops, so the module
imports only Hydra until it has recognised PDEBench.

The environment variable ``CHONN_PDEBENCH`` overrides this: with ``0`` the plugin never acts, with
``always`` it acts in any application, for renamed copies of PDEBench.
"""

from __future__ import annotations

import copy
import os
import re
from importlib.util import find_spec
from pathlib import Path

from hydra.core.config_search_path import ConfigSearchPath
from hydra.core.config_store import ConfigStore
from hydra.plugins.search_path_plugin import SearchPathPlugin
from omegaconf import open_dict

PROVIDER = "chonn-ops"
CALLBACK = {"_target_": "chonn_plugins.pdebench.callback.PDEBenchCallback"}


class PDEBenchSearchPath(SearchPathPlugin):
    """Supply the configs that PDEBench's wheel lacks, and register our Hydra callback."""

    def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
        main = next((e for e in search_path.get_path() if e.provider == "main"), None)
        if main is None or not _is_pdebench(main.path):
            return
        from chonn_plugins.openmp import sleep_while_waiting
        from chonn_plugins.pdebench import CONFIG_DIR

        # PDEBench imports torch in the job.
        sleep_while_waiting()
        configs = f"file://{CONFIG_DIR / 'base'}"
        folder = _folder(main.path)
        if folder is None or not folder.is_dir():
            # Hydra requires the application's own folder, which the wheel of 0.1.0 lacks.
            main.path = configs
        else:
            search_path.append(PROVIDER, configs)
        _register_callback()


def _is_pdebench(main: str) -> bool:
    switch = os.environ.get("CHONN_PDEBENCH")
    if switch == "0":
        return False
    parts = re.split(r"[/\\.]+", main.removesuffix("/"))
    return switch == "always" or parts[-3:] == ["pdebench", "models", "config"]


def _folder(main: str) -> Path | None:
    """The application's config folder, which may not exist; None if its package does not."""
    if not main.startswith("pkg://"):
        return Path(main.removeprefix("file://"))
    package, _, rest = main.removeprefix("pkg://").partition("/")
    spec = find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        return None
    return Path(next(iter(spec.submodule_search_locations)), rest)


def _register_callback() -> None:
    # The callback does nothing in other applications of this process.
    store = ConfigStore.instance()
    current = store.load("hydra/config.yaml")
    if current.provider != PROVIDER:
        node = copy.deepcopy(current.node)
        with open_dict(node):
            node.callbacks["chonn_pdebench"] = CALLBACK
        store.store(group="hydra", name="config", node=node, provider=PROVIDER)
