"""Where the Hydra plugin acts, where it does not, and what it supplies."""

import sys
from pathlib import Path

import pytest
from commands import run
from hydra import compose, initialize_config_dir
from hydra._internal.utils import create_config_search_path
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra

from chonn_plugins.pdebench import CONFIG_DIR, preflight
from conftest import write_dist_info

BROKEN = "initial_step: 10\nt_train: 2\n"


@pytest.fixture(autouse=True)
def path(installed, monkeypatch):
    """Hydra walks `sys.path` once a process: the plugin is called directly here."""
    from hydra.core.plugins import Plugins
    from hydra.plugins.search_path_plugin import SearchPathPlugin
    from hydra_plugins.chonn.pdebench_search_path import PDEBenchSearchPath

    discover = Plugins.discover

    def with_ours(self, plugin_type=None):
        found = discover(self, plugin_type)
        if plugin_type is SearchPathPlugin:
            found = [p for p in found if p.__name__ != "PDEBenchSearchPath"]
            return [*found, PDEBenchSearchPath]
        return found

    monkeypatch.setattr(Plugins, "discover", with_ours)
    yield installed
    create_config_search_path("file:///elsewhere/config")


def search_path(main: str) -> list[tuple[str, str]]:
    elements = create_config_search_path(main).get_path()
    return [(e.provider, e.path) for e in elements if e.provider in ("main", "chonn-ops")]


def callbacks() -> list[str]:
    return list(ConfigStore.instance().load("hydra/config.yaml").node.callbacks)


BASE = f"file://{CONFIG_DIR / 'base'}"


def test_acts_in_pdebench_only(tmp_path, monkeypatch):
    with_configs = tmp_path / "pdebench" / "models" / "config"
    with_configs.mkdir(parents=True)
    ours = [("chonn-ops", BASE)]
    main = ("main", f"file://{with_configs}")
    assert search_path(main[1]) == [main, *ours]
    assert callbacks() == ["chonn_pdebench"]
    elsewhere = ("main", "file:///home/somebody/config")
    assert search_path(elsewhere[1]) == [elsewhere]

    monkeypatch.setenv("CHONN_PDEBENCH", "0")
    assert search_path(main[1]) == [main]
    monkeypatch.setenv("CHONN_PDEBENCH", "always")
    assert search_path(str(tmp_path)) == [("main", str(tmp_path)), *ours]


def test_packages_with_and_without_configs(tmp_path, monkeypatch):
    """0.1.0 was packed without its config folder, Hydra insists on one; the git version has it."""
    monkeypatch.syspath_prepend(str(tmp_path))
    for vendor in ("bare", "whole"):
        models = tmp_path / vendor / "pdebench" / "models"
        models.mkdir(parents=True)
        for package in (models, models.parent, models.parent.parent):
            (package / "__init__.py").touch()
    bare, whole = (f"pkg://{vendor}.pdebench.models/config" for vendor in ("bare", "whole"))
    (models / "config").mkdir()
    assert search_path(bare) == [("main", BASE)]
    assert callbacks() == ["chonn_pdebench"]
    assert search_path(whole) == [("main", whole), ("chonn-ops", BASE)]
    assert callbacks() == ["chonn_pdebench"]


@pytest.mark.parametrize("problem", sorted((CONFIG_DIR / "base" / "args").glob("*.yaml")))
@pytest.mark.parametrize("main", ["config", "config_darcy", "config_rdb"])
def test_configs_compose(main, problem):
    GlobalHydra.instance().clear()
    with initialize_config_dir(str(CONFIG_DIR / "base"), version_base="1.2"):
        args = compose(main, overrides=[f"+args={problem.name}"]).args
    assert args.model_name in ("FNO", "Unet", "PINN")
    if args.model_name != "PINN":
        assert set(preflight.NEEDED) <= set(args)
        # Time series are rolled out, whatever problem the runner's default config is of.
        assert args.initial_step == 1 or args.training_type == "autoregressive"


