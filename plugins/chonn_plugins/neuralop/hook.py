"""Adds the ``spectral_mixer*`` keywords to the constructor of a model class."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from chonn_plugins.neuralop.placement import KEYWORDS, Layer, Placement

# Attribute of an extended class that holds its original constructor. IPython's autoreload updates
# the attributes of a class, so it finds the original here and updates its code.
_ORIGINAL = "_init_without_spectral_mixers"


def add_keywords(cls: type, layers_of: Callable[[Any], Sequence[Layer]]) -> None:
    """Let ``cls(...)`` accept the ``spectral_mixer*`` keywords; a second call does nothing.
    `layers_of` lists the layers of a model that the original constructor has built.

    The constructor is replaced in the class itself, so it also takes effect for code that imported
    the class earlier and for subclasses that call ``super().__init__``.
    """
    if _ORIGINAL in vars(cls):
        return
    original: Any = cls.__init__

    @functools.wraps(original)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        settings = {name: kwargs.pop(name) for name in KEYWORDS if name in kwargs}
        placement = Placement.of(settings)
        original(self, *args, **kwargs)
        # Mixers are built after the model, whose parameters thus draw the same random numbers as
        # without mixers.
        if placement is not None:
            placement.insert(self, layers_of(self))
        _record(self, placement)

    wrapper: Any = __init__
    wrapper.__signature__ = _extended(inspect.signature(original))
    wrapper.__doc__ = (original.__doc__ or "") + _DOC
    cls.__init__ = wrapper
    for subclass in _subclasses(cls):
        # SFNO is made by `neuralop.models.fno.partialclass`, which stores the constructor of its
        # base class at that time.
        init = vars(subclass).get("__init__")
        if isinstance(init, functools.partialmethod) and init.func is original:
            init.func = wrapper
    setattr(cls, _ORIGINAL, original)


def install_fno() -> None:
    """Let FNO, and so TFNO, SFNO and OTNO, take the keywords; a second call does nothing."""
    # Here, not at the top: the class of now, after a reload a new one.
    from neuralop.models.fno import FNO

    add_keywords(FNO, lambda fno: [Layer(fno.fno_blocks, k) for k in range(fno.n_layers)])


def install_uno() -> None:
    """Let UNO, whose layers are blocks of their own, take the keywords."""
    from neuralop.models.uno import UNO

    add_keywords(UNO, lambda uno: [Layer(blocks, 0) for blocks in uno.fno_blocks])


def _extended(signature: inspect.Signature) -> inspect.Signature:
    """The signature with our keywords, which are keyword-only."""
    parameters = list(signature.parameters.values())
    rest = [parameters.pop()] if parameters[-1].kind is inspect.Parameter.VAR_KEYWORD else []
    ours = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default)
        for name, default in KEYWORDS.items()
    ]
    return signature.replace(parameters=[*parameters, *ours, *rest])


def _record(model: Any, placement: Placement | None) -> None:
    """Store all settings of the mixer in the arguments that a checkpoint keeps, or none of them.

    `BaseModel.__new__` has stored the defaults of the signature. A model without a mixer must not
    store our keywords, so that its checkpoint loads where chonn-ops is not installed. A model with
    one stores every option, so that its checkpoint loads after a default has changed. A subclass
    that sets the mixer itself has no such keyword and stores none.
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
            Layers that get a mixer; negative indices count from the end. Default: the first;
            none with "lift".
        spectral_mixer_mode : {"replace", "alongside", "lift"}
            "replace": mixers replace the skips of these layers. "alongside": they are added to the
            skips. "lift": one mixer acts on the lifted input, before padding and all layers.
            Default: "replace" if layers are given, otherwise the mixer's own default; for "ckb"
            that is "lift" with networks and "replace" with scans.
        spectral_mixer_kwargs : mapping, optional
            Options of the mixer.

        Raises
        ------
        ValueError
            For an unknown mixer, layer, mode or option, or a mixer that does not fit the model.
        """
