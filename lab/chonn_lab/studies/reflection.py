"""Reflection of plane waves at "matched" ends, with and without an absorbing layer, over the angle.

    python -m chonn_lab.studies.reflection

A strip between sound-hard sides carries modes cos(q y), which are pairs of plane waves at an angle
to its axis. The ratio of the two waves along the axis, fitted between source and layer, is the
reflection.
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path

import torch

from chonn_lab.experiments.provenance import commit
from chonn_lab.paths import RESULTS
from chonn_ops import absorbing_layer, helmholtz
from chonn_ops.files import write_json

ANGLES = (0, 30, 45, 60, 70)  # degrees between the waves and the normal of the end
LAYERS = (0.0, 1.0, 2.0)  # wavelengths
NODES, LENGTH = 20, 10  # per wavelength, and wavelengths along the strip


def reflection(angle: float, layer: float) -> float:
    """Modulus of the reflected wave over that of the incoming one; the wavelength is 1."""
    h, omega, n, mode = 1 / NODES, 2 * math.pi, LENGTH * NODES, 4 if angle else 0
    across = omega * math.sin(math.radians(angle))
    rows = round(mode * math.pi / across * NODES) if angle else 1
    across = mode * math.pi / (rows * h)
    shape = torch.cos(across * (torch.arange(rows, dtype=torch.float64) + 0.5) * h)
    source = torch.zeros(1, n, rows, 1, dtype=torch.float64)
    source[0, n // 2, :, 0] = shape / h
    k, ends = torch.ones_like(source), ("matched", "neumann")
    loss = absorbing_layer(k, 1.0, layer, h, boundary=ends) if layer else 0.0
    circuit = helmholtz(k, 1.0, loss, omega, h, boundary=ends)
    u = circuit.solve(source, backend="reference")
    line = (u[0, ..., 0] * shape).sum(1) / shape.square().sum()
    # The wave number along the axis is that of the discrete Laplacian.
    along = omega**2 - (2 - 2 * math.cos(across * h)) / h**2
    along = 2 / h * math.asin(h / 2 * math.sqrt(along))
    place = torch.arange(n // 2 + 2, n - 2 - round(layer * NODES))
    phase = torch.exp(1j * along * h * (place - n // 2).to(dtype=torch.float64))
    waves = torch.stack((phase, phase.conj()), 1)
    there, back = torch.linalg.lstsq(waves, line[place, None]).solution[:, 0].abs().tolist()
    return back / there


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder of the numbers")
    args = parser.parse_args()
    record = {
        "generator": "chonn_lab.studies.reflection",
        "commit": commit()[0],
        "nodes_a_wavelength": NODES,
        "angles": list(ANGLES),
        "values": {
            f"layer of {layer:g} wavelengths": [reflection(angle, layer) for angle in ANGLES]
            for layer in LAYERS
        },
    }
    print(record["values"])
    write_json(args.results / "reflection.json", record)


if __name__ == "__main__":
    main()