def test_unrelated_applications_pay_nothing(tmp_path, environment):
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "config.yaml").write_text("a: 1\n")
    (tmp_path / "app.py").write_text(
        "import sys\n"
        "import hydra\n"
        "from hydra.core.hydra_config import HydraConfig\n"
        "from hydra.core.plugins import Plugins\n"
        "@hydra.main(config_path='conf', config_name='config', version_base='1.2')\n"
        "def main(cfg):\n"
        "    heavy = {'torch', 'numpy', 'h5py', 'chonn_ops', 'chonn_plugins'} & set(sys.modules)\n"
        "    times = Plugins.instance().get_stats().modules_import_time\n"
        "    ours = {k: v for k, v in times.items() if k.split('.')[1] == 'chonn'}\n"
        "    print(sorted(heavy), dict(HydraConfig.get().callbacks), len(ours),\n"
        "          sum(ours.values()) < 0.05)\n"
        "main()\n"
    )
    env = {**environment(), "CHONN_PDEBENCH": None}
    done = run(sys.executable, "app.py", "hydra.run.dir=.", cwd=tmp_path, env=env)
    assert done.stdout.strip() == "[] {} 2 True"


@pytest.mark.host
def test_off_switch(tmp_path, pdebench, environment):
    off = environment(CHONN_PDEBENCH="0")
    printed = pdebench(tmp_path, "darcy", fails=True, env=off, model_name="FNO")
    assert "Primary config directory not found" in printed
    assert "chonn" not in printed.replace(str(tmp_path), "")


@pytest.mark.host
def test_errors_end_the_program(tmp_path, pdebench):
    printed = pdebench(tmp_path, "darcy", fails=True, model_name="chon_unet")
    last = printed.strip().splitlines()[-1]
    assert last.startswith("chonn-ops: args.model_name: expected one of FNO, Unet, PINN, chonn_fno")
    assert "did you mean chonn_unet?" in last
    assert "Traceback" not in printed
    printed = pdebench(tmp_path, "darcy", fails=True, model_name="chonn_unet", order=3)
    assert printed.strip().splitlines()[-1].endswith("did you mean ++args.ckb.order?")
    printed = pdebench(tmp_path, "darcy", fails=True, model_name="chonn_unet", ckb__ordr=2)
    assert "unknown option ordr for chonn_unet. Known options: boundary, inner" in printed
    assert not list(tmp_path.glob("*.pt"))


THEIR_MODEL = """
import torch
from chonn_plugins.pdebench import HostModel

class Shift(torch.nn.Module):
    def __init__(self, channels, depth):
        super().__init__()
        self.channels, self.shift = channels, torch.nn.Parameter(torch.zeros(depth))

    def forward(self, x, grid):
        return (x[..., -self.channels :] + self.shift.sum()).unsqueeze(-2)

def build(ndim, host, options):
    assert ndim == 1 and host["modes"] == 4, host
    return Shift(host["num_channels"], options.get("depth", 1))

model = HostModel(family="fno", build=build, options_key="my", defaults={"depth": 1})
"""


@pytest.mark.host
def test_their_model_through_our_runner_and_a_renamed_copy(tmp_path, pdebench, environment):
    """``chonn-pdebench`` runs a copy of the runner whose folder Hydra's plugin cannot know."""
    spec = Path(pytest.importorskip("pdebench").__file__).parent / "models"
    copied = tmp_path / "vendor" / "runner.py"
    copied.parent.mkdir()
    copied.write_bytes((spec / "train_models_forward.py").read_bytes())
    write_dist_info(tmp_path / "site", "their-package", ["shift = their_module:model"])
    (tmp_path / "site" / "their_module.py").write_text(THEIR_MODEL)
    program = ("-m", "chonn_plugins.pdebench.runner", str(copied))
    job = {"env": environment(tmp_path / "site"), "program": program}
    job |= {"model_name": "shift", "my__depth": 2}
    printed = pdebench(tmp_path, "1d", **job)
    assert "training shift (depth 2) through PDEBench 0.1.0" in printed
    assert (tmp_path / "1D_Advection_shift-depth2.pt").is_file()
    job["program"] = job["program"][:2]
    pdebench(tmp_path, "1d", if_training=False, **job)
    assert (tmp_path / "1D_Advection_shift-depth2_metrics.json").is_file()


def test_runner_messages(tmp_path, pdebench):
    program = ("-m", "chonn_plugins.pdebench.runner", "nowhere.py")
    printed = pdebench(tmp_path, "darcy", fails=True, program=program)
    assert f"runner not found: {tmp_path / 'nowhere.py'}" in printed
