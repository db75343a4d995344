"""Every shell command of the pages about hosts runs word by word, on tiny files and for one epoch.

The files have the names that the pages write: the folder ``DIR`` holds ``FILE.hdf5``. What needs
several machines or GPUs is parsed, by bash and by torchrun itself.
"""

import os
import re
import shlex
import sys
from importlib.metadata import metadata, version
from pathlib import Path

import numpy as np
import pytest
import torch
from commands import run

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "docs" / "hosts.md", ROOT / "docs" / "many_gpus.md"]
LINE = re.compile(r"^(?:python|torchrun|pip) .*$", re.MULTILINE)
FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
SPAN = re.compile(r"`((?:python|torchrun|pip) [^`\n]+)`")
RUNNER = "-m pdebench.models.train_models_forward"
SMALL = "++args.epochs=1 ++args.batch_size=16 ++args.num_workers=0 ++args.reduced_resolution=1"
SMALL += " ++args.reduced_resolution_t=1 ++args.modes=4 ++args.width=6"
REST = {
    "": "++args.data_path=DIR/ ++args.filename=FILE.hdf5",
    "config_Adv": "++args.data_path=DIR/ ++args.filename=ADVECTION.hdf5 ++args.initial_step=2"
    " ++args.t_train=3",
    "...": "+args=config_Darcy.yaml ++args.model_name=chonn_network ++args.data_path=DIR/"
    " ++args.filename=FILE.hdf5",
    "++args.filename=": "",
}
# Other tests run these.
FINE_TUNING = (
    "python -m pdebench.models.train_models_forward +args=config_Darcy.yaml"
    " ++args.model_name=chonn_network ++args.data_path=DIR/ ++args.filename=FILE.hdf5"
    " ++args.continue_training=True"
)
ELSEWHERE = {
    FINE_TUNING: "tests/pdebench/test_pdebench_fine_tuning.py",
    "python examples/neuralop_darcy.py --data folder": "tests/examples/test_examples.py",
    "python -m torch.distributed.run --nproc_per_node=2 tests/distributed/two_processes.py": (
        "tests/distributed/test_two_processes.py"
    ),
}


def blocks(language: str) -> list[str]:
    """All blocks of the pages in a language; those of commands have none."""
    return [b for p in PAGES for found, b in FENCE.findall(p.read_text()) if found == language]


def commands() -> list[str]:
    """All lines of blocks that start a program, without scripts, and all inline commands."""
    lines = [c for b in blocks("") if not b.startswith("#!") for c in LINE.findall(b)]
    spans = [span for page in PAGES for span in SPAN.findall(page.read_text())]
    return list(dict.fromkeys(lines + spans))


RUNS = [c for c in commands() if RUNNER in c and "--nnodes" not in c and c not in ELSEWHERE]
INSTALLS = [c for c in commands() if c.startswith("pip ")]
WELL = [c for c in commands() if c.startswith("python the_well/benchmark/train.py ")]
PARSED = [c for c in commands() if c.startswith("torchrun ") and c not in RUNS]


def test_every_command_is_here():
    assert sorted([*RUNS, *INSTALLS, *WELL, *PARSED, *ELSEWHERE]) == sorted(commands())
    assert len(RUNS) == 4


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    h5py = pytest.importorskip("h5py")
    pytest.importorskip("pdebench")
    folder = tmp_path_factory.mktemp("data")
    rng = np.random.default_rng(0)
    points = (np.arange(16, dtype="f4") + 0.5) / 16
    with h5py.File(folder / "FILE.hdf5", "w") as file:
        file["tensor"] = 1 + rng.random((20, 1, 16, 16), "f4")
        file["nu"] = 1 + rng.random((20, 16, 16), "f4")
        file["x-coordinate"] = file["y-coordinate"] = points
    with h5py.File(folder / "ADVECTION.hdf5", "w") as file:
        file["tensor"] = 1 + rng.random((20, 5, 16), "f4")
        file["x-coordinate"] = points
        file["t-coordinate"] = np.linspace(0, 1, 6, dtype="f4")
    return folder


@pytest.mark.slow
@pytest.mark.host
@pytest.mark.parametrize("command", RUNS)
def test_it_runs(tmp_path, data, command):
    (tmp_path / "DIR").symlink_to(data)
    rest = next(words for key, words in reversed(REST.items()) if key in command)
    whole = f"{command.removesuffix(' ...')} {rest} {SMALL}"
    programs = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    tree = os.pathsep.join([str(ROOT), str(ROOT / "plugins")])
    env = {"PATH": programs, "PYTHONPATH": tree, "OMP_NUM_THREADS": "1"}
    done = run("bash", "-c", whole, cwd=tmp_path, env=env, timeout=600)
    assert len(re.findall(r"testL2: [\d.e-]+", done.stdout + done.stderr)) == 1


@pytest.mark.parametrize("command", INSTALLS)
def test_what_is_installed_exists(command):
    target = shlex.split(command)[-1]
    if target.startswith("."):
        assert target[2:-1] in metadata("chonn-ops").get_all("Provides-Extra")
    else:
        pytest.importorskip("pdebench")
        assert target == f"pdebench=={version('pdebench')}"


@pytest.mark.parametrize("command", PARSED)
def test_what_needs_more_machines_or_gpus_is_parsed(command):
    """SLURM's line stands in a script; `train.py` on several processes needs GPUs."""
    from torch.distributed.run import parse_args

    words = shlex.split(command.removesuffix(" ..."))
    assert parse_args([*words[1:], "train.py"]).nproc_per_node == "4"


@pytest.mark.parametrize("command", WELL)
def test_what_needs_a_clone_of_the_well_is_parsed(command):
    """By Hydra. tests/the_well trains with The Well's own Trainer."""
    parser = pytest.importorskip("hydra.core.override_parser.overrides_parser").OverridesParser
    words = [word for word in shlex.split(command)[2:] if word != "..."]
    keys = [override.key_or_group for override in parser.create().parse_overrides(words)]
    assert "model._target_" in keys


def test_slurms_script_is_parsed():
    [script] = [block for block in blocks("") if block.startswith("#!/bin/bash\n")]
    assert run("bash", "-n", input=script).stderr == ""
    launch = script.splitlines()[-1].removesuffix(" ...").replace('"', "")
    assert launch.startswith("srun torchrun ")
    launch = launch.replace("$SLURM_NNODES", "2")
    test_what_needs_more_machines_or_gpus_is_parsed(launch.removeprefix("srun "))


def test_the_configuration_of_neuraloperator_makes_the_model():
    pytest.importorskip("neuralop")
    from neuralop.models import get_model
    from omegaconf import OmegaConf
    from zencfg.bunch import Bunch

    from chonn_plugins.neuralop import CHONNNetwork

    [text] = blocks("yaml")
    config = OmegaConf.to_container(OmegaConf.create(text))
    config = {"model": Bunch(config["model"]), "patching": Bunch({"levels": 0})}
    model = get_model(Bunch(config))
    assert type(model) is CHONNNetwork
    assert model(torch.rand(1, 1, 8, 8)).shape == (1, 1, 8, 8)


def test_models_of_timm_in_the_text():
    timm = pytest.importorskip("timm")
    calls = re.findall(r"`((?:timm\.)?create_model\([^`]*\))`", PAGES[0].read_text())
    assert len(calls) == 2
    with torch.device("meta"):
        for call in calls:
            eval(call, {"timm": timm, "create_model": timm.create_model})
