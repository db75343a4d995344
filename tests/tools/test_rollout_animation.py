"""The animation of a rollout, of models trained for a moment."""
# ruff: noqa: E402 - skipped before the imports where the extra is missing

import importlib.util
from pathlib import Path

import pytest

pytest.importorskip("h5py")
pytest.importorskip("filelock")
Image = pytest.importorskip("PIL.Image")

from chonn_ops import cli

SCRIPT = Path(__file__).parents[2] / "tools" / "rollout_animation.py"
VARIANTS = "fno-increment-10,rollout-10"


@pytest.fixture
def animate():
    spec = importlib.util.spec_from_file_location("rollout_animation", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return lambda *arguments: module.main(["--scale", "smoke", *arguments])


def test_truth_and_both_models_in_every_frame(tmp_path, monkeypatch, capsys, animate):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(FileNotFoundError, match="no such file"):
        animate("rollout.gif")
    command = ["run", "navier_stokes", "--scale", "smoke", "--variants", VARIANTS, "--jobs", "1"]
    assert cli.main(command) == 0
    capsys.readouterr()
    animate("rollout.gif")
    assert capsys.readouterr().out.startswith("wrote rollout.gif: 0.")
    with Image.open("rollout.gif") as animation:
        assert animation.n_frames == 4
        assert animation.size == (3 * 192, 224)
    before = Path("rollout.gif").read_bytes()
    with pytest.raises(FileExistsError, match="output file exists"):
        animate("rollout.gif")
    assert Path("rollout.gif").read_bytes() == before
    for arguments, message in (
        (("other.gif", "--variants", "chonn-10"), "no trained chonn-10 in"),
        (("other.gif", "--seed", "7"), "no trained fno-increment-10 in .*seed7"),
        (("other.gif", "--sample", "2"), "sample: expected 0 to 1, got 2"),
        (("rollout.mp4",), "output: expected a name that ends in .gif"),
    ):
        with pytest.raises(SystemExit, match=message):
            animate(*arguments)
    monkeypatch.syspath_prepend(SCRIPT.parent)
    with pytest.raises(FileNotFoundError, match=r"no such file.*navier_stokes_rollouts"):
        animate("other.gif", "--experiment", "rollout_ablations:NAVIER_STOKES", "--variants", "fno")
    assert [path.name for path in Path().glob("*.*")] == ["rollout.gif"]
