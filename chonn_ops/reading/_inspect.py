"""What a trained model's circuits are at an input, in numbers."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from chonn_ops.nn import CKB, KirchhoffCell, NetworkCell
from chonn_ops.reading._record import SolvedNetworks, record_networks

# Positions of a scan at which its coefficients are frozen to count the order.
_POSITIONS = 32
# A state is one of the order if its Hankel singular value is that much of the largest.
_HANKEL = 1e-3
# A gate is closed where it lets through that much of its root mean square.
_CLOSED = 0.05


def inspect(model: nn.Module, x: Any, *args: Any, **kwargs: Any) -> dict[str, Any]:
    """Call a model and read the circuits in it.

    Parameters
    ----------
    model : Module
        Any that has cells of this package in it; a host's, too. Put it in evaluation mode first.
    x, args, kwargs
        What it is called with. Statistics are over the batch.

    Returns
    -------
    dict
        Of numbers, words, lists and dicts: `json.dumps` takes it; null where a number is infinite
        or NaN. ``networks`` and ``scans`` have
        one dict a call of a cell, in their order, ``blocks`` one a call of a `CKB`:

        - Network: name, grid, ends; for each of the m networks quantiles (0, 1/4, 1/2, 3/4, 1) of
          ``conductivity``, ``leak`` and ``source`` densities, ``potential``, and ``length_scale``
          sqrt(k / l) in units of the domain; ``dissipated_power``, of which ``leak_share`` goes to
          ground (walls included), mean over the batch; ``effective_rank`` of the m potential
          fields, 1 (all alike) to m.
        - Scan: name, positions; quantiles over channels, states and up to 32 positions spread over
          the batch of ``time_constant`` (in positions) and ``pole``, the retention
          exp(-Delta decay);
          ``effective_order``: quantiles over channels of the states whose Hankel singular value
          exceeds a thousandth of the largest, coefficients frozen; null where one is unstable.
        - Block: name; ``stage_share``, each stage's part of the sum of their mean squares (times
          gates, of ``order="adaptive"``);
          ``gate_rms``, and ``gate_closed``, the part of the gate below a twentieth of that.

    Raises
    ------
    ValueError
        For a model without cells.
    """
    return read_circuits(model, lambda: model(x, *args, **kwargs))


def read_circuits(
    model: nn.Module,
    call: Callable[[], Any],
    on_network: Callable[[str, NetworkCell, tuple[Any, ...], SolvedNetworks], None] | None = None,
    on_scan: Callable[[str, KirchhoffCell, Tensor], None] | None = None,
) -> dict[str, Any]:
    """`inspect` of any call of a model, with the fields of every cell for who asks for them.

    Parameters
    ----------
    model : Module
    call : callable
        Calls it.
    on_network, on_scan : callable, optional
        Get the name of a cell, the cell, its input (B, \\*grid, D) (a network's inputs, with
        spacing and mask) and, of networks, what was solved; while the model is called, so that the
        cell's parameters are those of the call.
    """
    names = {module: name for name, module in model.named_modules()}
    if not any(isinstance(module, (KirchhoffCell, NetworkCell)) for module in names):
        raise ValueError(
            f"model: expected KirchhoffCells or NetworkCells in it, got {type(model).__name__}"
        )
    read: dict[str, Any] = {
        "model": type(model).__name__,
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "networks": [],
        "scans": [],
        "blocks": [],
    }
    solved: list[SolvedNetworks] = []
    squares: dict[CKB, list[float]] = {}
    stage_of = {cell: block for block in names if isinstance(block, CKB) for cell in block.cells}

    def after_cell(cell: nn.Module, inputs: tuple[Any, ...], output: Tensor) -> None:
        if isinstance(cell, NetworkCell):
            found = solved.pop()
            read["networks"].append(_network(cell, names[cell], inputs[0], found))
            if on_network is not None:
                on_network(names[cell], cell, inputs, found)
        elif isinstance(cell, KirchhoffCell):
            read["scans"].append(_scan(cell, names[cell], inputs[0]))
            if on_scan is not None:
                on_scan(names[cell], cell, inputs[0])
        if cell in stage_of:
            found = squares.setdefault(stage_of[cell], [])
            gates = stage_of[cell].gates
            gate = 1.0 if gates is None else gates.values()[len(found)].item()
            found.append(output.double().square().mean().item() * gate**2)

    def after_projection(block: CKB) -> Callable[..., None]:
        def hook(_module: nn.Module, _inputs: Any, output: Tensor) -> None:
            gate = F.silu(output[..., -block._split[1] :].double())
            rms = gate.square().mean().sqrt()
            closed = (gate.abs() < _CLOSED * rms).double().mean()
            numbers = {"gate_rms": rms.item(), "gate_closed": closed.item()}
            read["blocks"].append({"name": names[block], "stage_share": [], **numbers})
            squares[block] = []

        return hook

    def after_cells(block: CKB) -> Callable[..., None]:
        def hook(*_: Any) -> None:
            found = squares.pop(block, [])
            total = sum(found) or 1.0
            entry = next(b for b in reversed(read["blocks"]) if b["name"] == names[block])
            entry["stage_share"] = [value / total for value in found]

        return hook

    hooks = [cell.register_forward_hook(after_cell) for cell in names
             if isinstance(cell, (KirchhoffCell, NetworkCell))]  # fmt: skip
    for block in set(stage_of.values()):
        hooks.append(block.in_proj.register_forward_hook(after_projection(block)))
        hooks.append(block.out_proj.register_forward_hook(after_cells(block)))
    try:
        record_networks(call, solved.append)
    finally:
        for hook in hooks:
            hook.remove()
    return read


def _quantiles(values: Tensor) -> list[float | None]:
    """Least, quartiles and largest."""
    ordered = values.detach().double().flatten().sort().values
    last = len(ordered) - 1
    found = [ordered[round(part * last / 4)].item() for part in range(5)]
    return [_finite(value) for value in found]


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _network(cell: NetworkCell, name: str, u: Tensor, solved: SolvedNetworks) -> dict[str, Any]:
    conductivity, leak, source = cell.coefficients(u)
    v = solved.potentials.double()
    grid = tuple(range(1, v.dim() - 1))
    to_ground = (solved.leak.double() * v.square()).sum(grid).mean(0)
    between = torch.zeros_like(to_ground)
    for axis, (g, ring) in enumerate(zip(solved.conductance, solved.ring, strict=True), 1):
        heat = g.double() * (v - v.roll(-1, axis)).square()
        if not ring or v.shape[axis] == 1:
            heat = heat.narrow(axis, 0, v.shape[axis] - 1)
        between = between + heat.sum(grid).mean(0)
    power = to_ground + between
    length = torch.sqrt(conductivity / leak) / cell._unit
    each = []
    for c in range(cell.networks):
        each.append(
            {
                "conductivity": _quantiles(conductivity[..., c]),
                "leak": _quantiles(leak[..., c]),
                "source": _quantiles(source[..., c]),
                "potential": _quantiles(v[..., c]),
                "length_scale": _quantiles(length[..., c]),
                "dissipated_power": _finite(power[c].item()),
                "leak_share": (to_ground[c] / power[c]).item() if power[c] > 0 else None,
            }
        )
    return {
        "name": name,
        "grid": list(v.shape[1:-1]),
        "ends": list(cell.ends),
        "networks": each,
        "effective_rank": _effective_rank(v.flatten(0, -2)),
    }


def _effective_rank(fields: Tensor) -> float | None:
    """exp of the entropy of the normalised singular values of (positions, m), each field scaled to
    its norm. O. Roy, M. Vetterli, "The effective rank", EUSIPCO (2007)."""
    if not fields.isfinite().all():
        return None
    norms = fields.norm(dim=0)
    singular = torch.linalg.svdvals((fields / norms)[:, norms > 0])
    part = singular / singular.sum()
    return torch.exp(-torch.special.xlogy(part, part).sum()).item() if len(part) else 0.0


def _scan(cell: KirchhoffCell, name: str, u: Tensor) -> dict[str, Any]:
    delta, b, c = (field.flatten(0, -2).double() for field in cell.coefficients(u))
    chosen = torch.linspace(0, len(delta) - 1, min(_POSITIONS, len(delta))).round().long()
    delta, b, c = delta[chosen], b[chosen], c[chosen]
    z = delta[..., None] * cell.decay.double()
    time = torch.where(z > 0, 1 / z, torch.inf)
    entry: dict[str, Any] = {
        "name": name,
        "positions": list(u.shape[1:-1]),
        "time_constant": _quantiles(time),
        "pole": _quantiles(torch.exp(-z)),
        "effective_order": None,
    }
    if (z > 0).all():
        entry["effective_order"] = _quantiles(_orders(z, cell.decay.double(), b, c))
    return entry


def _orders(z: Tensor, decay: Tensor, b: Tensor, c: Tensor) -> Tensor:
    """Mean over positions of the effective order of each channel, (D,): z (P, D, N)."""
    injection = -torch.expm1(-z) / decay * b[:, None, :]
    readout = c[:, None, :].expand_as(z)
    # Gramians of a diagonal system in closed form; 1 - a_i a_j without cancellation.
    common = -torch.expm1(-(z[..., :, None] + z[..., None, :]))
    reach = injection[..., :, None] * injection[..., None, :] / common
    observe = readout[..., :, None] * readout[..., None, :] / common
    hankel = torch.linalg.eigvals(reach @ observe).real.clamp(min=0).sqrt()
    largest = hankel.amax(-1, keepdim=True)
    return ((hankel > _HANKEL * largest) & (largest > 0)).double().sum(-1).mean(0)
