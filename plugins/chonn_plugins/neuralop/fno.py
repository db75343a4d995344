"""``spectral_mixer`` for neuraloperator's FNO, and so for TFNO and SFNO."""

from __future__ import annotations

from typing import Any

from chonn_plugins.neuralop.hook import add_keywords
from chonn_plugins.neuralop.placement import Layer


def install() -> None:
    """Let ``FNO(...)`` take ``spectral_mixer`` and its settings; a second call does nothing."""
    # Here, not at the top: the class of now, after a reload a new one.
    from neuralop.models.fno import FNO

    add_keywords(FNO, _layers)


def _layers(model: Any) -> list[Layer]:
    return [Layer(model.fno_blocks, index) for index in range(model.n_layers)]
