"""Draw a comparison on Darcy flow.

It shows the input, the truth, each model's prediction and error, and the conductivity that its
networks learned.
"""

import argparse
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import matplotlib
import torch
from torch import Tensor

from chonn_lab.problems import darcy
from chonn_ops import NetworkCell
from chonn_ops.inspect import read_samples
from chonn_plugins.pdebench import registry

matplotlib.use("Agg")
import matplotlib.pyplot as plt


def draw_fields(results: list[dict], data: Path, output: Path, args: argparse.Namespace) -> None:
    """Write ``fields.png`` for the first validation sample (PDEBench validates on the first tenth).

    Parameters
    ----------
    results : list of dict
        One finished run of each model, as written by ``pdebench_darcy.py``.
    data : Path
        File in PDEBench's Darcy layout.
    output : Path
        Folder of the comparison; holds ``runs/<model>-seed<k>/*.pt``.
    args : Namespace
        The comparison's settings.
    """
    nu, truth = (torch.from_numpy(fields[0]) for fields in darcy.read(data, stop=1))
    grid = read_samples(data, count=1).grid_coordinates()
    predictions, conductivities = {}, {}
    for result in results:
        name, model = result["model"], load(result, args, output)
        with learned_conductivity(model, nu) as found:
            predictions[name] = predict(model, nu, grid, name)
        if found:
            conductivities[name] = found[0]
    largest = max(float((field - truth).abs().max()) for field in predictions.values())

    columns = 2 + len(predictions)
    rows = 3 if conductivities else 2
    figure, panels = plt.subplots(
        rows,
        columns,
        figsize=(2.25 * columns + 0.8, 2.5 * rows),
        squeeze=False,
        layout="compressed",
    )
    field_range = {"vmin": float(truth.min()), "vmax": float(truth.max()), "cmap": "viridis"}
    error_range = {"vmin": -largest, "vmax": largest, "cmap": "RdBu_r"}
    show(panels[0, 0], nu, r"input $\nu$", cmap="cividis")
    shown = show(panels[0, 1], truth, "truth $u$", **field_range)
    for column, (name, field) in enumerate(predictions.items(), start=2):
        show(panels[0, column], field, name, **field_range)
        error = field - truth
        relative = float(error.norm() / truth.norm())
        error_shown = show(
            panels[1, column], error, f"error, rel. L2 {100 * relative:.1f}%", **error_range
        )
    figure.colorbar(shown, ax=panels[0, :], shrink=0.8)
    figure.colorbar(error_shown, ax=panels[1, :], shrink=0.8)
    for column, name in enumerate(predictions, start=2):
        if name in conductivities:
            correlation, field = conductivities[name]
            title = f"log conductivity, r = {correlation:.2f}"
            show(panels[2, column], field, title, cmap="cividis")
    for panel in panels[1:].flat:
        if not panel.has_data():
            panel.set_axis_off()
    temporary = output / f".fields.{os.getpid()}.png"
    figure.savefig(temporary, dpi=130)
    plt.close(figure)
    temporary.replace(output / "fields.png")


def show(panel, field: Tensor, title: str, **options):
    panel.set_title(title, fontsize=10)
    panel.set_xticks([])
    panel.set_yticks([])
    # On the unit square x runs to the right and y upwards.
    return panel.imshow(field.T, origin="lower", **options)


@contextmanager
def learned_conductivity(model: torch.nn.Module, nu: Tensor) -> Iterator[list]:
    """Record the learned conductivities while the model is evaluated inside the context.

    Yields a list that is filled with pairs: the correlation of `nu` with the logarithm of a
    network's conductivity, and that logarithm. On exit the pair with the largest correlation is
    first. The list stays empty for models without networks.
    """
    found: list[tuple[float, Tensor]] = []

    def look(cell: torch.nn.Module, inputs: tuple) -> None:
        fields = cell.coefficients(inputs[0])[0].detach()[0].movedim(-1, 0).log()
        for field in fields:
            if field.shape == nu.shape:
                pair = torch.stack((field.flatten(), nu.flatten()))
                found.append((float(torch.corrcoef(pair)[0, 1].nan_to_num()), field))

    cells = [module for module in model.modules() if isinstance(module, NetworkCell)]
    hooks = [cell.register_forward_pre_hook(look) for cell in cells]
    try:
        yield found
    finally:
        for hook in hooks:
            hook.remove()
        found.sort(key=lambda entry: entry[0], reverse=True)


def load(result: dict, args: argparse.Namespace, output: Path) -> torch.nn.Module:
    """The trained model. Order 0 of ours has the modules and names of PDEBench's own model."""
    name, options = result["model"], result["options"]
    stock = registry.HOST_MODELS.get(name)
    model = registry.load(f"chonn_{stock}" if stock else name)
    host = {"in_channels": 1, "out_channels": 1}
    if model.family == "fno":
        modes = {"modes1": args.modes, "modes2": args.modes}
        host = {"num_channels": 1, "width": args.width, "initial_step": 1, **modes}
    built = model.build(2, host, {"order": 0} if stock else options)
    (path,) = (output / "runs" / f"{name}-seed{result['seed']}").glob("*.pt")
    built.load_state_dict(torch.load(path, weights_only=True)["model_state_dict"])
    return built.eval()


@torch.no_grad()
def predict(model: torch.nn.Module, nu: Tensor, grid: Tensor, name: str) -> Tensor:
    if "unet" in name.lower():
        return model(nu[None, None])[0, 0]
    return model(nu[None, ..., None], grid)[0, ..., 0, 0]
