"""The tortuosity factor of one volume by kirchhoff_network beside TauFactor.

The volume is that of TauFactor's own benchmark: spheres of a face-centred cubic cell that overlap
by 5 % insulate, the space between them conducts, two opposite faces hold potentials of 1 and 0 and
the other faces are closed. Both solve the same equations: a conductance of 1 between neighbouring
voxels that conduct, of 2 from a voxel to the face that it lies at. With the volume fraction e and
the current I through the first face of a volume of N^3 voxels, the tortuosity factor is
tau = e N / I.

TauFactor iterates until the current through all layers is the same to 1e-3 (its own benchmark's
choice) and is left out, with a note, where it is not installed. Times are medians of whole calls:
from the array of voxels to tau, TauFactor's set-up and our conductances included. Memory is the
highest that a call adds to its process.
"""

from __future__ import annotations

import contextlib
import functools
import io
import math
from collections.abc import Callable

import numpy as np
import torch

from chonn_lab.benchmarks import harness
from chonn_ops import kirchhoff_network

OVERLAP = 0.05
CRITERION = 1e-3  # of TauFactor's convergence
TOLERANCE = 1e-4
PEER = "TauFactor"
OURS = "chonn-ops"
MOST_OF_PEER = 128  # voxels a side; above, ours alone


def spheres(voxels: int) -> np.ndarray:
    """1 where the volume conducts: outside the spheres at the corners and faces of a cell."""
    radius = math.sqrt(2) / 4 * voxels / (1 - OVERLAP / 2)
    at = np.arange(voxels) + 0.5
    conducts = np.ones((voxels,) * 3, bool)
    for half in np.ndindex(3, 3, 3):
        if sum(half) % 2 == 0:  # corners and centres of faces, in halves of the side
            squares = [(at - 0.5 * voxels * place) ** 2 for place in half]
            distance = squares[0][:, None, None] + squares[1][:, None] + squares[2]
            conducts &= distance > radius**2
    return conducts.astype(np.uint8)


def connected(conducts: np.ndarray) -> np.ndarray:
    """Without the parts that reach neither of the two faces: no current flows in them."""
    from scipy.ndimage import label

    parts, _ = label(conducts)
    return np.isin(parts, np.union1d(parts[0], parts[-1])) & (conducts > 0)


def ours(conducts: np.ndarray) -> float:
    """The tortuosity factor by one call of `kirchhoff_network`."""
    k = torch.from_numpy(connected(conducts))[None, ..., None]
    conductance = []
    for axis in (1, 2, 3):
        edges = (k & k.roll(-1, axis)).float()
        edges.select(axis, -1).zero_()
        conductance.append(edges)
    leak, source = torch.zeros(k.shape), torch.zeros(k.shape)
    leak[:, 0] = 2 * k[:, 0]
    leak[:, -1] += 2 * k[:, -1]
    source[:, 0] = leak[:, 0]
    v = kirchhoff_network(source, tuple(conductance), leak, tol=TOLERANCE, backend="cpu")
    current = (leak[:, 0] * (1 - v[:, 0])).double().sum().item()
    return float(conducts.mean()) * len(conducts) / current


def peer(conducts: np.ndarray) -> float:
    """The tortuosity factor by TauFactor on the CPU."""
    from taufactor import Solver

    with contextlib.redirect_stdout(io.StringIO()):
        found = Solver(conducts, device="cpu").solve(conv_crit=CRITERION, verbose=False)
    return float(np.ravel(found)[0])


CONTENDERS: dict[str, Callable[[np.ndarray], float]] = {OURS: ours, PEER: peer}


def prepare(name: str, voxels: int) -> harness.Call:
    """A call, to be made in another process."""
    return functools.partial(CONTENDERS[name], spheres(voxels))


def contender(name: str, voxels: int) -> harness.Row:
    call = prepare(name, voxels)
    found = {"voxels": voxels, "tau": call(), "calls": {"forward": call}}
    return {**found, "peak_bytes": harness.fresh_peak(prepare, name, voxels)}


def volumes(run: harness.Run) -> list[harness.Row]:
    rows = []
    for voxels in (24,) if run.smoke else (64, 128, 256):
        names = [name for name in CONTENDERS if name == OURS or voxels <= MOST_OF_PEER]
        makes = {name: functools.partial(contender, name, voxels) for name in names}
        rows += run.compare(makes, OURS)
    return rows


main = harness.main_of(__doc__, "volumes", {"rows": volumes}, ["taufactor", "scipy"], rounds=3)

if __name__ == "__main__":
    main()
