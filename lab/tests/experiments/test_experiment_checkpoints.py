"""Checkpoints of ``chonn-lab run``, read for ``chonn inspect``."""

import dataclasses
import json

import pytest
import torch

from chonn_lab.experiments import get
from chonn_lab.experiments.checkpoints import read_model
from chonn_lab.experiments.training import STATE


def test_the_model_of_a_checkpoint(tmp_path):
    experiment = get("darcy")
    config = experiment.scales["smoke"]
    variant = next(v for v in experiment.variants(config) if v.name == "network")
    config = dataclasses.replace(config, **variant.changes)
    model = variant.build(config)
    path = tmp_path / "network-seed0" / "last.ckpt"
    content = {"state_dict": model.state_dict(), STATE: {}}
    with pytest.raises(ValueError, match=r"expected the result file of its run, .*seed0.json"):
        read_model(path, content)
    record = {"experiment": "darcy", "scale": "smoke", "variant": "network", "seed": 0}
    record["config"] = json.loads(json.dumps(dataclasses.asdict(config)))
    result = tmp_path / "network-seed0.json"
    result.write_text(json.dumps(record))
    found = read_model(path, content)
    state = found.model.state_dict()
    assert all(torch.equal(state[name], value) for name, value in model.state_dict().items())
    assert found.options["seed"] == 0
    assert read_model(path, {"state_dict": {}}) is None
    # A name in the file must not import a module.
    result.write_text(json.dumps({**record, "experiment": "antigravity:fly"}))
    with pytest.raises(ValueError, match="expected the result file of its run"):
        read_model(path, content)
