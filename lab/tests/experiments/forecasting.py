"""Checks that the two forecasting problems share."""

import dataclasses

import torch
from torch import nn


class Persistence(nn.Module):
    """The next frame is the last one."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(()))

    def forward(self, frames):
        return self.weight * frames[:, -1]


def check_sources(experiment):
    fields = {field.name for field in dataclasses.fields(experiment.scales["smoke"])}
    assert set(experiment.sources) == fields
    assert set(experiment.scales) == {"smoke", "small", "paper"}


def check_learning(experiment, variant, folder, steps, share):
    """The loss on the training samples of scale smoke falls below this share of the first."""
    config = dataclasses.replace(experiment.scales["smoke"], **variant.changes)
    train = experiment.load(config, folder).train
    torch.manual_seed(0)
    model = variant.build(config)
    model.eval()(*experiment.example(config))
    model.train()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    losses = []
    for _ in range(steps):
        loss = experiment.loss(config, model, train[range(len(train))])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < share * losses[0]


def check_paper_step(experiment, frames, **changes):
    """The loss of CHONN at the paper's sizes has finite gradients for all parameters."""
    config = experiment.scales["paper"]
    variant = next(v for v in experiment.variants(config) if v.tags["family"] == "chonn")
    config = dataclasses.replace(config, **variant.changes, **changes)
    model = variant.build(config)
    experiment.loss(config, model, (frames,)).backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())
