"""The models of the ablations: each is built, of the scales' configs, and steps."""

import dataclasses

import pytest
import torch

from chonn_lab.studies import rollout_ablations

EXPERIMENTS = (rollout_ablations.NAVIER_STOKES, rollout_ablations.SHALLOW_WATER)
VARIANTS = [(e, v) for e in EXPERIMENTS for v in e.variants(e.scales["smoke"])]


@pytest.mark.parametrize(("experiment", "variant"), VARIANTS, ids=lambda part: part.name)
def test_every_model_predicts_a_frame(experiment, variant):
    config = dataclasses.replace(experiment.scales["smoke"], **variant.changes)
    (given,) = experiment.example(config)
    with torch.no_grad():
        predicted = variant.build(config)(1 + torch.rand_like(given))
    assert predicted.shape == (1, config.resolution, config.resolution)
    assert predicted.isfinite().all()


def test_names_are_apart():
    for experiment in EXPERIMENTS:
        names = [variant.name for variant in experiment.variants(experiment.scales["smoke"])]
        assert len(set(names)) == len(names)
