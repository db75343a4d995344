"""Trained weights that come with the package, each with a card that describes them.

A card is a JSON object: ``model`` (class), ``options`` (its keywords, with the block's options as
one flat mapping ``ckb``), ``input``, ``output``, ``data``, ``training``, ``scores`` and the like.
The weights are safetensors files, which hold numbers only.
"""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path
from typing import Any

from torch import nn

from chonn_ops.nn import CKBOptions

FOLDER = Path(__file__).with_name("weights")


def names() -> tuple[str, ...]:
    """Names of the trained weights."""
    return tuple(sorted(path.stem for path in FOLDER.glob("*.json")))


def card(name: str) -> dict[str, Any]:
    """The card of trained weights: model, data, training, scores.

    Raises
    ------
    ValueError
        For a name that is none of `names`.
    """
    if name not in names():
        raise ValueError(f"name: expected one of {names()}, got {name!r}")
    return json.loads((FOLDER / f"{name}.json").read_text())


def load(model_class: type[nn.Module], name: str) -> nn.Module:
    """The model of a card, with its weights, in evaluation mode.

    Raises
    ------
    ValueError
        For an unknown name, or weights of another model.
    ImportError
        Without safetensors.
    """
    found = card(name)
    if found["model"] != model_class.__name__:
        raise ValueError(
            f"{name}: expected weights of {model_class.__name__}, got {found['model']}"
        )
    try:
        safetensors = import_module("safetensors.torch")
    except ImportError:
        raise ImportError(f"{name}: weights need safetensors: pip install safetensors") from None
    options = dict(found["options"])
    model = model_class(**{**options, "ckb": CKBOptions.from_mapping(options["ckb"])})
    model.load_state_dict(safetensors.load_file(FOLDER / f"{name}.safetensors"))
    return model.eval()
