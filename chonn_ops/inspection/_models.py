"""`load`: the model of any checkpoint with cells of this package."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from chonn_ops.inspection._bare import bare_model
from chonn_ops.inspection._files import read_weights, weights_file
from chonn_ops.inspection._hosts import Trained, reader_of
from chonn_ops.nn import KirchhoffCell, NetworkCell

_CELLS = (KirchhoffCell, NetworkCell)


def load(
    checkpoint: str | Path,
    frame: Sequence[int] | None = None,
    *,
    name: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> Trained:
    """The model of a checkpoint.

    Parameters
    ----------
    checkpoint : path
        Of PDEBench's runner, neuraloperator's Trainer (the folder, or its weights), timm's train.py
        or ``chonn run``; or the state dict of a model, as ``torch.save`` or safetensors wrote it.
    frame : sequence of int, (T, C, \\*grid), optional
        The shape of a sample; needed for a network model's state dict alone.
    name, options : optional
        Of a state dict: the model's class in `chonn_ops` or its name in timm, and its keywords,
        those of the blocks as ``ckb.order`` and the like. Without, of a `CHONNNetwork2d` and of
        timm's models they are read off the weights, or off the card beside them as
        `chonn_ops.models.pretrained` describes.

    Raises
    ------
    FileNotFoundError, ValueError
        If there is no such file, it is damaged, would run code, or is no checkpoint of a model with
        cells of this package.
    ImportError
        Without the host.
    """
    path = weights_file(Path(checkpoint))
    content = read_weights(path)
    given = dict(options or {})
    reader = reader_of(content)
    if reader is None:
        trained = bare_model(path, content, frame, name, given)
    elif name is not None or given:
        raise ValueError(
            f"{path}: expected no model and no options, the checkpoint has its own; "
            f"got {name or ', '.join(given)}"
        )
    else:
        trained = reader(path, content)
    if not any(isinstance(module, _CELLS) for module in trained.model.modules()):
        raise ValueError(
            f"{path}: expected a model with cells of this package, got {trained.title} without"
        )
    trained.model.eval()
    return trained
