"""The wheel holds the plugin, and Hydra finds it there without the repository."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import zipfile
from importlib.util import find_spec
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]

DISCOVERY = """
import sys
sys.path[:] = [p for p in sys.path if "site-packages" not in p] + sys.argv[1:]
import chonn_plugins
from hydra._internal.utils import create_config_search_path
from hydra.core.config_store import ConfigStore
path = create_config_search_path("file:///nowhere/pdebench/models/config").get_path()
print(chonn_plugins.__file__)
print(*[e.path for e in path if e.provider in ("main", "chonn-ops")])
print(list(ConfigStore.instance().load("hydra/config.yaml").node.callbacks))
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory, quick_compiler):
    """Built from the tracked files only, so that nothing is written into the repository."""
    listed = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if listed.returncode:
        pytest.skip("needs the git checkout")
    tree = tmp_path_factory.mktemp("tree")
    for name in listed.stdout.splitlines():
        if (ROOT / name).is_file():
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            (tree / name).write_bytes((ROOT / name).read_bytes())
    target = tmp_path_factory.mktemp("wheel")
    # With the build backend at hand nothing is downloaded.
    offline = ["--no-build-isolation"] if find_spec("hatchling") else []
    pip = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--quiet", *offline]
    done = subprocess.run(
        [*pip, "--wheel-dir", str(target), str(tree)],
        env=os.environ | {"CC": quick_compiler},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode and not offline and "hatchling" in done.stderr:
        pytest.skip("the build backend is neither installed nor to be downloaded")
    assert done.returncode == 0, done.stderr
    return next(target.glob("*.whl"))


def test_contents(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    plugin = "chonn_plugins/pdebench"
    for expected in (
        "hydra_plugins/chonn/__init__.py",
        "hydra_plugins/chonn/pdebench_search_path.py",
        f"{plugin}/callback.py",
        f"{plugin}/config/base/config_darcy.yaml",
        f"{plugin}/config/base/args/config_rdb.yaml",
        f"{plugin}/config/base/args/config_Darcy.yaml",
        f"{plugin}/config/LICENSE-PDEBench.txt",
        "chonn_ops/__init__.py",
    ):
        assert expected in names
    assert "hydra_plugins/__init__.py" not in names
    top = {name.split("/")[0] for name in names}
    assert {t for t in top if "." not in t} == {"chonn_ops", "chonn_plugins", "hydra_plugins"}
    (entry_points,) = [n for n in names if n.endswith("entry_points.txt")]
    text = zipfile.ZipFile(wheel).read(entry_points).decode()
    for model in ("chonn_unet", "chonn_fno", "chonn_network"):
        assert f"{model} = chonn_plugins.pdebench.models:{model}" in text
    assert "chonn-pdebench = chonn_plugins.pdebench.runner:main" in text


def test_discovery_from_the_wheel_alone(wheel, tmp_path):
    site = tmp_path / "site"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    # -S leaves out .pth files, and with them an editable install of this repository.
    packages = sysconfig.get_path("purelib")
    done = subprocess.run(
        [sys.executable, "-S", "-c", DISCOVERY, packages, str(site)],
        cwd=tmp_path,
        env={k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "CHONN_PDEBENCH")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    where, paths, callbacks = done.stdout.splitlines()
    assert where.startswith(str(site))
    configs = site / "chonn_plugins" / "pdebench" / "config"
    assert paths.split() == [f"file://{configs / 'base'}"]
    assert callbacks == "['chonn_pdebench']"
