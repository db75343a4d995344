"""The page and the JSON of an inspection."""

from __future__ import annotations

import html
import json
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import chonn_ops
from chonn_ops._files import refuse_existing, whole_file
from chonn_ops.inspection._hosts import Trained
from chonn_ops.inspection._learned import learned_conductivity
from chonn_ops.inspection._maps import Maps, maps_at
from chonn_ops.inspection._samples import Samples
from chonn_ops.reading._inspect import read_circuits
from chonn_ops.report._html import embedded, frame, paragraph

_NETWORKS = (chonn_ops.CHONNNetwork1d, chonn_ops.CHONNNetwork2d, chonn_ops.CHONNNetwork3d)
PAGE, NUMBERS = "inspection.html", "inspection.json"
# Of samples that quantiles are over; correlations are over all, so many at once.
_QUANTILES, _AT_ONCE = 16, 16
_MOST_PICTURES = 8


def write(
    trained: Trained,
    samples: Samples,
    output: Path,
    *,
    checkpoint: str,
    data: str,
    sample: int = 0,
    force: bool = False,
) -> tuple[Path, Path]:
    """Inspect a model at some samples; write ``inspection.html`` and ``inspection.json``.

    Parameters
    ----------
    trained : Trained
    samples : Samples
        Correlations are over all of them, quantiles over the first 16.
    output : path
        Folder of both files; made if there is none.
    checkpoint, data : str
        Where these are from, for the page.
    sample : int
        Which of the samples the maps are of.
    force : bool
        Replace existing files.

    Returns
    -------
    page, numbers : Path

    Raises
    ------
    FileExistsError
        If one of the files exists, without `force`.
    ValueError
        If the samples do not fit the model, or there is no such sample.
    """
    if not 0 <= sample < len(samples):
        raise ValueError(
            f"sample: expected {samples.first} to {samples.first + len(samples) - 1}, got "
            f"{samples.first + sample}"
        )
    paths = output / PAGE, output / NUMBERS
    if output.exists():
        for path in paths:
            refuse_existing(path, force)
    call = _caller(trained, samples)
    try:
        circuits = read_circuits(trained.model, call(slice(0, _QUANTILES)))
        maps = maps_at(trained.model, call(slice(sample, sample + 1)))
        learned = learned_conductivity(trained.model, _batches(samples, call))
        prediction = _predicted(call(slice(sample, sample + 1)), samples.grid)
    except (RuntimeError, IndexError, TypeError) as error:
        # What hosts raise for fields of another shape.
        line = str(error).partition("\n")[0]
        raise ValueError(
            f"{data}: expected samples that the model takes, got {tuple(samples.fields.shape[1:])} "
            f"(frames, channels, grid): {line}"
        ) from error
    numbers = {
        "generator": f"chonn-ops {chonn_ops.__version__}",
        "checkpoint": checkpoint,
        "data": data,
        "samples": {"first": samples.first, "count": len(samples), "grid": list(samples.grid)},
        "maps_of_sample": samples.first + sample,
        "title": trained.title,
        "options": dict(trained.options),
        "notes": list(trained.notes),
        "reference": samples.truth_name,
        "circuits": circuits,
        "orders_after_cancellations": [
            {"name": line.name, "channels": [_known(order) for order in line.orders]}
            for line in maps.lines
        ],
        "learned_conductivity": learned,
    }
    text = json.dumps(numbers, indent=1, allow_nan=False) + "\n"
    page = _page(numbers, maps, samples, sample, prediction)
    output.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:  # both or none
        staged = [stack.enter_context(whole_file(path, force)) for path in paths]
        for path, content in zip(staged, (page, text), strict=True):
            path.write_text(content, encoding="utf-8")
    return paths


def _caller(trained: Trained, samples: Samples) -> Callable[[slice], Callable[[], Any]]:
    """Calls of the model with a part of the samples."""
    x = samples.inputs(trained.in_channels)
    takes_mask = isinstance(trained.model, _NETWORKS) and samples.mask is not None
    told = {"mask": samples.mask} if takes_mask else {}

    def call(part: slice) -> Callable[[], Any]:
        inputs = x[part]
        if not trained.coordinates:
            return lambda: trained.model(inputs, **told)
        grid = samples.grid_coordinates().expand(len(inputs), *samples.grid, -1)
        return lambda: trained.model(inputs.movedim(1, -1), grid)

    return call


def _batches(
    samples: Samples, call: Callable[[slice], Callable[[], Any]]
) -> Iterator[tuple[Callable[[], Any], Tensor]]:
    for start in range(0, len(samples), _AT_ONCE):
        part = slice(start, start + _AT_ONCE)
        yield call(part), samples.reference[part]


def _predicted(call: Callable[[], Any], grid: Sequence[int]) -> Tensor | None:
    """The first channel of an output that is a field on the grid."""
    with torch.no_grad():
        y = call()
    if not isinstance(y, Tensor):
        return None
    fields = y[0].squeeze()
    if tuple(fields.shape) == tuple(grid):
        return fields
    if tuple(fields.shape[1:]) == tuple(grid):
        return fields[0]
    return fields[..., 0] if tuple(fields.shape[:-1]) == tuple(grid) else None


def _known(order: float) -> float | None:
    return float(order) if math.isfinite(order) else None


