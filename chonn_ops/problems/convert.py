"""neuraloperator's Darcy files (``.pt``) in PDEBench's layout.

neuraloperator's ``darcy_{train,test}_{R}.pt`` hold ``x`` (N, R, R) bool, true where the
permeability is high, and ``y`` (N, R, R) float32, the solution in a unit that is not recorded
(largest value about 2). Both are stored as they are: ``nu`` = x as 0 and 1 (not the physical 3 and
12 of that data set, and not PDEBench's 0.1 and 1), ``tensor`` = y.

The grid has its first row and column on the boundary and its last one step before the opposite
one (a coarse file is every second row and column of the finer), so the coordinates are ``i / R``,
where PDEBench has cell centres. The forcing is not recorded: attribute ``beta`` is NaN. The
attributes of `chonn_ops.problems.origin` name the source and its SHA-256.
"""

import os
from pathlib import Path

import numpy as np
import torch

from chonn_ops.problems.darcy import create
from chonn_ops.problems.hdf5 import create_hdf5, dataset
from chonn_ops.problems.origin import identify, stamp

# See `chonn_ops.problems.origin`.
GENERATOR_VERSION = 1


def convert(
    source: "str | os.PathLike[str]", output: "str | os.PathLike[str]", force: bool = False
) -> int:
    """Write a neuraloperator Darcy file in PDEBench's layout.

    Parameters
    ----------
    source : path
        ``.pt`` file with a dictionary of ``x`` (N, R, R) and ``y`` (N, R, R). It is read as data
        only: code in it is never run.
    output : path
        HDF5 file to write; it appears when it is complete.
    force : bool
        Replace an existing file.

    Returns
    -------
    int
        Number of samples.

    Raises
    ------
    ValueError
        If the file is corrupt or holds something else.
    FileExistsError
        If `output` exists and `force` is not set.
    """
    x, y = _read(Path(source))
    n_samples, resolution, _ = x.shape
    with create_hdf5(Path(output), force) as target, target.writing() as file:
        create(file, n_samples, np.arange(resolution) / resolution, float("nan"))
        file.attrs["source"] = f"converted from neuraloperator's {Path(source).name}"
        stamp(
            file,
            "convert",
            GENERATOR_VERSION,
            None,
            source=Path(source).name,
            source_sha256=identify(source).sha256,
        )
        dataset(file, "nu")[...] = x.to(torch.float32).numpy()
        dataset(file, "tensor")[:, 0] = y.to(torch.float32).numpy()
    return n_samples


def _read(path: Path) -> tuple[torch.Tensor, torch.Tensor]:
    if not path.is_file():
        raise FileNotFoundError(f"no such file: {path}")
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    # PyTorch's readers fail in many ways on other bytes, and name the file if they may not read it.
    except Exception as error:
        if isinstance(error, OSError) and error.filename is not None:
            raise
        raise ValueError(f"not a readable file of tensors: {path}") from error
    if not isinstance(content, dict) or not {"x", "y"} <= content.keys():
        found = sorted(map(str, content)) if isinstance(content, dict) else type(content).__name__
        raise ValueError(f"{path}: expected a dictionary with keys 'x' and 'y', got {found}")
    x, y = content["x"], content["y"]
    for name, value in (("x", x), ("y", y)):
        if not isinstance(value, torch.Tensor) or value.is_complex():
            kind = value.dtype if isinstance(value, torch.Tensor) else type(value).__name__
            raise ValueError(f"{path}: expected '{name}' to be a real tensor, got {kind}")
    shape = tuple(x.shape)
    if len(shape) != 3 or shape[1] != shape[2] or 0 in shape or y.shape != x.shape:
        raise ValueError(
            f"{path}: expected x and y of one shape (N, R, R), got {shape} and {tuple(y.shape)}"
        )
    return x, y
