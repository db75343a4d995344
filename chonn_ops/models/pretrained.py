"""Trained weights that come with the package, each with a card that describes them.

A card is a JSON object: ``model`` (class), ``options`` (its keywords, with a block's options as
one flat mapping ``ckb``), ``input``, ``output``, ``data``, ``training``, ``scores`` and the like.
The weights are safetensors files, which hold numbers only.
"""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import nn

from chonn_ops.checks import check_choice
from chonn_ops.nn import CKBOptions

if TYPE_CHECKING:
    from typing_extensions import Self

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
    check_choice("name", name, names())
    return json.loads((FOLDER / f"{name}.json").read_text())


class Pretrained(nn.Module):
    """Base of the models that trained weights are of."""

    @classmethod
    def from_pretrained(cls, name: str) -> Self:
        """Load a trained model that comes with the package.

        Parameters
        ----------
        name : str
            One of `chonn_ops.models.pretrained.names`; `chonn_ops.models.pretrained.card` has its
            data, training and scores.

        Returns
        -------
        The model, in evaluation mode; its fields are in the units of the data.

        Raises
        ------
        ValueError
            For an unknown name, or weights of another model.
        ImportError
            Without safetensors.
        """
        found = card(name)
        if found["model"] != cls.__name__:
            raise ValueError(f"{name}: expected weights of {cls.__name__}, got {found['model']}")
        try:
            safetensors = import_module("safetensors.torch")
        except ImportError:
            raise ImportError(
                f"{name}: weights need safetensors: pip install safetensors"
            ) from None
        options = dict(found["options"])
        if "ckb" in options:
            options["ckb"] = CKBOptions.from_mapping(options["ckb"])
        model = cls(**options)
        model.load_state_dict(safetensors.load_file(FOLDER / f"{name}.safetensors"))
        return model.eval()
