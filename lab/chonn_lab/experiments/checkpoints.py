"""The models of checkpoints of ``chonn-lab run``, for ``chonn inspect``."""

from pathlib import Path
from typing import Any

from chonn_lab.experiments.configuration import build_model, build_problem, flat
from chonn_lab.experiments.runner import STATE
from chonn_ops.inspect.checkpoint import TrainedModel, load_weights

# A name in the file must not import any other module.
OURS = "chonn_lab.experiments."


def read_model(path: Path, content: dict[str, Any]) -> TrainedModel | None:
    """Rebuild the model of a checkpoint from the settings in its content; None if another program
    wrote it, a ValueError if they are not those of a problem and a model of this package."""
    if not {"state_dict", STATE} <= content.keys():
        return None
    try:
        settings = content[STATE]["settings"]
        for part in ("problem", "model"):
            if not (target := settings[part]["_target_"]).startswith(OURS):
                raise ValueError(f"expected a {part} of {OURS}*, got {target}")
        problem = build_problem(settings)
        model = build_model(settings, problem)
    except (KeyError, TypeError, ValueError, AttributeError, ImportError) as error:
        raise ValueError(f"{path}: expected the settings of a run ({error!r})") from error
    title = f"{settings['model']['label']} ({problem.title}, {settings['scale']['name']})"
    options = {**flat(settings), "seed": settings["seed"]}
    return TrainedModel(load_weights(path, model, content["state_dict"]), title, options)
