"""Problems on meshes: what is told the equation, batches over several meshes, gradients."""

import pytest
import torch
from running import model, problem

from chonn_lab.problems import meshes

CONTROLS = ("own_scheme", "node_scheme")


@pytest.mark.parametrize("mesh", meshes.PROBLEMS)
def test_samples_are_scored_on_their_own_mesh(tmp_path, mesh, assert_learns):
    found = problem("problem=meshes", f"problem.mesh={mesh}")
    found.prepare(tmp_path)
    data = found.load(tmp_path)
    assert list(data.tests) == ["test", "test_fine"]
    told, nodes = (found.evaluate(model(found, kind), data)["metrics"] for kind in CONTROLS)
    assert told["test"]["relative_l1"] < 1e-6
    assert 1e-3 < nodes["test_fine"]["relative_l1"] < nodes["test"]["relative_l1"] < 0.2
    network = model(found, "chonn_network", f"problem.mesh={mesh}")
    torch.nn.init.normal_(network.model.head.faces.output.weight)  # starts at 0
    which = torch.arange(4)
    errors = found.errors(network, data.train[which])
    assert len({on.volumes for on in found.chosen(data.train[which])}) == (
        4 if mesh == "domains" else 1
    )
    alone = [found.errors(network, data.train[one]) for one in which.split(1)]
    torch.testing.assert_close(errors, torch.cat(alone), rtol=1e-4, atol=1e-6)
    errors.mean().backward()
    assert_learns(network)
