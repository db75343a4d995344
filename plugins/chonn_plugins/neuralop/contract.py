"""The interface of a mixer that neuraloperator's models can use."""

from __future__ import annotations

from typing import Any, Protocol

from torch import nn


class SpectralMixer(Protocol):
    """Builds a module that maps fields (B, channels, \\*grid) to fields of the same shape.

    Register a function, a class or another callable with this signature in the entry-point group
    ``neuralop.spectral_mixers``. Users pass the entry point's name as ``spectral_mixer``. The
    module must accept any grid, because models are evaluated at other resolutions than they are
    trained at.

    Five attributes are optional:

    ``defaults`` : mapping
        The known options and their defaults. Unknown options then raise an error, and checkpoints
        record all options, so that they still load after a default has changed.
    ``complete(options)`` : mapping
        Fills in the defaults of the options that are not given, where defaults depend on other
        options. May raise ValueError. Default: the given options override ``defaults``.
    ``mode(options)`` : {"replace", "alongside", "lift"}
        The placement of mixers with these options unless users set ``spectral_mixer_mode``.
        Default: "replace".
    ``n_dims`` : tuple of int
        Numbers of grid axes that the mixer supports. Default: any.
    ``complex_data`` : bool
        Whether neuraloperator's ``ComplexValued`` may wrap the mixer for complex fields, with one
        real module for the real part and one for the imaginary part. Default: True.

    Building a mixer with bad options should raise ValueError. docs/extending.md has an example.
    """

    def __call__(self, channels: int, n_modes: tuple[int, ...], **options: Any) -> nn.Module:
        """Build a mixer for `channels` channels on ``len(n_modes)`` axes.

        `n_modes` are the modes that the layer's spectral convolution keeps along each axis.
        """
        ...
