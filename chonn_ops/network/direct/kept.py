"""Plans and what is made of them are kept for later calls, bounded by their bytes."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, Protocol, TypeVar, runtime_checkable


@runtime_checkable
class Sized(Protocol):
    @property
    def nbytes(self) -> int: ...


P = ParamSpec("P")
R = TypeVar("R", bound=Sized)

# All that is kept takes at most so many bytes: plans of 7 grids of 512 x 512 or of 390 of 64 x 64,
# with what the kernel reads of them. A loop over crops of many sizes makes each plan once.
KEPT_BYTES = 2**28

_kept: OrderedDict[Any, tuple[Any, int]] = OrderedDict()
_lock = threading.Lock()


def nbytes_kept() -> int:
    """The bytes of all kept results."""
    return sum(size for _, size in _kept.values())


def kept(function: Callable[P, R]) -> Callable[P, R]:
    """Keep the results of a function for later calls with equal arguments.

    All functions together keep the results used last, in at most `KEPT_BYTES`, and always the
    result of the last call. A result counts with its `nbytes` and those of its arguments, which it
    keeps alive.
    """

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        key = (function, args, *kwargs.items())
        with _lock:
            if key in _kept:
                _kept.move_to_end(key)
                return _kept[key][0]
        result = function(*args, **kwargs)
        size = result.nbytes + sum(x.nbytes for x in args if isinstance(x, Sized))
        with _lock:
            _kept[key] = result, size
            while len(_kept) > 1 and nbytes_kept() > KEPT_BYTES:
                _kept.popitem(last=False)
        return result

    return call
