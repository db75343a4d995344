"""What `python -m build` makes, installed where nothing of this checkout is.

The environments have what this one has but our package: its packages are on their path through a
``.pth`` file, whose folder's own ``.pth`` files, an editable install's among them, are not read.
"""

import email
import os
import re
import shutil
import sys
import sysconfig
import tarfile
import venv
import zipfile
from pathlib import Path

import commands
import pytest

pytest.importorskip("build")
pytest.importorskip("hatchling")
posix = pytest.mark.skipif(os.name != "posix", reason="POSIX compilers and environments")
pytestmark = [pytest.mark.slow, posix]

ROOT = Path(__file__).parents[2]
NONE = "/nowhere/cc"
needs_compiler = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
COMPILED = pytest.mark.parametrize(
    "compiled", [pytest.param(True, marks=needs_compiler), False], ids=["compiler", "none"]
)


@pytest.fixture(autouse=True)
def no_checkout_on_the_path(monkeypatch):
    monkeypatch.delenv("PYTHONPATH", raising=False)


def run(*command, **options):
    done = commands.run(*command, **options)
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def tracked():
    listed = commands.run("git", "ls-files", cwd=ROOT, code=None)
    if listed.returncode:
        pytest.skip("needs the git checkout")
    return [name for name in listed.stdout.splitlines() if (ROOT / name).is_file()]


@pytest.fixture(scope="module")
def tree(tracked, tmp_path_factory):
    """The tracked files alone."""
    tree = tmp_path_factory.mktemp("tree")
    for name in tracked:
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tree / name)
    return tree


def distributions(source, target, compiler):
    """Paths of the sdist and of the wheel that is built from it."""
    command = (sys.executable, "-m", "build", "--no-isolation", "--outdir", target, source)
    run(*command, env={"CC": compiler}, cwd=target)
    (sdist,), (wheel,) = target.glob("*.tar.gz"), target.glob("*.whl")
    return sdist, wheel


@pytest.fixture(scope="module")
def build(tree, tmp_path_factory):
    """``build(compiler)``: sdist and wheel of chonn-ops."""
    made = {}

    def made_with(compiler):
        if compiler not in made:
            target = tmp_path_factory.mktemp("dist")
            made[compiler] = distributions(tree, target, compiler)
        return made[compiler]

    return made_with


@pytest.fixture(scope="module")
def lab(tree, tmp_path_factory):
    """Sdist and wheel of chonn-lab."""
    return distributions(tree / "lab", tmp_path_factory.mktemp("lab"), NONE)


class Environment:
    def __init__(self, folder):
        venv.create(folder, symlinks=True)
        self.python = folder / "bin" / "python"
        (site,) = folder.glob("lib/python*/site-packages")
        (site / "packages.pth").write_text(sysconfig.get_path("purelib"))

    def install(self, *arguments, compiler=NONE):
        # --ignore-installed: pip would take the package of the environment behind for its own.
        pip = (sys.executable, "-m", "pip", "--python", self.python, "install", "--no-deps")
        options = ("--quiet", "--ignore-installed", "--disable-pip-version-check")
        return run(*pip, *options, *arguments, env={"CC": compiler})

    def solves(self, backend, folder):
        script = shutil.copy(Path(__file__).with_name("solve.py"), folder)
        printed = run(self.python, "-I", script, backend, cwd=folder)
        assert printed.endswith(f"solved with {backend}\n")


@pytest.fixture
def environment(tmp_path):
    return Environment(tmp_path / "environment")


def packaged(tracked):
    """Paths in the wheel of chonn-ops: the package and the plugins, no laboratory and no tests."""
    plugins = (name.removeprefix("plugins/") for name in tracked if name.startswith("plugins/"))
    return {*plugins, *(name for name in tracked if name.startswith("chonn_ops/"))}


DISCOVERY = """
from hydra._internal.utils import create_config_search_path
from hydra.core.config_store import ConfigStore
path = create_config_search_path("file:///nowhere/pdebench/models/config").get_path()
print(*[e.path for e in path if e.provider in ("main", "chonn-ops")])
print(*ConfigStore.instance().load("hydra/config.yaml").node.callbacks)
"""


def files(distribution):
    """Paths in a wheel without its metadata, or in an sdist without its top folder."""
    if distribution.suffix == ".whl":
        names = zipfile.ZipFile(distribution).namelist()
        return {name for name in names if ".dist-info/" not in name}
    with tarfile.open(distribution) as archive:
        return {name.partition("/")[2] for name in archive.getnames()}


