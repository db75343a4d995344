"""What a package has to provide for its mixer to be used by neuraloperator's models."""

from __future__ import annotations

from typing import Any, Protocol

from torch import nn


class SpectralMixer(Protocol):
    """Builds a module that maps fields (B, channels, \\*grid) to fields of the same shape.

    Register a function, a class or an object that can be called like this in the entry-point group
    ``neuralop.spectral_mixers``; the entry point's name is what users pass as ``spectral_mixer``.
    The module must accept any grid: models are evaluated at other resolutions than trained at.

    Five attributes are optional:

    ``defaults`` : mapping
        The known options and their defaults. Other options are then errors, and checkpoints
        record all options, so that they outlive a change of a default.
    ``complete(options)`` : mapping
        All options, of those given: for defaults that depend on other options. May raise
        ValueError for bad ones. Default: those given before ``defaults``.
    ``mode(options)`` : {"replace", "alongside", "lift"}
        Where mixers with these options go unless users say it. Default: "replace".
    ``n_dims`` : tuple of int
        Numbers of grid axes that the mixer supports. Default: any.
    ``complex_data`` : bool
        Whether the mixer may serve complex fields, in neuraloperator's ``ComplexValued``: as two
        real modules, one for the real and one for the imaginary part. Default: True.

    Bad options should raise ValueError.

    Examples
    --------
    In a package's ``pyproject.toml``::

        [project.entry-points."neuralop.spectral_mixers"]
        local = "my_package.mixers:local"

    and in ``my_package/mixers.py``::

        def local(channels, n_modes, *, kernel_size=3):
            return nn.Conv2d(channels, channels, kernel_size, padding="same")

        local.n_dims = (2,)
        local.defaults = {"kernel_size": 3}
    """

    def __call__(self, channels: int, n_modes: tuple[int, ...], **options: Any) -> nn.Module:
        """Build a mixer for `channels` channels on ``len(n_modes)`` axes.

        `n_modes` are the modes that the layer's spectral convolution keeps along each axis.
        """
        ...
