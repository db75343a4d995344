"""Models in folders: weights, and a card that says how to build the model.

A card is a JSON object: ``model`` (class) and ``options`` (its keywords, with a block's options as
one flat mapping ``ckb``). Cards of the trained weights that come with the package also have
``input``, ``output``, ``data``, ``training``, ``scores`` and the like. The weights are safetensors
files, which hold numbers only.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from chonn_ops._optional import import_optional
from chonn_ops.boundary import Condition
from chonn_ops.checks import check_choice, error, json_value
from chonn_ops.files import whole_file
from chonn_ops.nn import CKBOptions
from chonn_ops.nn.layers import Stated

if TYPE_CHECKING:
    from typing_extensions import Self

FOLDER = Path(__file__).with_name("weights")
# Names of the files in a folder of `Pretrained.save_pretrained`.
WEIGHTS, CARD = "model.safetensors", "model.json"
# Options that weights themselves have, or that say where they were made.
_OF_WEIGHTS = ("device", "dtype")


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


def options_of(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a card as a constructor takes them."""
    arguments = {name: _with_conditions(value) for name, value in options.items()}
    if (ckb := options.get("ckb")) is not None:
        arguments["ckb"] = CKBOptions.from_mapping(ckb)
    return arguments


def _with_conditions(value: Any) -> Any:
    if isinstance(value, Mapping):
        if isinstance(value.get("condition"), str):
            return Condition.from_mapping(value)
        return {name: _with_conditions(entry) for name, entry in value.items()}
    return [_with_conditions(entry) for entry in value] if isinstance(value, list) else value


def weights_of(model: nn.Module, stored: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The state dict of a file, where complex numbers are pairs of real ones."""
    pairs = {name for name, value in model.state_dict().items() if value.is_complex()}
    # Copies, because a file's tensors are not aligned as complex numbers have to be.
    copies = {name: x.clone() for name, x in stored.items()}
    return {
        name: torch.view_as_complex(x) if name in pairs and not x.is_complex() else x
        for name, x in copies.items()
    }


class Pretrained(Stated):
    """Base of the models, which can be saved with their options and loaded again."""

    _arguments: dict[str, Any]

    def __new__(cls, *args: Any, **keywords: Any) -> Self:
        model = super().__new__(cls)
        # Copies and unpickled models get the original's afterwards.
        vars(model)["_arguments"] = _arguments(cls, args, keywords)
        return model

    @property
    def options(self) -> dict[str, Any]:
        """The arguments that the model was built with and the defaults of all others, without
        `device` and `dtype`."""
        return {name: x for name, x in self._arguments.items() if name not in _OF_WEIGHTS}

    def save_pretrained(self, folder: str | Path, *, force: bool = False) -> None:
        """Save the model with its options: ``model.safetensors`` and ``model.json``.

        Parameters
        ----------
        folder : path
            Made if it does not exist.
        force : bool
            Whether a model that the folder holds is replaced. Other files stay as they are.

        Raises
        ------
        FileExistsError
            If the folder holds a model, without `force`.
        ValueError
            If options and weights do not make the model again: a module of your own as an option,
            a boundary condition of your own or with a field of values, layers that were exchanged.
        ImportError
            Without safetensors.
        """
        kind = type(self)
        known = self.options
        for name, value in known.items():
            if isinstance(value, nn.Module):
                expected = "None, as files hold no modules of your own; torch.save(model.state_dict"
                raise error(name, f"{expected}(), path) keeps the weights", type(value).__name__)
        options, state = json_value("options", known), self.state_dict()
        try:
            with torch.device("meta"):
                same = kind(**options_of(options))
            same.load_state_dict(state, assign=True)
        except (TypeError, ValueError, RuntimeError) as failure:
            said = " ".join(str(failure).split())
            raise ValueError(
                f"{kind.__name__}: expected a model that its options and weights make again; "
                f"torch.save(model.state_dict(), path) keeps the weights alone: {said:.300}"
            ) from failure
        # Not all versions of safetensors know complex numbers, none those of double precision.
        tensors = {
            name: (torch.view_as_real(x) if x.is_complex() else x).contiguous()
            for name, x in state.items()
        }
        count = sum(p.numel() for p in self.parameters())
        content = {"model": kind.__name__, "options": options, "parameters": count}
        safetensors, folder = import_optional("safetensors.torch", "pretrained"), Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        with (
            whole_file(folder / CARD, force) as described,
            whole_file(folder / WEIGHTS, force) as weights,
        ):
            described.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
            safetensors.save_file(tensors, weights)

    @classmethod
    def from_pretrained(cls, name: str | Path) -> Self:
        """Load a model from a folder, or a trained one that comes with the package.

        Parameters
        ----------
        name : str or path
            A folder of `save_pretrained`, or one of `chonn_ops.models.pretrained.names`, whose
            data, training and scores `chonn_ops.models.pretrained.card` has. For a folder with such
            a name pass the `Path`.

        Returns
        -------
        The model, in evaluation mode and on the CPU; its fields are in the units of the data.

        Raises
        ------
        ValueError
            For an unknown name, weights of another model, or damaged files.
        ImportError
            Without safetensors.
        """
        if isinstance(name, str) and name in names():
            described, weights = (FOLDER / f"{name}{end}" for end in (".json", ".safetensors"))
        else:
            described, weights = Path(name) / CARD, Path(name) / WEIGHTS
            if not described.is_file():
                expected = f"one of {names()} or a folder with {CARD} of save_pretrained"
                raise error("name", expected, repr(str(name)))
        safetensors = import_optional("safetensors.torch", "pretrained")
        try:
            content = json.loads(described.read_text(encoding="utf-8"))
            kind, options = content["model"], options_of(content["options"])
            stored = safetensors.load_file(weights)
        except Exception as failure:  # safetensors has an exception class of its own
            raise ValueError(
                f"{name}: expected the files of a model: {failure!r:.300}"
            ) from failure
        if kind != cls.__name__:
            raise ValueError(f"{name}: expected weights of {cls.__name__}, got {kind}")
        model = cls(**options)
        state = weights_of(model, stored)
        parameters = dict(model.named_parameters())
        dtypes = (x.dtype for k, x in state.items() if k in parameters and x.is_floating_point())
        model.to(next(dtypes))  # buffers that no file has, too
        model.load_state_dict(state, assign=True)
        return model.eval()


def _arguments(cls: type, args: tuple[Any, ...], keywords: dict[str, Any]) -> dict[str, Any]:
    """The arguments of a constructor by name, with its defaults, so that files survive other ones.
    Nothing if they do not fit: then Python says so, or a copy is being made."""
    signature = inspect.signature(cls.__init__)
    try:
        bound = signature.bind(None, *args, **keywords)
    except TypeError:
        return {}
    bound.apply_defaults()
    _self, *named = bound.arguments.items()
    passed_on = {p.name for p in signature.parameters.values() if p.kind is p.VAR_KEYWORD}
    options = {name: value for name, value in named if name not in passed_on}
    options |= {k: x for name, further in named if name in passed_on for k, x in further.items()}
    return options
