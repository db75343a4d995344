"""The page and the JSON file of ``chonn inspect``."""

from __future__ import annotations

import base64
import html
import json
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from chonn_ops._optional import import_optional
from chonn_ops.checks import error
from chonn_ops.files import refuse_existing, whole_file
from chonn_ops.inspect.checkpoint import TrainedModel
from chonn_ops.inspect.reading import (
    NetworkFields,
    compare_conductivity,
    conductivity_law,
    law_curve,
    read_circuits,
    read_fields,
)
from chonn_ops.inspect.samples import Samples
from chonn_ops.models.network import CHONNNetwork, PointwiseTrunk
from chonn_ops.network.laws import Monotone

PAGE, NUMBERS = "inspection.html", "inspection.json"
# Quantiles are over the first so many samples; correlations are over all of them, in batches.
_QUANTILES, _BATCH = 16, 16
_MOST_PICTURES = 8
# Values of an input at which a law is drawn.
_LAW = 101
_STYLE = """
:root { color-scheme: light dark; }
body {
  margin: 0 auto; padding: 1.5rem 1rem 4rem; max-width: 66rem; overflow-wrap: anywhere;
  font: 16px/1.55 system-ui, sans-serif;
}
h2 { margin-top: 3rem; padding-top: 1rem; border-top: 1px solid #8888; }
figcaption, dl { opacity: 0.75; font-size: 0.9rem; }
.table { overflow-x: auto; overflow-wrap: normal; margin: 1rem 0; }
table { border-collapse: collapse; font-size: 0.85rem; font-variant-numeric: tabular-nums; }
th, td { padding: 0.3rem 0.7rem; border-bottom: 1px solid #8888; text-align: right; }
td { white-space: nowrap; }
th:first-child, td:first-child { text-align: left; }
figure { margin: 1.5rem 0; max-width: 58rem; }
figure div {
  display: grid; grid-template-columns: repeat(auto-fill, minmax(min(17rem, 100%), 1fr));
  padding: 0.5rem; background: #ffffff;
}
figure img { display: block; width: 100%; height: auto; }
dl { display: grid; grid-template-columns: fit-content(40%) 1fr; gap: 0.2rem 1rem; }
dd { margin: 0; }
"""


def write_page(
    trained: TrainedModel,
    samples: Samples,
    output: Path,
    *,
    checkpoint: str,
    data: str,
    sample: int = 0,
    force: bool = False,
) -> tuple[Path, Path]:
    """Read the circuits of a model at some samples; write ``inspection.html`` and
    ``inspection.json``.

    Parameters
    ----------
    trained : TrainedModel
    samples : Samples
        Correlations are over all of them, quantiles over the first 16. For learned laws
        (`chonn_ops.laws.Monotone`) the drops that their elements have seen: the page is their
        curves over that range.
    output : path
        Folder of both files; created if needed.
    checkpoint, data : str
        Names of the checkpoint and the data file, shown on the page.
    sample : int
        Index in `samples` of the sample whose fields are drawn.
    force : bool
        Replace existing files.

    Returns
    -------
    page, numbers : Path

    Raises
    ------
    FileExistsError
        If one of the files exists and `force` is not set.
    ValueError
        If the samples do not match the model, or there is no such sample; if a number of the
        circuits is not finite.
    ImportError
        If Matplotlib is not installed.
    """
    from chonn_ops import __version__

    import_optional("matplotlib", "circuit")
    samples = samples.every(trained.every_frame, trained.every_point)
    if not 0 <= sample < len(samples):
        last = samples.first + len(samples) - 1
        raise error("sample", f"{samples.first} to {last}", samples.first + sample)
    paths = output / PAGE, output / NUMBERS
    if output.exists():
        for path in paths:
            refuse_existing(path, force)
    numbers: dict[str, Any] = {
        "generator": f"chonn-ops {__version__}",
        "checkpoint": checkpoint,
        "data": data,
        "samples": {"first": samples.first, "count": len(samples), "grid": list(samples.grid)},
        "title": trained.title,
        "options": dict(trained.options),
    }
    laws = [x for x in trained.model.named_modules() if isinstance(x[1], Monotone)]
    if laws:
        page = _document(trained.title, list(_laws(laws, samples.fields, numbers)))
    else:
        page = _circuits(trained, samples, sample, numbers)
    text = json.dumps(numbers, indent=1, allow_nan=False) + "\n"
    output.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:  # Both files appear, or neither does.
        staged = [stack.enter_context(whole_file(path, force)) for path in paths]
        for path, content in zip(staged, (page, text), strict=True):
            path.write_text(content, encoding="utf-8")
    return paths


