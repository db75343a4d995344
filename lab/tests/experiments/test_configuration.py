"""What Hydra composes: every problem at every scale, the paper's settings, names of folders."""

from pathlib import Path

import hydra
import pytest
import yaml
from running import smoke

from chonn_lab import cli
from chonn_lab.conf import __file__ as conf
from chonn_lab.experiments import EXPERIMENTS
from chonn_lab.experiments.configuration import CONF as CONFIGURATION
from chonn_lab.experiments.configuration import build_problem, compose, flat, resolved
from chonn_lab.report.runs import ROLES

CONF = Path(conf).parent
SCALES = ("smoke", "small", "paper", "night")
MODELS = sorted(path.stem for path in (CONF / "model").glob("*.yaml"))


def settings(*overrides):
    return flat(resolved(compose(overrides)))


@pytest.mark.parametrize("problem", EXPERIMENTS)
def test_every_problem_at_every_scale(problem):
    sizes = []
    for scale in SCALES:
        found = resolved(compose([f"problem={problem}", f"scale={scale}"]))
        built = build_problem(found)
        assert built.name == problem
        assert found["train"]["batch_size"] <= built.n_train
        sizes.append(built.n_samples)
    assert sizes[0] < sizes[1] < sizes[2] == sizes[3]


@pytest.mark.parametrize("model", MODELS)
def test_every_model_says_what_it_is(model):
    problem = "order1d" if model.startswith("ckb") else "darcy"
    for scale in SCALES:
        found = resolved(compose([f"model={model}", f"scale={scale}", f"problem={problem}"]))
        found = found["model"]
        assert found["_target_"].startswith("chonn_lab.experiments.")
        assert found["name"]
        assert found["label"]
        # A role that is misspelt would leave a model out of every table, silently.
        assert found["tags"]["family"]
        assert "target" in found["tags"] or found["tags"]["role"] in ROLES


def test_every_problem_is_listed_and_tuned_settings_are_of_one_a_model_and_a_scale():
    assert {path.stem for path in (CONF / "problem").glob("*")} == {"base", *EXPERIMENTS}
    names = sorted(path.name for path in (CONF / "tuned").iterdir())
    known = {f"{p}_{m}_{s}.yaml" for p in EXPERIMENTS for m in MODELS for s in SCALES}
    assert set(names) <= known
    assert settings("problem=poisson", "model=unet")["epochs"] == 27
    assert settings("problem=darcy", "model=unet")["epochs"] == 40
    assert settings("problem=poisson", "model=unet", "scale=paper")["epochs"] == 1000
    assert settings("problem=poisson", "model=unet", "train.epochs=3")["epochs"] == 3
    night = settings("problem=fno_darcy", "model=unet", "scale=night", "train.seconds=60")
    assert (night["epochs"], night["seconds"], night["features"]) == (None, 60, 3)
    assert (night["n_train"], night["resolution"]) == (1000, 85)
    for name in names:
        found = yaml.safe_load((CONF / "tuned" / name).read_text())
        assert set(found) <= {"model", "train", "problem"}


@pytest.mark.parametrize("setting", ["train.epochs", "model.width", "problem.n_train"])
def test_a_setting_in_the_wrong_place_is_refused(setting):
    name = setting.rpartition(".")[2]
    with pytest.raises(ValueError, match=rf"^{name}: expected it in its part, {setting}=3$"):
        resolved(compose([f"+{name}=3"]))


@pytest.mark.parametrize(
    ("problem", "setting", "message"),
    [
        ("darcy", "error=l3", "error: expected one of .*relative_l2.*, got 'l3'"),
        ("upscaling", "test_resolutions=[128]", "test_resolutions: expected none"),
        ("navier_stokes", "history=11", "history: expected at most 10, got 11"),
        ("navier_stokes", "unroll=5", "unroll: expected at most 4, got 5"),
        ("shallow_water", "stride=0", "stride: expected an integer of at least 1, got 0"),
        ("shallow_water", "history=3", "history: expected at most 2, got 3"),
        ("order1d", "target=5", r"target: expected one of \(1, 2, 3, 4\), got 5"),
    ],
)
def test_settings_that_a_problem_refuses(problem, setting, message):
    with pytest.raises(ValueError, match=message):
        smoke(problem, setting)


@pytest.mark.usefixtures("hydra_here")
def test_a_paper_scale_configuration_is_printed_and_nothing_written(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    settings = ["problem=darcy", "model=chonn_unet", "scale=paper", "model.order=3"]
    assert cli.main(["run", *settings, "--cfg", "job"]) == 0
    found = yaml.safe_load(capsys.readouterr().out)
    assert found["model"]["label"] == "CHONN, order 3"
    assert found["problem"]["resolution"] == 128
    # As the paper has it.
    expected = {"epochs": 1000, "batch_size": 4, "learning_rate": 1e-3, "weight_decay": 1e-3}
    expected |= {"optimizer": "adamw", "schedule": "step", "step_size": 10, "gamma": 0.98}
    assert {name: found["train"][name] for name in expected} == expected
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("hydra_here")
@pytest.mark.parametrize("launcher", ["joblib", "submitit_slurm", "ray"])
def test_configurations_of_launchers(launcher):
    if launcher == "submitit_slurm":
        pytest.importorskip("hydra_plugins.hydra_submitit_launcher")
    with hydra.initialize_config_module(CONFIGURATION, version_base="1.3"):
        found = hydra.compose("run", [f"hydra/launcher={launcher}"], return_hydra_config=True)
    assert found.hydra.launcher._target_.endswith("Launcher")
