"""timm's own tests of its models, from its source distribution, on ours.

They run in a process that imports timm and nothing of this package: the models are there because
`import torch` arms the integrations.
"""

import sys
import tarfile
from importlib.metadata import version
from xml.etree import ElementTree

import commands
import pytest

pytest.importorskip("timm")
pytestmark = pytest.mark.host

MODELS = ("chonn_tiny", "chonn_small", "chonn_base", "test_chonn")
# Change which tests run, or what runs at all.
UNWANTED = dict.fromkeys(
    ("GITHUB_ACTIONS", "CHONN_AUTOLOAD", "TORCH_DEVICE_BACKEND_AUTOLOAD", "PYTHONPATH")
)


@pytest.fixture(scope="module")
def timm_tests(tmp_path_factory):
    """Folder with the tests of the installed release."""
    folder = tmp_path_factory.mktemp("timm")
    release = f"timm-{version('timm')}"
    wanted = ["--no-deps", "--no-binary", ":all:", release.replace("-", "==")]
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--dest", str(folder), *wanted]
    download = commands.run(*command, code=None)
    if download.returncode:
        pytest.skip(f"pip cannot download {release}: {download.stderr.strip()[-200:]}")
    with tarfile.open(folder / f"{release}.tar.gz") as archive:
        names = ("/tests/", "/pyproject.toml")  # not the package: it would hide the installed one
        members = [m for m in archive if m.name.startswith(tuple(release + n for n in names))]
        archive.extractall(folder, members=members, filter="data")
    return folder / release


def run(folder, selection):
    """Names of the tests that ran and passed; all others fail the test."""
    report = folder / "report.xml"
    command = [sys.executable, "-m", "pytest", "tests/test_models.py", "-k", selection]
    options = ["-q", "-W", "ignore", "-p", "no:cacheprovider", f"--junitxml={report}"]
    commands.run(*command, *options, cwd=folder, env=UNWANTED)
    cases = list(ElementTree.parse(report).getroot().iter("testcase"))
    assert not [case.get("name") for case in cases if len(case)], "skipped"
    return [case.get("name") for case in cases]


@pytest.mark.slow
def test_unmodified(timm_tests):
    # PyTorch has deprecated TorchScript for torch.export, which test_every_model covers.
    names = run(timm_tests, "chonn and not torchscript")
    for model in MODELS:
        assert sum(name.endswith((f"-{model}]", f"[{model}]")) for name in names) == 6, model
    assert len(names) == 6 * len(MODELS)


@pytest.mark.slow
def test_among_the_models_with_intermediate_features(timm_tests):
    path = timm_tests / "tests" / "test_models.py"
    text = path.read_text()
    changed = text.replace("FEAT_INTER_FILTERS = [\n", "FEAT_INTER_FILTERS = [\n    'chonn',\n")
    assert changed != text
    path.write_text(changed)
    names = run(timm_tests, "intermediate and (test_chonn or chonn_tiny)")
    tests = "test_model_forward_intermediates[1-", "test_model_forward_intermediates_features[1-"
    tests += ("test_prune_intermediate_layers_contract[",)
    expected = [f"{test}{x}]" for test in tests for x in ("chonn_tiny", "test_chonn")]
    assert sorted(names) == sorted(expected)


def test_our_module_may_be_imported_before_timm():
    probe = "import torch, chonn_ops.models.chonn, timm; "
    done = commands.python(probe + "print(*timm.list_models('chonn_*', module=''))")
    assert done.stdout.split() == ["chonn_base", "chonn_small", "chonn_tiny"], done.stderr
    assert "disabled" not in done.stderr