def _laws(laws: Any, drops: Tensor, numbers: dict[str, Any]) -> Iterator[str]:
    """The page of learned laws, whose numbers are added."""
    from chonn_ops.inspect import pictures  # It imports Matplotlib.

    yield _paragraph(
        f"Checkpoint {numbers['checkpoint']}. Each curve ends where the drops of {numbers['data']} "
        f"end, at {_number(drops.min().item())} and {_number(drops.max().item())}: beyond, the law "
        "has seen nothing. Current over conductance has the unit of the drop. Where the law "
        "depends on features, the line is the median over their elements, and the band has all."
    )
    numbers["laws"] = []
    for name, law in laws:
        x, y = law_curve(law, drops)
        three = torch.stack([y.amin(1), y.median(1).values, y.amax(1)])
        numbers["laws"].append({"name": name, "drop": x.tolist(), "current": three.tolist()})
        yield _figure([pictures.draw_curve(name, x.numpy(), three.numpy())], f"Law of {name}.")


def _circuits(trained: TrainedModel, samples: Samples, sample: int, numbers: dict[str, Any]) -> str:
    """The page of a model's circuits, whose numbers are added."""
    model, inputs = trained.model, _inputs(trained, samples)
    takes_mask = isinstance(model, CHONNNetwork) and samples.mask is not None
    options = {"mask": samples.mask} if takes_mask else {}
    shown = inputs(slice(sample, sample + 1))
    try:
        circuits = read_circuits(model, *inputs(slice(0, _QUANTILES)), **options)
        fields = read_fields(model, *shown, **options)
        learned = compare_conductivity(model, _batches(samples, inputs), **options)
        with torch.no_grad():
            prediction = _field_of(model(*shown, **options), samples.grid)
    except (RuntimeError, IndexError, TypeError) as failure:
        # Hosts raise these for fields of another shape.
        line = str(failure).partition("\n")[0]
        shape = f"{tuple(samples.fields.shape[1:])} (frames, channels, grid): {line}"
        raise error(numbers["data"], "samples that the model takes", shape) from failure
    numbers |= {
        "maps_of_sample": samples.first + sample,
        "reference": samples.reference_name,
        "circuits": circuits,
        "learned_conductivity": learned,
    }
    for place, value in _not_finite(numbers):
        where = f"{numbers['checkpoint']} at {numbers['data']}"
        raise error(where, "finite numbers of the model", f"{value} for {place}")
    law = _law(model, inputs(slice(0, _QUANTILES))[0], samples)
    return _page(numbers, fields, samples, sample, prediction, law)


def _not_finite(value: Any, place: str = "") -> Iterator[tuple[str, float]]:
    """List the places where numbers are NaN or infinite, and these numbers."""
    if isinstance(value, float) and not math.isfinite(value):
        yield place, value
    elif isinstance(value, (dict, list, tuple)):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        for key, inner in items:
            yield from _not_finite(inner, f"{place}.{key}" if place else str(key))


def _inputs(trained: TrainedModel, samples: Samples) -> Callable[[slice], tuple[Any, ...]]:
    """A function that returns the model's positional arguments for a part of the samples."""
    x = samples.inputs(trained.in_channels)

    def inputs(part: slice) -> tuple[Any, ...]:
        if trained.coordinates:
            grid = samples.grid_coordinates().expand(len(x[part]), *samples.grid, -1)
            return x[part].movedim(1, -1), grid
        return (x[part],)

    return inputs


def _batches(
    samples: Samples, inputs: Callable[[slice], tuple[Any, ...]]
) -> Iterator[tuple[tuple[Any, ...], Tensor]]:
    for start in range(0, len(samples), _BATCH):
        part = slice(start, start + _BATCH)
        yield inputs(part), samples.reference[part]


def _field_of(y: Any, grid: Sequence[int]) -> Tensor | None:
    """The first channel of an output, if the output is a field on the grid."""
    if not isinstance(y, Tensor):
        return None
    fields = y[0].squeeze()
    if tuple(fields.shape) == tuple(grid):
        return fields
    if tuple(fields.shape[1:]) == tuple(grid):
        return fields[0]
    return fields[..., 0] if tuple(fields.shape[:-1]) == tuple(grid) else None