def _page(
    numbers: dict[str, Any], maps: Maps, samples: Samples, sample: int, prediction: Tensor | None
) -> str:
    from chonn_ops.inspection import _pictures

    circuits, title = numbers["circuits"], numbers["title"]
    count = len(samples)
    last = samples.first + count - 1
    body = [
        f"<h1>Circuits of {html.escape(title)}</h1>",
        paragraph(
            f"{circuits['parameters']:,} parameters; {len(circuits['networks'])} calls of network "
            f"cells, {len(circuits['scans'])} of scan cells. Checkpoint {numbers['checkpoint']}, "
            f"data {numbers['data']}, samples {samples.first} to {last}; maps are of sample "
            f"{numbers['maps_of_sample']}, quantiles over the first {min(_QUANTILES, count)}."
        ),
        *(paragraph(note, "soft") for note in numbers["notes"]),
        _options(numbers["options"]),
    ]
    fields = {samples.truth_name: samples.reference[sample].numpy()}
    if prediction is not None:
        fields["the model's output"] = prediction.float().numpy()
    if samples.fields.dim() < 7:
        picture = _pictures.input_picture(fields)
        body.append(embedded(picture, ".png", f"Sample {numbers['maps_of_sample']}."))
    if circuits["networks"]:
        body += _networks(numbers, maps, _pictures)
    if circuits["scans"]:
        body += _lines(numbers, maps, _pictures)
    if any(block["stage_share"] for block in circuits["blocks"]):
        body.append("<h2>Stages and gates</h2>")
        caption = (
            "Which stage carries the output of each block, and the part of its gate below a "
            "twentieth of the gate's root mean square."
        )
        body.append(embedded(_pictures.blocks_picture(circuits["blocks"]), ".png", caption))
    return frame(f"Circuits of {title}", "\n".join(body))


def _networks(numbers: dict[str, Any], maps: Maps, pictures: Any) -> Iterator[str]:
    circuits, learned = numbers["circuits"], numbers["learned_conductivity"]
    yield "<h2>Networks</h2>"
    yield paragraph(
        f"How each network's conductivity relates to the {numbers['reference']}, over "
        f"{numbers['samples']['count']} samples: mean of Pearson's coefficient over the nodes. "
        "Beside it how much the conductivity varies over the nodes that are an eighth of the "
        "domain or more inside."
    )
    picture = pictures.learned_picture(learned, numbers["reference"])
    yield embedded(picture, ".png", "Learned conductivity; - where one of both is constant.")
    yield _learned_table(learned)
    yield _network_table(circuits["networks"])
    yield from _each(maps.networks, pictures.network_picture, numbers["maps_of_sample"])


def _lines(numbers: dict[str, Any], maps: Maps, pictures: Any) -> Iterator[str]:
    yield "<h2>Lines</h2>"
    yield paragraph(
        "Time constants over states and positions; poles and zeros with the coefficients of the "
        "middle position; of how many poles no zero is within 1 %."
    )
    rows = [
        [
            entry["name"],
            " x ".join(map(str, entry["positions"])),
            *(_number(entry["time_constant"][i]) for i in (0, 2, 4)),
            *(_number(entry["pole"][i]) for i in (0, 4)),
            _number(None if entry["effective_order"] is None else entry["effective_order"][2]),
        ]
        for entry in numbers["circuits"]["scans"]
    ]
    head = ["cell", "positions", "time constant: least", "median", "most"]
    yield _table([*head, "pole: least", "most", "effective order, median"], rows)
    yield from _each(maps.lines, pictures.line_picture, numbers["maps_of_sample"])


def _each(
    maps: Sequence[Any], draw: Callable[[Any], tuple[bytes, str]], sample: int
) -> Iterator[str]:
    """A picture of each of the first calls."""
    for found in maps[:_MOST_PICTURES]:
        picture, words = draw(found)
        caption = f"{found.name}, at sample {sample}{words}."
        yield f"<h3>{html.escape(found.name)}</h3>" + embedded(picture, ".png", caption)
    if len(maps) > _MOST_PICTURES:
        left = len(maps) - _MOST_PICTURES
        yield paragraph(f"No pictures of the {left} calls after these.", "soft")


def _learned_table(learned: Sequence[dict[str, Any]]) -> str:
    keys = ("correlation", "deviation", "least", "most", "variation_inside", "variation")
    rows = [
        [entry["name"], str(c), *(_number(network[key]) for key in keys)]
        for entry in learned
        for c, network in enumerate(entry["networks"])
    ]
    head = ["cell", "network", "correlation", "deviation", "least", "most"]
    return _table([*head, "variation inside", "everywhere"], rows)


def _network_table(networks: Sequence[dict[str, Any]]) -> str:
    rows = [
        [
            entry["name"],
            str(c),
            *(_number(network[key][2]) for key in ("conductivity", "leak", "length_scale")),
            _number(network["dissipated_power"]),
            _number(network["leak_share"]),
            _number(entry["effective_rank"]),
        ]
        for entry in networks
        for c, network in enumerate(entry["networks"])
    ]
    head = ["cell", "network", "conductivity, median", "leak", "length scale", "power"]
    return _table([*head, "of it to ground", "effective rank of the cell"], rows)


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    def row(cells: Sequence[str], kind: str) -> str:
        inner = "".join(f"<{kind}>{html.escape(cell)}</{kind}>" for cell in cells)
        return f"<tr>{inner}</tr>"

    body = "".join(row(cells, "td") for cells in rows)
    return f'<div class="table"><table>{row(head, "th")}{body}</table></div>'


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}"


def _options(options: dict[str, Any]) -> str:
    if not options:
        return ""
    items = "".join(
        f"<dt>{html.escape(str(key))}</dt><dd>{html.escape(str(value))}</dd>"
        for key, value in options.items()
    )
    return f"<details><summary>Options</summary><dl>{items}</dl></details>"
