"""``chonn-pdebench``: runs PDEBench's runner, also copies that our Hydra plugin does not recognise.

``chonn-pdebench +args=config_Darcy.yaml ++args.model_name=chonn_unet`` runs the installed
``pdebench.models.train_models_forward``. If the first argument is the path of a ``.py`` file, it
runs that file, the runner of a copy of PDEBench under any name.
"""

from __future__ import annotations

import os
import runpy
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

MODULE = "pdebench.models.train_models_forward"
USAGE = "usage: chonn-pdebench [RUNNER.py] [Hydra overrides ...]"


def main(argv: Sequence[str] | None = None) -> None:
    """Run PDEBench's runner with our plugin, whatever its config folder is called; SystemExit if
    there is no runner, and whenever the runner raises it."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    script = Path(arguments.pop(0)).resolve() if arguments and arguments[0][-3:] == ".py" else None
    if script is not None and not script.is_file():
        raise SystemExit(f"chonn-pdebench: runner not found: {script}\n{USAGE}")
    if script is not None and find_spec("pdebench") is None:
        # <copy>/pdebench/models/train_models_forward.py imports the package it belongs to.
        sys.path.insert(0, str(script.parents[2]))
    if find_spec("pdebench") is None:
        raise SystemExit(
            "chonn-pdebench: PDEBench is not installed: "
            "pip install --no-deps --ignore-requires-python pdebench==0.1.0"
        )
    os.environ["CHONN_PDEBENCH"] = "always"
    sys.argv = [str(script or MODULE), *arguments]
    if script is not None:
        runpy.run_path(str(script), run_name="__main__")
    else:
        runpy.run_module(MODULE, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