def _page(
    numbers: dict[str, Any],
    fields: Sequence[NetworkFields],
    samples: Samples,
    sample: int,
    prediction: Tensor | None,
    law: Iterator[str],
) -> str:
    from chonn_ops.inspect import pictures  # It imports Matplotlib.

    circuits, count = numbers["circuits"], len(samples)
    body = [
        _paragraph(
            f"{circuits['parameters']:,} parameters; {len(circuits['networks'])} calls of network "
            f"cells, {len(circuits['scans'])} calls of scan cells. Checkpoint "
            f"{numbers['checkpoint']}, data {numbers['data']}, samples {samples.first} to "
            f"{samples.first + count - 1}. Fields are those of sample {numbers['maps_of_sample']}; "
            f"quantiles are over the first {min(_QUANTILES, count)} samples."
        ),
        _options(numbers["options"]),
    ]
    shown = {samples.reference_name: samples.reference[sample]}
    if samples.targets is not None:
        shown["target of the data"] = samples.targets[sample]
    if prediction is not None:
        shown["the model's output"] = prediction.float()
    if samples.fields.dim() < 7:
        caption = f"Sample {numbers['maps_of_sample']}."
        if samples.mask is not None:
            shown = {key: torch.where(samples.mask, x, torch.nan) for key, x in shown.items()}
        drawn = pictures.draw_sample({key: x.numpy() for key, x in shown.items()})
        body.append(_figure(drawn, caption))
    if circuits["networks"]:
        body += _networks(numbers, fields)
    body += law
    if circuits["scans"]:
        body += _scans(circuits["scans"])
    if any(block["stage_share"] for block in circuits["blocks"]):
        body += _blocks(circuits["blocks"])
    return _document(f"Circuits of {numbers['title']}", body)


def _document(title: str, body: Sequence[str]) -> str:
    title = html.escape(title)
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="generator" content="chonn-ops">\n'
        f"<title>{title}</title>\n<style>{_STYLE}</style>\n</head>\n"
        f"<body>\n<h1>{title}</h1>\n" + "\n".join(body) + "\n</body>\n</html>\n"
    )


def _law(model: Any, x: Tensor, samples: Samples) -> Iterator[str]:
    """The conductivity over each input, with the others at their medians, if the model has one of
    each point."""
    from chonn_ops.inspect import pictures

    if not isinstance(model, CHONNNetwork) or not isinstance(model.trunk, PointwiseTrunk):
        return
    yield "<h2>Law of the medium</h2>"
    yield _paragraph(
        "The conductivity of a point is this function of its inputs, drawn over their range in the "
        "samples, one channel at a time with the others at their medians. The median of each curve "
        "is 1, unless a given flux or film sets the unit."
    )
    x = (x if samples.mask is None else x[..., samples.mask]).transpose(0, 1).flatten(1)
    drawn = []
    for channel, (low, high) in enumerate(zip(x.amin(1), x.amax(1), strict=True)):
        line = torch.linspace(0, 1, _LAW)
        line = low * (high / low) ** line if low > 0 else low + (high - low) * line
        values = x.median(1).values.repeat(_LAW, 1)
        values[:, channel] = line
        name = samples.reference_name if channel == 0 else f"input channel {channel}"
        k = conductivity_law(model, values)
        drawn.append(pictures.draw_law(name, line.numpy(), k.numpy()))
    yield _figure(drawn, "Learned conductivity over the input.")


def _networks(numbers: dict[str, Any], fields: Sequence[NetworkFields]) -> Iterator[str]:
    from chonn_ops.inspect import pictures

    yield "<h2>Networks</h2>"
    yield _paragraph(
        f"Correlation of each network's conductivity with the {numbers['reference']}: Pearson's "
        "coefficient over the nodes between the logarithms, averaged over "
        f"{numbers['samples']['count']} samples, with its standard deviation over them; - where "
        "one of the two fields is constant. The variation is the standard deviation of the "
        "conductivity over its mean, at the nodes at least an eighth of the domain from the "
        "boundary. Conductivity, leak and length scale are medians."
    )
    of_cell = {entry["name"]: entry["networks"] for entry in numbers["learned_conductivity"]}
    rows = [
        [
            entry["name"],
            str(c),
            *(_number(learned[key]) for key in ("correlation", "deviation", "variation")),
            *(_number(network[key][2]) for key in ("conductivity", "leak", "length_scale")),
            *(_number(network.get(key)) for key in ("dissipated_power", "leak_share")),
            _number(entry["effective_rank"]),
        ]
        for entry in numbers["circuits"]["networks"]
        for c, (network, learned) in enumerate(
            zip(entry["networks"], of_cell[entry["name"]], strict=True)
        )
    ]
    head = ["cell", "network", "correlation", "deviation", "variation", "conductivity", "leak"]
    head += ["length scale", "power", "share to ground", "effective rank of the cell"]
    yield _table(head, rows)
    heads = [
        (entry["name"], c, network)
        for entry in numbers["circuits"]["networks"]
        for c, network in enumerate(entry["networks"])
        if "walls" in network
    ]
    if heads:
        yield from _heads(heads)
    for call in fields[:_MOST_PICTURES]:
        drawn, left_out = pictures.draw_network(call)
        yield f"<h3>{html.escape(call.name)}</h3>"
        yield _figure(drawn, f"{call.name}, at sample {numbers['maps_of_sample']}{left_out}.")
    if len(fields) > _MOST_PICTURES:
        rest = len(fields) - _MOST_PICTURES
        yield _paragraph(f"The {rest} later calls have no pictures.")


