"""Checks that the two steady problems share."""

import dataclasses

import numpy as np
import pytest
import torch
from torch import nn

from chonn_lab.experiments.jobs import Job
from chonn_lab.experiments.training import execute

OWN = ("ffno", "transolver", "galerkin", "mgno")


class One(nn.Module):
    """A function as a model, with the parameter by which scoring finds the device."""

    def __init__(self, function):
        super().__init__()
        self.function, self.unused = function, nn.Parameter(torch.zeros(()))

    def forward(self, x):
        return self.function(x)


def check_smoke(experiment, folder, names=()):
    """Train every variant, or those named, at scale smoke; the last run."""
    pytest.importorskip("neuralop")
    config = experiment.scales["smoke"]
    data = folder / "data"
    experiment.prepare(config, data / experiment.name, progress=False)
    shape = (2, config.resolution, config.resolution)
    for variant in experiment.variants(config):
        if names and variant.name not in names:
            continue
        job = Job(
            experiment_name=experiment.name,
            scale="smoke",
            base=config,
            variant_name=variant.name,
            seed=0,
            output=folder,
            data=data,
            accelerator="cpu",
        )
        run = execute(job)
        assert run.parameters > 0 or variant.name == "own-scheme"
        assert np.isfinite([v for scores in run.metrics.values() for v in scores.values()]).all()
        with np.load(job.fields) as fields:
            assert {name: fields[name].shape for name in fields} == dict.fromkeys(
                ("input", "target", "prediction"), shape
            )
    return run


def check_paper_step(experiment, name):
    """One optimiser step at the paper's sizes changes the loss of a sample or two."""
    config = experiment.scales["paper"]
    variant = next(v for v in experiment.variants(config) if v.name == name)
    config = dataclasses.replace(config, **variant.changes)
    torch.manual_seed(0)
    model = variant.build(config)
    batch = tuple(torch.rand(2, 1, config.resolution, config.resolution) for _ in range(2))
    optimizer = torch.optim.AdamW(model.parameters(), config.learning_rate)
    loss = experiment.loss(config, model, batch)
    loss.backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())
    optimizer.step()
    with torch.no_grad():
        assert experiment.loss(config, model, batch) != loss
    assert experiment.example(config)[0].shape == (1, *batch[0].shape[1:])


def check_sources(experiment):
    fields = {field.name for field in dataclasses.fields(experiment.scales["paper"])}
    assert set(experiment.sources) == fields
    assert all(experiment.sources.values())


def check_units(experiment, data):
    """With `standardize`, models see and predict fields of about unit size around zero."""
    units = experiment.units_of(experiment.scales["smoke"])
    source, target = data.train.tensors
    of_channels = (units.input_centre, units.input_spread)
    centre_in, spread_in = (torch.as_tensor(n).reshape(-1, 1, 1) for n in of_channels)
    for field, centre, spread in (
        (source, centre_in, spread_in),
        (target, units.output_centre, units.output_spread),
    ):
        scaled = (field - centre) / spread
        assert abs(float(scaled.mean())) < 0.3
        assert 0.6 < float(scaled.std()) < 1.5
    config = dataclasses.replace(experiment.scales["smoke"], standardize=True)
    model = experiment.variants(config)[0].build(config)
    model.model = nn.Identity()
    expected = units.output_centre + units.output_spread * ((source[:2] - centre_in) / spread_in)
    torch.testing.assert_close(model(source[:2]), expected)


def check_equal_budget(experiment):
    """At the small scale CHONN has no more parameters than any baseline, which are alike."""
    pytest.importorskip("neuralop")
    config = experiment.scales["small"]
    variants = {variant.name: variant for variant in experiment.variants(config)}

    def size(name):
        changed = dataclasses.replace(config, **variants[name].changes)
        return sum(p.numel() for p in variants[name].build(changed).parameters())

    baselines = {v.name: size(v.name) for v in variants.values() if v.tags["role"] == "baseline"}
    assert {"unet", "fno", "cno", "fno-neuralop", "uno", *OWN} == set(baselines)
    assert max(baselines.values()) < 1.15 * min(baselines.values())
    assert 0.85 * min(baselines.values()) < size("chonn2") <= min(baselines.values())
    # The network has smaller batches of the same samples and epochs, and an eighth of the size.
    networks = [name for name in variants if name.startswith("network")]
    assert networks == ["network", "network-no-cell", "network-constant"]
    sizes = [size(name) for name in networks]
    assert max(sizes) < min(baselines.values()) / 5
    assert max(sizes) < 1.05 * min(sizes)
    assert 0.9 * sizes[0] < size("solve-cnn") < 1.05 * sizes[0]
    batches = {v.changes.get("batch_size", config.batch_size): v.name for v in variants.values()}
    assert set(batches) == {8, 4}
    for name, variant in variants.items():
        assert not {"n_train", "epochs"} & variant.changes.keys()
        small = variant.changes.get("batch_size", config.batch_size) == 4
        assert small == (name in networks)
