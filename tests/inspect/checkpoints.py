"""Checkpoints as hosts write them, of small models, and data for them."""

import argparse

import h5py
import torch

from chonn_plugins.pdebench.patches import WholeSave
from chonn_plugins.pdebench.registry import load as pdebench_model

POINTS = 16


def darcy_file(folder, samples=3, points=POINTS):
    """A file in PDEBench's layout, random media without a solution."""
    path = folder / "darcy.hdf5"
    torch.manual_seed(1)
    with h5py.File(path, "w") as file:
        nu = torch.where(torch.rand(samples, points, points) > 0.5, 1.0, 0.1)
        file["nu"], file["tensor"] = nu, torch.zeros(samples, 1, points, points)
        for axis in "xy":
            file[f"{axis}-coordinate"] = (torch.arange(points) + 0.5) / points
    return path


def pdebench(folder, name, described=True, every_frame=1, every_point=1, **options):
    """What the runner writes for a 2-D job, with its plugin's description or without."""
    entry = pdebench_model(name)
    host = {"in_channels": 1, "out_channels": 1}
    if entry.family == "fno":
        host = {"num_channels": 1, "width": 6, "initial_step": 1, "modes1": 4, "modes2": 4}
    torch.manual_seed(0)
    model = entry.build(2, host, options)
    path = folder / f"darcy_{name}.pt"
    save = WholeSave()
    if described:
        kept = {"every_frame": every_frame, "every_point": every_point}
        complete = entry.complete(options)
        save.described = {"name": name, "ndim": 2, "host": host, "options": complete, **kept}
    content = {"epoch": 1, "model_state_dict": model.state_dict(), "loss": 0.5}
    content["optimizer_state_dict"] = torch.optim.Adam(model.parameters()).state_dict()
    save(content, path)
    return path


def timm(folder, model, name, **settings):
    """What timm's train.py writes."""
    path = folder / "model_best.pth.tar"
    args = argparse.Namespace(model=name, model_kwargs={}, lr=0.1, **settings)
    content = {"epoch": 3, "arch": name, "state_dict": model.state_dict(), "version": 2}
    torch.save({**content, "args": args}, path)
    return path
