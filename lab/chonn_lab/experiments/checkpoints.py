"""The models of checkpoints of ``chonn-lab run``, for ``chonn inspect``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from chonn_lab.experiments import EXPERIMENTS, get
from chonn_lab.experiments.training import STATE
from chonn_ops.inspect.checkpoint import TrainedModel, load_weights


def read_model(path: Path, content: dict[str, Any]) -> TrainedModel | None:
    """Rebuild the model of a checkpoint from the result file of its run.

    Parameters
    ----------
    path : Path
        ``<variant>-seed<k>/last.ckpt``, beside the result file ``<variant>-seed<k>.json``.
    content : dict
        The loaded checkpoint.

    Returns
    -------
    TrainedModel or None
        None if another program wrote the checkpoint.

    Raises
    ------
    ValueError
        If there is no result file, or its experiment or variant no longer exists.
    """
    if not {"state_dict", STATE} <= content.keys():
        return None
    result = path.parent.with_name(f"{path.parent.name}.json")
    try:
        record = json.loads(result.read_text(encoding="utf-8"))
        # `get` would import any module that a name such as "module:attribute" gives.
        if record["experiment"] not in EXPERIMENTS:
            raise KeyError(record["experiment"])
        experiment = get(record["experiment"])
        settings = {
            name: tuple(value) if isinstance(value, list) else value
            for name, value in record["config"].items()
        }
        config = type(experiment.scales["smoke"])(**settings)
        variant = next(v for v in experiment.variants(config) if v.name == record["variant"])
    except (OSError, ValueError, KeyError, TypeError, StopIteration) as error:
        raise ValueError(
            f"{path}: expected the result file of its run, {result} ({error!r})"
        ) from error
    title = f"{variant.label} (chonn-lab run {experiment.name}, {record.get('scale')})"
    model = load_weights(path, variant.build(config), content["state_dict"])
    return TrainedModel(model, title, {**record["config"], "seed": record["seed"]})
