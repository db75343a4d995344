"""The ``spectral_mixer*`` keywords of a model: their checks, and the insertion of mixers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any

from torch import nn

from chonn_plugins import _entry_points
from chonn_plugins.neuralop.contract import SpectralMixer
from chonn_plugins.neuralop.skips import MixedLifting, MixedSkip, NoSkip, ProjectedMixer

GROUP = "neuralop.spectral_mixers"
MODES = ("replace", "alongside", "lift")
KEYWORDS: Mapping[str, Any] = {
    "spectral_mixer": None,
    "spectral_mixer_layers": None,
    "spectral_mixer_mode": None,
    "spectral_mixer_kwargs": None,
}


@dataclass(frozen=True)
class Layer:
    """One layer of a model: its `FNOBlocks` and its index in them."""

    blocks: Any
    index: int

    @property
    def n_modes(self) -> tuple[int, ...]:
        return tuple(self.blocks.n_modes)


@dataclass(frozen=True)
class Placement:
    """Which mixer, of an entry point's name, a model gets, and where.

    `layers`, all different, and `mode` are as in the keywords (`chonn_plugins.neuralop.hook`), but
    None for layers with "lift" only; `options` are the mixer's, with its defaults if it declares
    them.
    """

    name: str
    mixer: SpectralMixer
    layers: tuple[int, ...] | None
    mode: str
    options: Mapping[str, Any]

    @classmethod
    def of(cls, settings: Mapping[str, Any]) -> Placement | None:
        """Read a model's ``spectral_mixer*`` keywords; None without ``spectral_mixer``. A
        ValueError for an unknown mixer, mode or option, layers that are not integers, or settings
        of a mixer without ``spectral_mixer``."""
        values = {**KEYWORDS, **settings}
        name = values["spectral_mixer"]
        layers = values["spectral_mixer_layers"]
        layers = layers if layers is None else _layers(layers)
        mode = values["spectral_mixer_mode"]
        if mode not in (None, *MODES):
            raise ValueError(f"spectral_mixer_mode: expected one of {MODES}, got {mode!r}")
        options = values["spectral_mixer_kwargs"]
        options = {} if options is None else options
        if not isinstance(options, Mapping):
            raise ValueError(f"spectral_mixer_kwargs: expected a mapping, got {options!r}")
        if mode == "lift" and layers is not None:
            raise ValueError(
                "spectral_mixer_layers: expected None in mode 'lift', which belongs to no layer, "
                f"got {layers}"
            )
        if name is None:
            for setting, value in values.items():
                if value:
                    raise ValueError(
                        f"{setting}: expected spectral_mixer to be set as well, one of "
                        f"{_entry_points.names_in(GROUP)}; got {setting}={value!r} alone"
                    )
            return None
        mixer = _entry_points.load(GROUP, "spectral_mixer", name, callable, "a callable")
        defaults = getattr(mixer, "defaults", None)
        unknown = sorted(set(options) - set(options if defaults is None else defaults))
        if unknown:
            raise ValueError(
                f"spectral_mixer_kwargs: expected options of {name!r}, out of "
                f"{sorted(defaults or ())}, got {', '.join(map(repr, unknown))}"
            )
        complete = getattr(mixer, "complete", None)
        try:
            options = {**(defaults or {}), **options} if complete is None else complete(options)
        except (TypeError, ValueError) as error:
            raise ValueError(f"spectral_mixer_kwargs: {error}") from error
        if mode is None:
            preferred = getattr(mixer, "mode", None)
            mode = "replace" if preferred is None or layers is not None else preferred(options)
        if mode != "lift" and layers is None:
            layers = (0,)
        return cls(name, mixer, layers, mode, options)

    def keywords(self) -> dict[str, Any]:
        """The keywords that give this placement whatever the defaults are."""
        return {
            "spectral_mixer": self.name,
            "spectral_mixer_layers": self.layers,
            "spectral_mixer_mode": self.mode,
            "spectral_mixer_kwargs": dict(self.options),
        }

    def insert(self, model: Any, layers: Sequence[Layer]) -> None:
        """Build the mixers and put them into the chosen layers of a model, or before all layers.

        Mixers draw their parameters after the model has drawn its own. In a layer whose input and
        output channels differ (UNO) the mixer acts on the input channels, and a linear map of its
        own leads to the output channels.

        Raises
        ------
        ValueError
            For a layer that does not exist, a mixer that does not support the model, or options
            that the mixer rejects; for "replace" in a layer whose skip is a convolution
            (``conv_bias_kernel``); for OTNO with another boundary than "periodic".
        """
        boundary = self.options.get("boundary", "periodic")
        words = {boundary} if isinstance(boundary, str) else set(boundary)
        if words != {"periodic"} and any(c.__name__ == "OTNO" for c in type(model).__mro__):
            raise ValueError(
                "spectral_mixer_kwargs: expected boundary='periodic' in OTNO, whose latent grid is "
                f"a torus, got {boundary!r}"
            )
        if self.layers is None:
            self._check_fit(layers[0])
            mixer = self._branch(layers[0], projected=False)
            model.lifting = MixedLifting(model.lifting, mixer)
            return
        for layer in self._chosen(layers, self.layers):
            blocks, index = layer.blocks, layer.index
            kernel = getattr(blocks, "conv_bias_kernel", 1)  # new after neuraloperator 2.0.0
            if self.mode == "replace" and kernel != 1:
                raise ValueError(
                    "spectral_mixer_mode: expected 'alongside' or 'lift' with conv_bias_kernel="
                    f"{kernel}, because 'replace' removes that convolution, got 'replace'"
                )
            if blocks.fno_skips is None:
                blocks.fno_skips = nn.ModuleList(
                    NoSkip(blocks.out_channels) for _ in range(blocks.n_layers)
                )
            skip = blocks.fno_skips[index]
            branch = self._branch(layer, projected=True)
            lone = self.mode == "replace" or isinstance(skip, NoSkip)
            blocks.fno_skips[index] = branch if lone else MixedSkip(skip, branch)

    def _chosen(self, layers: Sequence[Layer], indices: tuple[int, ...]) -> list[Layer]:
        count = len(layers)
        known = range(-count, count)
        positions = [index % count for index in indices if index in known]
        if len(set(positions)) < len(indices):
            raise ValueError(
                f"spectral_mixer_layers: expected indices from {-count} to {count - 1}, every "
                f"layer once, got {indices}"
            )
        chosen = [layers[position] for position in positions]
        for layer in chosen:
            self._check_fit(layer)
        return chosen

    def _check_fit(self, layer: Layer) -> None:
        if not hasattr(layer.blocks, "fno_skips"):
            raise ValueError(
                "spectral_mixer: expected layers with skips, such as FNOBlocks, "
                f"got {type(layer.blocks).__name__}"
            )
        n_dim = len(layer.n_modes)
        n_dims = getattr(self.mixer, "n_dims", (n_dim,))
        if n_dim not in n_dims:
            raise ValueError(
                f"spectral_mixer: {self.name!r} expects a model of "
                f"{', '.join(map(str, n_dims))} dimensions, got {n_dim}"
            )
        if layer.blocks.complex_data and not getattr(self.mixer, "complex_data", True):
            raise ValueError(
                f"spectral_mixer: {self.name!r} expects real fields, got complex_data=True"
            )

    def _branch(self, layer: Layer, *, projected: bool) -> nn.Module:
        """A mixer of the layer's input channels, led to its output channels if `projected`."""
        # Imported at the call: if neuralop was removed from `sys.modules` and imported again, the
        # modules must be of the same new classes as the model.
        from neuralop.layers.complex import ComplexValued
        from neuralop.layers.skip_connections import skip_connection

        blocks, n_modes = layer.blocks, layer.n_modes
        channels, out_channels = blocks.in_channels, blocks.out_channels
        projection = None
        if projected and channels != out_channels:
            projection = skip_connection(
                channels, out_channels, n_dim=len(n_modes), skip_type="linear"
            )
        try:
            branch = self.mixer(channels, n_modes, **self.options)
        except (TypeError, ValueError, KeyError) as error:
            # neuraloperator's `get_model` would report a KeyError as an unknown model.
            raise ValueError(
                f"spectral_mixer_kwargs: {self.name!r} cannot be built for {channels} channels: "
                f"{error}"
            ) from error
        if not isinstance(branch, nn.Module):
            raise ValueError(
                f"spectral_mixer: expected {self.name!r} to build a torch.nn.Module, "
                f"got {type(branch).__name__}"
            )
        if projection is not None:
            branch = ProjectedMixer(branch, projection)
        return ComplexValued(branch) if blocks.complex_data else branch


def _layers(layers: Any) -> tuple[int, ...]:
    entries: Any = layers if isinstance(layers, Sequence) and len(layers) else [None]
    if any(isinstance(entry, bool) or not isinstance(entry, Integral) for entry in entries):
        raise ValueError(f"spectral_mixer_layers: expected a sequence of indices, got {layers!r}")
    return tuple(map(int, entries))
