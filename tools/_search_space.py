"""What `_search.py` draws from: sizes of every family, rates, batches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

LIMITS = MappingProxyType({"parameters": 75_000, "multiply_adds": 66_000_000})
RATES = (1e-3, 2.5e-3, 5e-3, 1e-2, 2e-2, 5e-2)
BATCHES = (4, 8, 16)
_WIDTHS = (4, 6, 8, 10, 12, 16, 20, 24, 32, 48)
_PADDINGS = (0.0, 0.125, 0.25)
_NETWORK = MappingProxyType(
    {"network_width": (16, 20, 24, 32), "network_depth": (1, 2, 3), "networks": (4, 8, 16)}
)
SPACE: Mapping[str, Mapping[str, Sequence[Any]]] = MappingProxyType(
    {
        "unet": {"unet_features": (2, 3, 4, 5, 6, 8, 10, 12, 16)},
        "fno": {"fno_modes": (6, 8, 12, 16), "fno_width": _WIDTHS},
        "cno": {
            "channel_multiplier": (4, 6, 8, 10, 12, 16, 24),
            "cno_layers": (2, 3, 4),
            "n_res": (1, 2),
            "cno_res_neck": (1, 2, 4),
            "latent": (4, 8, 16, 32),
        },
        "fno-neuralop": {
            "width": _WIDTHS,
            "depth": (3, 4, 6),
            "modes": (8, 12, 16, 24, 32),
            "padding": _PADDINGS,
        },
        "uno": {"width": _WIDTHS, "modes": (6, 8, 10, 12, 16), "padding": _PADDINGS},
        "ffno": {
            "width": (8, 12, 16, 20, 24, 32, 48),
            "depth": (2, 4, 6, 8),
            "modes": (8, 12, 16, 24),
            "padding": _PADDINGS,
            "shared_weights": (False, True),
        },
        "transolver": {
            "width": (16, 24, 32, 48),
            "depth": (1, 2, 3, 4, 6),
            "heads": (2, 4, 8),
            "slices": (8, 16, 32, 64),
        },
        "galerkin": {
            "width": (8, 12, 16, 20, 24, 32, 48),
            "depth": (1, 2, 3, 4, 6),
            "heads": (1, 2, 4),
            "modes": (4, 6, 8, 12),
            "coarsening": (1, 2, 4),
        },
        "mgno": {"width": _WIDTHS, "depth": (2, 3, 4, 5), "levels": (4, 5, 6)},
        "network": _NETWORK,
        "network-no-cell": _NETWORK,
        "network-constant": _NETWORK,
        "solve-cnn": {"width": (8, 12, 16, 20, 32, 48), "depth": (2, 3, 4, 6)},
    }
)
