"""The Cascaded Kirchhoff Block in neuraloperator's models without any change to their classes."""

from __future__ import annotations

import copyreg
import functools
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from neuralop.layers.complex import ComplexValued
from neuralop.layers.skip_connections import skip_connection
from neuralop.layers.spectral_convolution import SpectralConv
from torch import Tensor, nn

from chonn_plugins.neuralop.mixers import ckb
from chonn_plugins.neuralop.skips import ProjectedMixer


class _ConvType(type):
    """The classes of `CKBSpectralConv.with_options` are pickled as the call that makes them."""


class CKBSpectralConv(SpectralConv, metaclass=_ConvType):
    """neuraloperator's `SpectralConv` plus a CKB of the same input, for ``conv_module=``.

    Every layer of the model gets one, beside its skip; choose layers with ``spectral_mixer`` of
    `chonn_plugins.neuralop` instead. Where a layer changes the number of channels, a linear map
    follows the block; where it changes the resolution, the block works at the input's and its
    output is resampled as the layer's skip is.

    Parameters
    ----------
    in_channels, out_channels : int
    n_modes : int or sequence of int
        Their number is the number of axes: 1, 2 or 3.
    \\*args, \\*\\*kwargs
        As for `SpectralConv`. With ``complex_data=True`` one block serves the real and one the
        imaginary part.

    Raises
    ------
    ValueError
        For other numbers of axes.

    Examples
    --------
    >>> FNO((8, 8), 1, 1, 16, conv_module=CKBSpectralConv)
    >>> FNO((8, 8), 1, 1, 16, conv_module=CKBSpectralConv.with_options(order=1, termination="ring"))
    """

    _options: Mapping[str, Any] = MappingProxyType({})

    @classmethod
    def with_options(cls, **options: Any) -> type[CKBSpectralConv]:
        """A subclass whose blocks have these options, see `chonn_plugins.neuralop.mixers.CKBMixer`.

        The same options give the same class; models with it can be pickled and saved.

        Raises
        ------
        ValueError
            For unknown or unfit options.
        """
        unknown = sorted(set(options) - set(ckb.defaults))
        if unknown:
            raise ValueError(
                f"CKBSpectralConv: expected options out of {sorted(ckb.defaults)}, "
                f"got {', '.join(map(repr, unknown))}"
            )
        merged = ckb.complete({**cls._options, **options})
        if isinstance(merged["grid"], list):  # a key of the cache below
            merged["grid"] = tuple(merged["grid"])
        axes = len(merged["grid"]) if isinstance(merged["grid"], tuple) else 1
        ckb(1, (1,) * axes, **merged)  # checks the values, before a model is built
        return _subclass(cls, tuple(sorted(merged.items())))

    def __init__(
        self, in_channels: int, out_channels: int, n_modes: Any, *args: Any, **kwargs: Any
    ) -> None:
        super().__init__(in_channels, out_channels, n_modes, *args, **kwargs)
        if self.order not in ckb.n_dims:
            raise ValueError(
                f"CKBSpectralConv: expected {', '.join(map(str, ckb.n_dims))} axes, "
                f"got n_modes={n_modes!r}"
            )
        mixer: nn.Module = ckb(in_channels, tuple(self.n_modes), **self._options)
        if in_channels != out_channels:
            projection = skip_connection(
                in_channels, out_channels, n_dim=self.order, skip_type="linear"
            )
            mixer = ProjectedMixer(mixer, projection)
        self.mixer = ComplexValued(mixer) if self.complex_data else mixer

    def forward(self, x: Tensor, output_shape: Any = None) -> Tensor:
        """Map (B, in_channels, \\*grid) to (B, out_channels, \\*grid), or to `output_shape`."""
        mixed = self.transform(self.mixer(x), output_shape=output_shape)
        return super().forward(x, output_shape=output_shape) + mixed


@functools.cache
def _subclass(base: type[CKBSpectralConv], options: tuple[tuple[str, Any], ...]) -> Any:
    members = {"_options": dict(options), "_made_by": (_subclass, (base, options))}
    return _ConvType(base.__name__, (base,), members)


def _reduce(cls: type) -> Any:
    # A name is looked up in the module of the class, as for classes that a statement made.
    return vars(cls).get("_made_by", cls.__qualname__)


copyreg.pickle(_ConvType, _reduce)  # pyright: ignore[reportArgumentType]
