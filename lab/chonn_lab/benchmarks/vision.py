"""Vision backbones of timm at 224 x 224 beside ours: inference and a training step on the CPU.

Contenders
    chonn_tiny and its peers of like size, built by ``timm.create_model`` with random weights

Columns
    forward, step   _ms of a batch: a forward pass in evaluation mode without autograd; forward,
                    loss, backward and Adam in training mode, drop-path at its default
    peak_MiB        highest resident memory in a step, model and optimizer included
"""

import functools
from typing import Any

import timm
import torch
from torch import Tensor, nn

from chonn_lab.benchmarks.harness import Row, Run, main_of

MODELS = ("swin_tiny_patch4_window7_224", "chonn_tiny", "convnext_tiny", "mambaout_tiny")
SMOKE = ("test_vit", "test_chonn")


def build(name: str, points: int) -> nn.Module:
    torch.manual_seed(0)
    # Transformers with windows or positions need to know the size; others refuse the option.
    fixed = name.startswith(("swin", "test_vit", "deit"))
    sized: dict[str, Any] = {"img_size": points} if fixed else {}
    return timm.create_model(name, **sized)


def make(name: str, batch: int, points: int) -> tuple[nn.Module, tuple[Tensor, ...], Tensor]:
    torch.manual_seed(1)
    images, target = torch.randn(batch, 3, points, points), torch.randn(batch, 1000)
    return build(name, points).train(), (images,), target


def models(run: Run) -> list[Row]:
    names = SMOKE if run.smoke else MODELS
    batch, points = (2, 32) if run.smoke else (8, 224)
    makes = {name: functools.partial(make, name, batch, points) for name in names}
    return [{**row, "batch": batch} for row in run.steps(makes)]


main = main_of(__doc__, "vision", {"rows": models}, ["timm"])

if __name__ == "__main__":
    main()
