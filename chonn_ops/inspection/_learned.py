"""How learned conductivities relate to the data's coefficient, over many samples."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn

from chonn_ops.nn import NetworkCell

# Nodes that count as inside are that part of the domain away from its ends.
_MARGIN = 1 / 8


def learned_conductivity(
    model: nn.Module, batches: Iterable[tuple[Callable[[], Any], Tensor]]
) -> list[dict[str, Any]]:
    """Each network's conductivity beside a field of the samples.

    Parameters
    ----------
    model : Module
        In evaluation mode.
    batches : iterable of (callable, Tensor)
        Calls the model with some samples; their reference fields (B, \\*grid).

    Returns
    -------
    list of dict
        One a network cell, in the order of calls: ``name``; ``networks``, one dict each:
        ``correlation``, mean over the samples of Pearson's coefficient over the nodes between the
        logarithms of conductivity and reference (the reference itself where it is not above 0),
        its ``deviation`` over the samples, ``least`` and ``most``; None where one of both is
        constant, or a grid is no coarsening of the reference's. ``variation_inside``, mean over the
        samples of the conductivity's deviation over its mean, at the nodes that are an eighth of
        the domain or more away from its ends; ``variation``, at all nodes.
    """
    names = {m: name for name, m in model.named_modules() if isinstance(m, NetworkCell)}
    found: dict[str, dict[str, list[Tensor]]] = {}
    reference = torch.empty(0)

    def look(cell: nn.Module, inputs: tuple[Any, ...]) -> None:
        assert isinstance(cell, NetworkCell)
        k = cell.coefficients(inputs[0])[0].double()
        values = found.setdefault(names[cell], {"r": [], "inside": [], "all": []})
        values["r"].append(_correlation(k, reference))
        values["inside"].append(_variation(_inside(k)))
        values["all"].append(_variation(k))

    hooks = [cell.register_forward_pre_hook(look) for cell in names]
    try:
        with torch.no_grad():
            for call, field in batches:
                reference = field  # which the hooks look at
                call()
    finally:
        for hook in hooks:
            hook.remove()
    return [
        {"name": name, "networks": _summary(*(torch.cat(v) for v in values.values()))}
        for name, values in found.items()
    ]


def _summary(r: Tensor, inside: Tensor, everywhere: Tensor) -> list[dict[str, Any]]:
    each = []
    for c in range(r.shape[1]):
        known = r[:, c][r[:, c].isfinite()]
        several = len(known) > 1
        each.append(
            {
                "correlation": known.mean().item() if len(known) else None,
                "deviation": known.std().item() if several else None,
                "least": known.min().item() if len(known) else None,
                "most": known.max().item() if len(known) else None,
                "samples": len(known),
                "variation_inside": inside[:, c].mean().item(),
                "variation": everywhere[:, c].mean().item(),
            }
        )
    return each


def _correlation(k: Tensor, reference: Tensor) -> Tensor:
    """Pearson's coefficient of each sample and network, (B, m); NaN where there is none."""
    field = _coarsened(reference.double(), k.shape[1:-1])
    if field is None or len(field) != len(k):
        return torch.full((k.shape[0], k.shape[-1]), torch.nan, dtype=torch.float64)
    a = field.flatten(1).unsqueeze(-1)
    a = a.log() if (a > 0).all() else a
    pair = [x - x.mean(1, keepdim=True) for x in (k.flatten(1, -2).log(), a)]
    sizes = [x.square().mean(1).sqrt() for x in pair]
    # Rounding makes no field of a constant.
    constant = (sizes[0] < 1e-6) | (sizes[1] <= 1e-9 * a.abs().amax(1))
    r = (pair[0] * pair[1]).mean(1) / (sizes[0] * sizes[1])
    return torch.where(constant, torch.nan, r)


def _coarsened(field: Tensor, grid: tuple[int, ...] | torch.Size) -> Tensor | None:
    """Means over as many nodes as each node of the coarser grid stands for."""
    if field.dim() != len(grid) + 1 or any(
        n % m for n, m in zip(field.shape[1:], grid, strict=True)
    ):
        return None
    for axis, n in enumerate(grid):
        field = field.unflatten(axis + 1, (n, -1)).mean(axis + 2)
    return field


def _inside(k: Tensor) -> Tensor:
    for axis, n in enumerate(k.shape[1:-1]):
        cut = min(round(_MARGIN * n), (n - 1) // 2)
        k = k.narrow(axis + 1, cut, n - 2 * cut)
    return k


def _variation(k: Tensor) -> Tensor:
    flat = k.flatten(1, -2)
    return flat.std(1, correction=0) / flat.mean(1)
