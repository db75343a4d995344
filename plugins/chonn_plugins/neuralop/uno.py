"""``spectral_mixer`` for neuraloperator's UNO, whose layers are blocks of their own."""

from __future__ import annotations

from typing import Any

from chonn_plugins.neuralop.hook import add_keywords
from chonn_plugins.neuralop.placement import Layer


def install() -> None:
    """Let ``UNO(...)`` take ``spectral_mixer`` and its settings; a second call does nothing."""
    # Here, not at the top: the class of now, after a reload a new one.
    from neuralop.models.uno import UNO

    add_keywords(UNO, _layers)


def _layers(model: Any) -> list[Layer]:
    return [Layer(blocks, 0) for blocks in model.fno_blocks]
