"""The ``chonn inspect`` command."""

import argparse
import ast
from pathlib import Path
from typing import Any

from chonn_ops.cli.arguments import add_force, integer


def add_inspect_command(commands: Any) -> None:
    """Add ``inspect`` to the subparsers of ``chonn``."""
    parser = commands.add_parser(
        "inspect",
        help="the circuits in a checkpoint: a page with pictures, and numbers",
        description=(
            "Ask the model of a checkpoint at data, and write what its circuits are there: "
            "inspection.html and inspection.json."
        ),
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.set_defaults(command=_inspect)
    parser.add_argument(
        "checkpoint",
        metavar="CHECKPOINT",
        help="of PDEBench's runner, neuraloperator's Trainer (its folder), timm's train.py or "
        "chonn run; or a state dict (.pt, .safetensors)",
    )
    parser.add_argument(
        "--data", metavar="FILE", required=True, help="data file; pictures for models of timm"
    )
    parser.add_argument(
        "--output", type=Path, default=Path("inspection"), metavar="FOLDER", help="of both files"
    )
    parser.add_argument(
        "--start", type=integer(0), default=0, metavar="I", help="number of the first sample"
    )
    parser.add_argument(
        "--samples", type=integer(1), default=128, metavar="N", help="how many, at most"
    )
    parser.add_argument(
        "--sample",
        type=integer(0),
        default=argparse.SUPPRESS,
        metavar="I",
        help="number of the one that is pictured (default: the first)",
    )
    parser.add_argument(
        "--model",
        default=argparse.SUPPRESS,
        metavar="NAME",
        help="of a state dict whose weights do not tell: class in chonn_ops, or name in timm",
    )
    parser.add_argument(
        "--set",
        action="append",
        default=argparse.SUPPRESS,
        metavar="NAME=VALUE",
        help="keyword of that model, such as width=16 or ckb.order=3; repeatable",
    )
    add_force(parser)


def _inspect(arguments: argparse.Namespace) -> None:
    from chonn_ops import inspection
    from chonn_ops.inspection import _samples

    name = getattr(arguments, "model", None)
    options = dict(map(_assignment, getattr(arguments, "set", ())))
    data = Path(arguments.data)
    part = (arguments.start, arguments.samples)
    if _samples.is_pictures(data):
        trained = inspection.load(arguments.checkpoint, name=name, options=options)
        samples = _samples.read_pictures(data, trained.images, *part)
    else:
        samples = inspection.read(data, *part)
        frame = samples.fields.shape[1:]
        trained = inspection.load(arguments.checkpoint, frame, name=name, options=options)
    page, numbers = inspection.write(
        trained,
        samples,
        arguments.output,
        checkpoint=arguments.checkpoint,
        data=arguments.data,
        sample=getattr(arguments, "sample", arguments.start) - arguments.start,
        force=arguments.force,
    )
    print(f"wrote {page} and {numbers}")


def _assignment(text: str) -> tuple[str, Any]:
    name, separator, value = text.partition("=")
    if not separator or not name:
        raise ValueError(f"--set: expected NAME=VALUE, got {text!r}")
    try:
        return name, ast.literal_eval(value)
    except (ValueError, SyntaxError):
        return name, value
