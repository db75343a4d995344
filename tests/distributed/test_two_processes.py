"""Two processes do what one does, for every model, in `DistributedDataParallel` and in FSDP2."""

import json
import os
import sys
from pathlib import Path

import pytest
from commands import run
from two_processes import KINDS, MODELS

REPO = Path(__file__).parents[2]

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """All of them from one start of two processes."""
    path = tmp_path_factory.mktemp("results") / "results.json"
    script = str(Path(__file__).with_name("two_processes.py"))
    launch = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2", script]
    paths = os.pathsep.join([str(REPO), str(REPO / "plugins")])
    env = {"OMP_NUM_THREADS": "1", "PYTHONPATH": paths}
    run(sys.executable, *launch, path, env=env, timeout=900)
    return json.loads(path.read_text())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", MODELS)
def test_two_processes_do_what_one_does(results, name, kind):
    found = results[f"{name}: {kind}"]
    if "skipped" in found:
        pytest.skip(found["skipped"])
    assert "error" not in found, found["error"]
    # Gradients of all parameters, and where four steps of the optimiser lead.
    assert found["gradients"] < 1e-5
    assert found["trained"] < 1e-6
    # State dicts load both ways; a training that stops and resumes ends where it would have.
    assert found["state"] == 0
    assert found["resumed"] < 1e-7


def test_neuraloperators_trainer(results):
    found = results["Trainer"]
    if "skipped" in found:
        pytest.skip(found["skipped"])
    assert found["parameters"] < 1e-6
    assert found["error"] < 1e-6