def metadata(wheel):
    archive = zipfile.ZipFile(wheel)
    (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
    return email.message_from_bytes(archive.read(name))


def test_files_of_sdist_and_wheel(build, tracked):
    sdist, wheel = build(NONE)
    ours = {n for n in tracked if not n.startswith((".ci/", ".github/", "lab/"))}
    assert files(sdist) == ours | {"PKG-INFO"}
    assert files(wheel) == packaged(tracked)
    assert wheel.name.endswith("-py3-none-any.whl")
    archive = zipfile.ZipFile(wheel)
    (name,) = (name for name in archive.namelist() if name.endswith("entry_points.txt"))
    points = archive.read(name).decode()
    for key in ("scripts", *['entry-points."torch.backends"', 'entry-points."pdebench.models"']):
        section = (ROOT / "pyproject.toml").read_text().partition(f"\n[project.{key}]\n")[2]
        for line in section.partition("\n\n")[0].splitlines():
            assert line.replace('"', "") in points


def test_files_of_the_lab(lab, tracked):
    sdist, wheel = lab
    folders = ("lab/chonn_lab/", "lab/hydra_plugins/")
    package = {n.removeprefix("lab/") for n in tracked if n.startswith(folders)}
    # Hatchling adds the file that says which others to leave out.
    assert files(sdist) - {".gitignore"} == package | {"PKG-INFO", "pyproject.toml"}
    assert files(wheel) == package
    assert wheel.name.endswith("-py3-none-any.whl")


def test_metadata(build, lab):
    """What installs need, and one version and one author in all places that say them."""
    product, laboratory = (metadata(wheel) for _, wheel in (build(NONE), lab))
    needed = [x for x in product.get_all("Requires-Dist") if "extra ==" not in x]
    assert sorted(re.split("[^a-z]", x)[0] for x in needed) == ["numpy", "torch"]
    assert "chonn-ops" in laboratory.get_all("Requires-Dist")
    citation = (ROOT / "CITATION.cff").read_text()
    for package in (product, laboratory):
        assert f"\nversion: {package['Version']}\n" in citation
        assert f'- name: "{package["Author"]}"' in citation


@COMPILED
def test_wheel(build, environment, tmp_path, compiled, quick_compiler):
    _, wheel = build(quick_compiler if compiled else NONE)
    environment.install("--no-index", wheel)
    environment.solves("cpu" if compiled else "torch", tmp_path)


@needs_compiler
def test_wheel_with_a_kernel_is_of_this_platform(build, tracked, quick_compiler):
    _, wheel = build(quick_compiler)
    assert "-py3-none-any" not in wheel.name
    assert files(wheel) - packaged(tracked) == {"chonn_ops/_kernel.so"}


@COMPILED
def test_sdist_without_build_isolation(build, environment, tmp_path, compiled, quick_compiler):
    sdist, _ = build(NONE)
    compiler = quick_compiler if compiled else NONE
    environment.install("--no-index", "--no-build-isolation", sdist, compiler=compiler)
    environment.solves("cpu" if compiled else "torch", tmp_path)


def test_sdist_with_build_isolation(build, environment, tmp_path):
    """The build's requirements are complete; they come from the package index."""
    sdist, _ = build(NONE)
    try:
        environment.install(sdist)
    except AssertionError as error:
        if "Could not find a version that satisfies the requirement" in str(error):
            pytest.skip("no package index")
        raise
    environment.solves("torch", tmp_path)


def test_programs_and_hosts(build, environment, tmp_path):
    """Console scripts, and what hosts find by entry points."""
    _, wheel = build(NONE)
    environment.install("--no-index", wheel)
    bin = environment.python.parent
    told = run(bin / "chonn", "info", cwd=tmp_path)
    assert "C kernel: not built" in told
    assert "after `import torch`: yes" in told
    assert (bin / "chonn-pdebench").exists()
    pytest.importorskip("hydra")
    configs = next(bin.parent.glob("lib/python*/site-packages/chonn_plugins/pdebench/config"))
    found = run(environment.python, "-I", "-c", DISCOVERY, cwd=tmp_path).splitlines()[-2:]
    assert found[0].split() == [f"file://{configs / 'base'}"]
    assert found[1] == "chonn_pdebench"
    pytest.importorskip("timm")
    hosts = "import torch, timm; print(timm.create_model('test_chonn').default_cfg['input_size'])"
    assert run(environment.python, "-I", "-c", hosts, cwd=tmp_path).startswith("(3, ")


def test_the_lab_beside(build, lab, environment, tmp_path):
    _, wheel = build(NONE)
    environment.install("--no-index", wheel, lab[1])
    told = run(environment.python.parent / "chonn-lab", "--help", cwd=tmp_path)
    assert "search" in told
