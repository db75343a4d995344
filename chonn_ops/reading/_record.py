"""What a module hands to the operators: the circuits it really solves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from chonn_ops.circuit import ResistorNetwork, grid


@dataclass(frozen=True)
class SolvedNetworks:
    """One call of the network operator.

    Parameters
    ----------
    source, leak, potentials : Tensor, shape (B, \\*grid, m)
        Leaks with what the ends conduct to ground.
    conductance : tuple of Tensor, shape (B, \\*grid, m)
        One an axis.
    ring : tuple of bool
    """

    source: Tensor
    conductance: tuple[Tensor, ...]
    leak: Tensor
    ring: tuple[bool, ...]
    potentials: Tensor

    def network(self, sample: int, index: int) -> tuple[ResistorNetwork, Any]:
        """One network and its sources (n,), float64."""
        leak, *conductance = (
            field[sample, ..., index].detach().cpu().double().numpy()
            for field in (self.leak, *self.conductance)
        )
        source = self.source[sample, ..., index].detach().cpu().double().numpy()
        return grid(conductance, leak, ring=self.ring), source.ravel()


class _Recorder(TorchFunctionMode):
    def __init__(self, record: Callable[[SolvedNetworks], None]) -> None:
        super().__init__()
        self._record = record

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        if func is torch.ops.chonn_ops.kirchhoff_network:
            source, *edges, leak, ring = args[:6]
            conductance = tuple(g for g in edges if g is not None)
            self._record(SolvedNetworks(source, conductance, leak, tuple(ring), result[0]))
        return result


def record_networks(call: Callable[[], Any], record: Callable[[SolvedNetworks], None]) -> Any:
    """Call something without gradients, and hand every call of the network operator in it to
    `record`."""
    with torch.no_grad(), _Recorder(record):
        return call()
