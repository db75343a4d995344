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
        help="show the circuits in a checkpoint: a page with pictures, and numbers",
        description=(
            "Evaluate the model of a checkpoint on data, and write the circuits in it to "
            "inspection.html and inspection.json."
        ),
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.set_defaults(command=_inspect)
    parser.add_argument(
        "checkpoint",
        metavar="CHECKPOINT",
        help="checkpoint of PDEBench's runner, neuraloperator's Trainer (its folder) or timm's "
        "train.py, or a state dict (.pt, .safetensors)",
    )
    parser.add_argument(
        "--data",
        metavar="FILE",
        required=True,
        help="data file of a host; a picture or a folder of them for models of timm; or inputs of "
        "your own, .npy or .pt, in the units of the training: an array (N, n), (N, H, W), "
        "(N, C, H, W) or (N, C, X, Y, Z); for a learned law the drops that it has seen",
    )
    parser.add_argument(
        "--output",
        type=Path,
        default=Path("inspection"),
        metavar="FOLDER",
        help="folder of the two files",
    )
    parser.add_argument(
        "--start", type=integer(0), default=0, metavar="I", help="number of the first sample"
    )
    parser.add_argument(
        "--samples", type=integer(1), default=128, metavar="N", help="largest number of samples"
    )
    parser.add_argument(
        "--sample",
        type=integer(0),
        default=argparse.SUPPRESS,
        metavar="I",
        help="number of the sample whose fields are drawn (default: the first)",
    )
    parser.add_argument(
        "--model",
        default=argparse.SUPPRESS,
        metavar="NAME",
        help="for a state dict without a card: class in chonn_ops, or name in timm",
    )
    parser.add_argument(
        "--set",
        action="append",
        default=argparse.SUPPRESS,
        metavar="NAME=VALUE",
        help="option of that model, such as width=16 or ckb.order=3; repeatable",
    )
    add_force(parser)


def _inspect(arguments: argparse.Namespace) -> None:
    from chonn_ops.inspect import load_checkpoint, read_samples, write_page

    trained = load_checkpoint(
        arguments.checkpoint,
        name=getattr(arguments, "model", None),
        options=dict(map(_assignment, getattr(arguments, "set", ()))),
    )
    for module in trained.model.modules():
        if (equation := getattr(module, "equation", None)) is not None:  # one circuit a frame
            print(equation())
            return
    samples = read_samples(
        arguments.data, arguments.start, arguments.samples, trained.image_transform
    )
    page, numbers = write_page(
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
