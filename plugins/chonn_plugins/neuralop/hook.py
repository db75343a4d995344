"""Adds the ``spectral_mixer*`` keywords to the constructor of a model class, in place."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from chonn_plugins.neuralop.placement import KEYWORDS, Layer, Placement

# Own attribute of a class whose constructor has the keywords already: the original constructor.
# There IPython's autoreload finds it, and puts edited code into it as into all of a class.
_ORIGINAL = "_init_without_spectral_mixers"


def add_keywords(cls: type, layers_of: Callable[[Any], Sequence[Layer]]) -> None:
    """Let ``cls(...)`` take ``spectral_mixer`` and its settings; a second call does nothing.

    The constructor is replaced in the class itself, so that everyone who imported the class sees
    it, and subclasses that call ``super().__init__`` do.

    Parameters
    ----------
    cls : type
        The model class.
    layers_of : callable
        Lists the layers of a model that the original constructor has built.
    """
    if _ORIGINAL in vars(cls):
        return
    original: Any = cls.__init__

    @functools.wraps(original)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        given = {name: kwargs.pop(name) for name in KEYWORDS if name in kwargs}
        placement = Placement.of(given)
        original(self, *args, **kwargs)
        # After the original: the model's own parameters draw the same random numbers as without.
        if placement is not None:
            placement.insert(self, layers_of(self))
        _record(self, placement)

    wrapper: Any = __init__
    wrapper.__signature__ = _extended(inspect.signature(original))
    wrapper.__doc__ = (original.__doc__ or "") + _DOC
    cls.__init__ = wrapper
    for subclass in _subclasses(cls):
        # `neuralop.models.fno.partialclass` (SFNO) freezes the constructor that it finds.
        init = vars(subclass).get("__init__")
        if isinstance(init, functools.partialmethod) and init.func is original:
            init.func = wrapper
    setattr(cls, _ORIGINAL, original)


def _extended(signature: inspect.Signature) -> inspect.Signature:
    """The signature with our keywords, which no positional argument can reach."""
    parameters = list(signature.parameters.values())
    rest = [parameters.pop()] if parameters[-1].kind is inspect.Parameter.VAR_KEYWORD else []
    ours = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default)
        for name, default in KEYWORDS.items()
    ]
    return signature.replace(parameters=[*parameters, *ours, *rest])


def _record(model: Any, placement: Placement | None) -> None:
    """Keep in the checkpoint's arguments what was asked for, all of it, and nothing if nothing.

    `BaseModel.__new__` has filled in the defaults of the signature. Plain checkpoints must load
    where chonn-ops is absent; others must outlive a change of a default. A subclass that sets the
    mixer itself has none of the keywords there, and must not get them.
    """
    recorded = getattr(model, "_init_kwargs", {})
    if placement is None:
        for name in KEYWORDS:
            recorded.pop(name, None)
    elif "spectral_mixer" in recorded:
        recorded.update(placement.keywords())


def _subclasses(cls: type) -> Iterator[type]:
    for subclass in cls.__subclasses__():
        yield subclass
        yield from _subclasses(subclass)


_DOC = """
        Parameters added by chonn-ops
        -----------------------------
        spectral_mixer : str, optional
            Name of a mixer of the entry-point group ``neuralop.spectral_mixers``, such as "ckb".
        spectral_mixer_layers : sequence of int
            Layers that get one; negative indices count from the end. Default: the first, and
            none with "lift".
        spectral_mixer_mode : {"replace", "alongside", "lift"}
            Whether mixers take the places of these layers' skips, are added to them, or one stands
            before all layers, on the lifted input without padding. Default: the mixer's, or
            "replace" where layers are given; of "ckb" it is "lift" for networks and "replace" for
            scans.
        spectral_mixer_kwargs : mapping, optional
            Options of the mixer.

        Raises
        ------
        ValueError
            For an unknown mixer, layer, mode or option, or a mixer that does not fit the model.
        """
