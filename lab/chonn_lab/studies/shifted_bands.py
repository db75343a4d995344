"""Coverage of bands by level, for samples like the calibration's and for another contrast.

The model is `CHONNNetwork2d.from_pretrained("darcy-small")`, trained on Darcy flow of contrast 10.
Its bands are calibrated at contrast 10 and evaluated there and at contrast 1,000; then calibrated
anew with a few samples of contrast 1,000. Writes the numbers and docs/figures/uncertainty.png.

    python -m chonn_lab.studies.shifted_bands
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from chonn_lab.experiments.base import relative_l2
from chonn_lab.experiments.modules import PLAIN
from chonn_lab.experiments.provenance import code
from chonn_lab.paths import DOCS, RESULTS
from chonn_lab.problems import darcy
from chonn_lab.report import style
from chonn_lab.results_file import drawn_data, read_record
from chonn_lab.studies.bands import LEVEL, SHIFTED, Samples, generated
from chonn_ops import CHONNNetwork2d, CHONNUNet2d
from chonn_ops.files import write_json
from chonn_ops.uncertainty import Bands, conformal_scale, fit_spread

LEVELS = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95)
# At contrast 10: to learn the spread from, to calibrate with, to test on.
SPLITS = (128, 128, 128)
# At contrast 1,000: to calibrate anew with, to test on.
SHIFTED_SPLITS = (32, 128)


def main() -> None:
    args = parse_arguments()
    torch.set_num_threads(args.threads)
    torch.manual_seed(0)
    own = parts(generated(args, sum(SPLITS), darcy.CONTRAST), SPLITS)
    shifted = parts(generated(args, sum(SHIFTED_SPLITS), SHIFTED), SHIFTED_SPLITS)
    data = {
        **drawn_data("contrast 10", *(f for samples in own for f in samples)),
        **drawn_data("contrast 1000", *(f for samples in shifted for f in samples)),
    }
    config = {"levels": list(LEVELS), "splits": [*SPLITS], "shifted_splits": [*SHIFTED_SPLITS]}
    config |= {"epochs": args.epochs, "resolution": args.resolution}
    model = CHONNNetwork2d.from_pretrained("darcy-small").eval()
    network = CHONNUNet2d(1, 1, 4, ckb=PLAIN)
    options = {"epochs": args.epochs, "learning_rate": 1e-2}
    learned = fit_spread(model, loader(own[0]), network, **options)
    found = {}
    for name, spread in (("constant", None), ("learned", learned)):
        bands = Bands(model, spread)
        seen = {
            "calibration": outcome(bands, own[1]),
            "contrast 10": outcome(bands, own[2]),
            "few": outcome(bands, shifted[0]),
            "contrast 1000": outcome(bands, shifted[1]),
        }
        found[name] = seen
    record = read_record(
        args.results, "shifted_bands", config, ("chonn-ops", "torch"), args.threads, data
    )
    record["results"] = [
        {"spread": name, **numbers(seen), **code()} for name, seen in found.items()
    ]
    write_json(args.results, record)
    draw(record["results"], found["learned"], args.figure)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", type=Path, default=Path("data"), help="folder for the data")
    parser.add_argument("--results", type=Path, default=RESULTS / "shifted_bands.json")
    parser.add_argument("--figure", type=Path, default=DOCS / "figures" / "uncertainty.png")
    parser.add_argument("--epochs", type=int, default=20, help="of the learned spread")
    parser.add_argument("--resolution", type=int, default=64)
    parser.add_argument("--threads", type=int, default=1)
    return parser.parse_args()


def parts(samples: Samples, sizes: tuple[int, ...]) -> list[Samples]:
    x, y = (field.split(sizes) for field in samples)
    return list(zip(x, y, strict=True))


def loader(samples: Samples) -> list[Samples]:
    return parts(samples, (16,) * (len(samples[0]) // 16))


@torch.no_grad()
def outcome(bands: Bands, samples: Samples) -> dict[str, Tensor]:
    """Prediction, spread, and the error over the spread, of each sample."""
    found = []
    for x, y in loader(samples):
        band = bands(x)
        spread = (band.upper - band.lower) / 2
        found.append((band.prediction, spread, (y - band.prediction).abs() / spread, y))
    names = ("prediction", "spread", "ratio", "target")
    return dict(zip(names, map(torch.cat, zip(*found, strict=True)), strict=True))


def numbers(seen: dict[str, dict[str, Tensor]]) -> dict[str, Any]:
    """Coverage by level and width at 90 %, calibrated at contrast 10 and anew."""
    found: dict[str, Any] = {}
    for calibration, tests in (
        ("calibration", ("contrast 10", "contrast 1000")),
        ("few", ("contrast 1000",)),
    ):
        scales = {n: conformal_scale(seen[calibration]["ratio"], n) for n in LEVELS}
        for test in tests:
            result = seen[test]
            name = test if calibration == "calibration" else f"{test}, calibrated anew"
            mean = result["target"].abs().mean()
            found[name] = {
                "coverage": {str(n): inside(result, scale) for n, scale in scales.items()},
                "width": (2 * scales[LEVEL] * result["spread"].mean() / mean).item(),
                "relative_l2": relative_l2(result["prediction"], result["target"]).mean().item(),
            }
    return found


def inside(result: dict[str, Tensor], scale: float) -> float:
    return (result["ratio"] <= scale).double().mean().item()


def draw(rows: list[dict[str, Any]], seen: dict[str, dict[str, Tensor]], path: Path) -> None:
    """One sample with its band, a cut through it, and coverage by level."""
    scale = conformal_scale(seen["calibration"]["ratio"], LEVEL)
    result = {name: field[0, 0].numpy() for name, field in seen["contrast 10"].items()}
    half, error = scale * result["spread"], np.abs(result["target"] - result["prediction"])
    with style.styled():
        figure, axes = style.grid(2, 3, 4.6)
        limits = {"vmin": 0, "vmax": result["target"].max()}
        worst = {"vmin": 0, "vmax": max(half.max(), error.max()), "cmap": "magma_r"}
        for axis, title, field, colours in (
            (axes[0, 0], "truth", result["target"], limits),
            (axes[0, 1], "prediction", result["prediction"], limits),
            (axes[1, 0], "error", error, worst),
            (axes[1, 1], "half the band's width", half, worst),
        ):
            picture = axis.imshow(field.T, origin="lower", **colours)
            figure.colorbar(picture, ax=axis, shrink=0.8)
            axis.set_title(title)
            axis.axis("off")
        cut, curve = axes[0, 2], axes[1, 2]
        middle = len(half) // 2
        x = (np.arange(len(half)) + 0.5) / len(half)
        centre, width = result["prediction"][:, middle], half[:, middle]
        cut.fill_between(x, -width, width, color=style.PALE, alpha=0.5, label="90 % band")
        shown = result["target"][:, middle] - centre
        cut.plot(x, shown, color=style.NETWORK, label="truth")
        cut.set_title("truth less prediction, y = 1/2")
        cut.legend()
        for row, line in zip(rows, ("--", "-"), strict=True):
            for name, colour in (
                ("contrast 10", style.NETWORK),
                ("contrast 1000", style.GREY),
                ("contrast 1000, calibrated anew", style.PALE),
            ):
                values = row[name]["coverage"]
                label = name if line == "-" else None
                curve.plot(
                    list(map(float, values)), list(values.values()), line, color=colour, label=label
                )
        curve.plot((0.5, 1), (0.5, 1), ":", color="black", linewidth=0.8)
        curve.set_xlabel("level")
        curve.set_title("share of points inside")
        curve.legend(fontsize=6, loc=(0.02, 0.25))
        path.parent.mkdir(parents=True, exist_ok=True)
        style.save(figure, path)


if __name__ == "__main__":
    main()
