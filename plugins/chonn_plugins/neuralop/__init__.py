"""neuraloperator's FNO, TFNO, SFNO and UNO take mixers beside or instead of their pointwise skips,
and it has a model more: ``model_arch: chonn_network``, see `CHONNNetwork`.

``FNO((16, 16), 1, 1, 32, spectral_mixer="ckb")`` puts a Cascaded Kirchhoff Block of networks behind
the lifting. `chonn_plugins.neuralop.hook` describes the keywords, and so does ``FNO.__init__``.

Models that ask for no mixer are what they were: same weights for the same seed, same checkpoints.
Weights outside the mixers are those of the plain model, too.

Other packages register mixers of their own: see `SpectralMixer`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from chonn_plugins.neuralop.contract import SpectralMixer

if TYPE_CHECKING:
    from chonn_plugins.neuralop.network import CHONNNetwork

__all__ = ["CHONNNetwork", "SpectralMixer"]


def __getattr__(name: str) -> object:
    # Imported when first used: it needs neuralop and chonn_ops, the hook of a plain model neither.
    if name == "CHONNNetwork":
        from chonn_plugins.neuralop import network

        network.install()
        return network.CHONNNetwork
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
