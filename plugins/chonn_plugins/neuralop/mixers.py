"""The mixers that chonn-ops registers."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from chonn_ops import CKB, CKBOptions


class CKBMixer:
    """``spectral_mixer="ckb"``: a Cascaded Kirchhoff Block of the layer's channels.

    Options are the fields of `CKBOptions`; the order is at least 1.
    """

    n_dims = (1, 2, 3)
    complex_data = True
    # What FNOs want otherwise than other hosts goes here; `conv.CKBSpectralConv` shares it.
    defaults: Mapping[str, Any] = dataclasses.asdict(CKBOptions())

    def __call__(self, channels: int, n_modes: tuple[int, ...], **options: Any) -> CKB:
        return CKB(channels, len(n_modes), **{**self.defaults, **options})


ckb = CKBMixer()
