"""The ImageNet recipe: its command, its messages, and timm's real train.py where there is one."""

import csv
import os
import shlex
import sys
from pathlib import Path

import commands
import pytest

pytest.importorskip("timm")
pytest.importorskip("sklearn")

FOLDER = Path(__file__).parents[2] / "examples" / "imagenet"
TRAIN = os.environ.get("CHONN_TIMM_TRAIN", "")


def train(*arguments, **environment):
    env = {"PYTHON": sys.executable, **environment}
    return commands.run("bash", FOLDER / "train.sh", *arguments, env=env, code=None)


def digits(folder, *options, code=0):
    script = FOLDER / "digits_folder.py"
    return commands.run(sys.executable, script, folder, *options, code=code)


@pytest.fixture
def places(tmp_path):
    """A stand-in for train.py and a data folder, with spaces in their names."""
    script = tmp_path / "my timm" / "train.py"
    script.parent.mkdir()
    script.write_text("import sys\nprint(*sys.argv[1:], sep='\\n')\n")
    data = tmp_path / "my data"
    data.mkdir()
    return script, data


RECIPE = (
    "--epochs 300 --warmup-epochs 20 --sched cosine --opt adamw --weight-decay 0.05 "
    "--lr-base-scale linear --drop-path 0.2 "
    "--img-size 224 --crop-pct 0.875 --interpolation bicubic --train-interpolation bicubic "
    "--lr-base 1e-3 --lr-base-size 1024 --clip-grad 5.0 --amp --amp-dtype bfloat16 "
    "--model-ema --model-ema-decay 0.9999 --color-jitter 0.4 --aa rand-m9-mstd0.5-inc1 "
    "--reprob 0.25 --remode pixel --mixup 0.8 --cutmix 1.0 --smoothing 0.1 "
    "--warmup-lr 5e-7 --min-lr 5e-6 --workers 8 --pin-mem"
)
TORCHRUN = "-m torch.distributed.run --standalone --nproc-per-node="


@pytest.mark.parametrize(
    ("environment", "extra", "launch", "model", "device", "batch"),
    [
        ({}, [], f"{TORCHRUN}8", "chonn_tiny", "cuda", "128"),
        ({}, ["chonn_base", "--seed", "1"], f"{TORCHRUN}8", "chonn_base", "cuda", "128"),
        ({"GPUS": "2", "BATCH": "64"}, [], f"{TORCHRUN}2", "chonn_tiny", "cuda", "64"),
        ({"GPUS": "0"}, ["--seed", "1"], "", "chonn_tiny", "cpu", "128"),
    ],
    ids=["paper", "base", "two-gpus", "cpu"],
)
def test_dry_run_prints_the_command(places, environment, extra, launch, model, device, batch):
    run = train(*places, *extra, DRY_RUN="1", **environment)
    assert run.returncode == 0, run.stderr
    options = [option for option in extra if option != model]
    assert shlex.split(run.stdout) == [
        *(sys.executable, *launch.split(), str(places[0])),
        *("--data-dir", str(places[1]), "--model", model, "--device", device),
        *("--batch-size", batch, *RECIPE.split(), *options),
    ]


def test_train_py_gets_the_arguments_whole(places):
    run = train(*places, "test_chonn", "--experiment", "two words", GPUS="0")
    if "pillow<13" in run.stderr:
        pytest.skip("this Pillow fails in timm's RandAugment")
    assert run.returncode == 0, run.stderr
    arguments = run.stdout.splitlines()
    assert arguments[:2] == ["--data-dir", str(places[1])]
    assert arguments[-2:] == ["--experiment", "two words"]


def test_a_pillow_that_fails_in_timm_is_refused_first(places, tmp_path):
    broken = tmp_path / "python"
    broken.write_text("#!/bin/sh\nexit 1\n")
    broken.chmod(0o755)
    run = train(*places, PYTHON=str(broken))
    assert run.returncode == 2
    assert run.stderr.endswith("fails here; if Pillow is 13: pip install 'pillow<13'\n")


@pytest.mark.parametrize(
    ("arguments", "environment", "message"),
    [
        (["only.py"], {}, "expected TRAIN_PY DATA [MODEL] [options], got 1 arguments"),
        (["absent.py", "{data}"], {}, "expected timm's train.py, found no file absent.py"),
        (["{script}", "absent"], {}, "DATA: expected a folder, found none at absent"),
        (["{script}", "{data}"], {"GPUS": "all"}, "GPUS: expected a number, got all"),
    ],
    ids=["arguments", "train.py", "data", "gpus"],
)
def test_wrong_use_says_what_was_expected(places, arguments, environment, message):
    script, data = places
    filled = [argument.format(script=script, data=data) for argument in arguments]
    run = train(*filled, **environment)
    assert run.returncode == 2
    assert message in run.stderr


def test_digits_become_an_image_folder(tmp_path):
    run = digits(tmp_path / "digits", "--per-class", "10")
    assert run.stdout.startswith("wrote 80 + 20 images")
    for split, count in (("train", 8), ("validation", 2)):
        folders = sorted((tmp_path / "digits" / split).iterdir())
        assert [folder.name for folder in folders] == [str(digit) for digit in range(10)]
        assert {len(list(folder.glob("*.png"))) for folder in folders} == {count}

    from PIL import Image

    zero = Image.open(tmp_path / "digits" / "train" / "0" / "001.png")
    assert zero.size == (32, 32)
    assert zero.getpixel((16, 16)) < 40 < 100 < zero.getpixel((9, 16))  # type: ignore[operator]

    again = digits(tmp_path / "digits", code=1)
    assert "choose another folder" in again.stderr
    few = digits(tmp_path / "few", "--per-class", "4", code=1)
    assert "expected at least 5, got 4" in few.stderr


@pytest.mark.host
@pytest.mark.skipif(not TRAIN, reason="CHONN_TIMM_TRAIN: no train.py of timm's repository")
@pytest.mark.parametrize("gpus", ["0", "1"], ids=["plain", "torchrun"])
def test_timms_train_py_runs_the_recipe_and_resumes(tmp_path, gpus):
    digits(tmp_path / "digits", "--per-class", "20")
    options = ["test_chonn", "--num-classes", "10", "--img-size", "32", "--workers", "0"]
    options += ["--warmup-epochs", "1", "--output", tmp_path / "out", "--experiment", "one"]
    options += ["--device", "cpu"]
    environment = {"GPUS": gpus, "BATCH": "32"}

    run = train(TRAIN, tmp_path / "digits", *options, "--epochs", "2", **environment)
    assert run.returncode == 0, run.stderr + run.stdout
    assert "criterion=SoftTargetCrossEntropy" in run.stderr + run.stdout
    last = tmp_path / "out" / "one" / "last.pth.tar"
    options += ["--resume", last]
    run = train(TRAIN, tmp_path / "digits", *options, "--epochs", "3", **environment)
    assert run.returncode == 0, run.stderr + run.stdout
    with (tmp_path / "out" / "one" / "summary.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if row["epoch"] != "epoch"]
    assert [row["epoch"] for row in rows] == ["0", "1", "2"]
    assert all(0 < float(row["train_loss"]) < 4 for row in rows)
