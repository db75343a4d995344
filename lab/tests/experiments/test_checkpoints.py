"""Checkpoints of ``chonn-lab run``, read for ``chonn inspect``."""

import copy

import pytest
import torch

from chonn_lab.experiments.checkpoints import read_model
from chonn_lab.experiments.configuration import build_model, build_problem, compose, resolved
from chonn_lab.experiments.runner import STATE


def test_the_model_of_a_checkpoint(tmp_path):
    found = resolved(compose(["scale=smoke", "model=chonn_network", "seed=3"]))
    model = build_model(found, build_problem(found))
    path = tmp_path / "network-seed3" / "last.ckpt"
    content = {"state_dict": model.state_dict(), STATE: {"settings": found}}
    read = read_model(path, content)
    assert read is not None
    state = read.model.state_dict()
    assert all(torch.equal(state[name], value) for name, value in model.state_dict().items())
    assert (read.options["seed"], read.options["width"]) == (3, 4)
    assert read_model(path, {"state_dict": {}}) is None
    # A name in the file must not import a module.
    for part in ("problem", "model"):
        spoiled = copy.deepcopy(found)
        spoiled[part]["_target_"] = "os.system"
        with pytest.raises(ValueError, match=f"expected a {part} of chonn_lab.*, got os.system"):
            read_model(path, {**content, STATE: {"settings": spoiled}})
    with pytest.raises(ValueError, match="expected the settings of a run"):
        read_model(path, {**content, STATE: {}})
