"""The animation of a rollout, of models trained for a moment."""
# ruff: noqa: E402 - skipped before the imports where the extra is missing

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("h5py")
pytest.importorskip("lightning")
Image = pytest.importorskip("PIL.Image")

from chonn_ops import cli

SCRIPT = Path(__file__).parents[2] / "examples" / "rollout_animation.py"
VARIANTS = "fno-increment-10,rollout-10"


def animate(*arguments):
    command = [sys.executable, str(SCRIPT), "--scale", "smoke", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_truth_and_both_models_in_every_frame(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    missing = animate("rollout.gif")
    assert missing.returncode == 1
    assert "no such file" in missing.stderr
    command = ["run", "navier_stokes", "--scale", "smoke", "--variants", VARIANTS, "--jobs", "1"]
    assert cli.main(command) == 0
    done = animate("rollout.gif")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("wrote rollout.gif: 0.")
    with Image.open("rollout.gif") as animation:
        assert animation.n_frames == 4
        assert animation.size == (3 * 192, 224)
    before = Path("rollout.gif").read_bytes()
    assert animate("rollout.gif").returncode == 1
    assert Path("rollout.gif").read_bytes() == before
    untrained = animate("other.gif", "--variants", "chonn-10")
    assert "no trained chonn-10 in" in untrained.stderr
    assert animate("rollout.mp4").returncode == 1
    assert [path.name for path in Path().glob("*.*")] == ["rollout.gif"]