def _heads(heads: Sequence[tuple[str, int, dict[str, Any]]]) -> Iterator[str]:
    yield _paragraph(
        "The circuit of a head is in the unit of the model's output, lengths are in that of the "
        "domain. The data determine its conductivity, absorption and source up to one common "
        "factor: they are divided by the median conductivity of the samples shown, unless a given "
        "flux or film sets their unit. The absorption takes nothing at the potential called "
        "ground. The mean of a face is 1 for the arithmetic mean of both nodes' conductivities, 0 "
        "for the geometric and -1 for the harmonic one."
    )
    axes = len(heads[0][2]["by_axis"])
    rows = [
        [name, str(c), *(_number(k[2]) for k in network["by_axis"]), _number(network["source"][2]),
         *(_number(x) for x in (network["leak"][2], network["ground"], network["face_mean"]))]
        for name, c, network in heads
    ]  # fmt: skip
    along = [f"conductivity along axis {axis}" for axis in range(axes)]
    middle = ["source", "absorption", "ground", "mean of a face"]
    yield _table(["head", "output", *along, *middle], rows)
    walls = [(name, c, wall) for name, c, network in heads for wall in network["walls"]]
    keys = ["value", "distance", "flux", "coefficient"]
    keys = [key for key in keys if any(key in wall for _, _, wall in walls)]
    rows = [
        [name, str(c), wall["wall"], wall["condition"],
         *(_number(wall.get(key), 6) for key in keys)]
        for name, c, wall in walls
    ]  # fmt: skip
    shown = {"value": "potential", "distance": "distance behind the face", "coefficient": "film"}
    yield _table(["head", "output", "wall", "condition", *(shown.get(x, x) for x in keys)], rows)


def _scans(scans: Sequence[dict[str, Any]]) -> Iterator[str]:
    yield "<h2>Scans</h2>"
    yield _paragraph(
        "Time constants, in positions, and poles are over states and positions. The effective "
        "order counts the Hankel singular values above a thousandth of the largest."
    )
    rows = [
        [
            entry["name"],
            " x ".join(map(str, entry["positions"])),
            *(_number(entry["time_constant"][i]) for i in (0, 2, 4)),
            *(_number(entry["pole"][i]) for i in (0, 4)),
            _number(None if entry["effective_order"] is None else entry["effective_order"][2]),
        ]
        for entry in scans
    ]
    head = ["cell", "positions", "time constant: minimum", "median", "maximum"]
    yield _table([*head, "pole: minimum", "maximum", "effective order, median"], rows)


def _blocks(blocks: Sequence[dict[str, Any]]) -> Iterator[str]:
    yield "<h2>Stages and gates</h2>"
    yield _paragraph(
        "Share of each stage in the output of its block, and the part of the gate below a "
        "twentieth of the gate's root mean square."
    )
    most = max(len(block["stage_share"]) for block in blocks)
    rows = []
    for block in blocks:
        shares = block["stage_share"] + [None] * (most - len(block["stage_share"]))
        numbers = map(_number, (*shares, block["gate_closed"]))
        rows.append([block["name"] or "model", *numbers])
    stages = [f"stage {stage + 1}" for stage in range(most)]
    yield _table(["block", *stages, "closed part of the gate"], rows)


def _figure(pictures: Sequence[bytes], caption: str) -> str:
    """PNG pictures inside the page, as many side by side as the screen holds."""
    text = html.escape(caption)
    encoded = (base64.b64encode(picture).decode("ascii") for picture in pictures)
    images = "".join(f'<img alt="" src="data:image/png;base64,{data}">' for data in encoded)
    return (
        f'<figure><div role="img" aria-label="{text}">{images}</div>'
        f"<figcaption>{text}</figcaption></figure>"
    )


def _paragraph(text: str) -> str:
    return f"<p>{html.escape(text)}</p>"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    def row(cells: Sequence[str], kind: str) -> str:
        inner = "".join(f"<{kind}>{html.escape(cell)}</{kind}>" for cell in cells)
        return f"<tr>{inner}</tr>"

    body = "".join(row(cells, "td") for cells in rows)
    return f'<div class="table"><table>{row(head, "th")}{body}</table></div>'


def _number(value: float | None, digits: int = 3) -> str:
    return "-" if value is None else f"{value:.{digits}g}"


def _options(options: dict[str, Any]) -> str:
    if not options:
        return ""
    items = "".join(
        f"<dt>{html.escape(str(key))}</dt><dd>{html.escape(str(value))}</dd>"
        for key, value in options.items()
    )
    return f"<details><summary>Options</summary><dl>{items}</dl></details>"
