"""Settings by text: ``chonn run --set``, and the YAML that reaches the PDEBench plugin."""

from __future__ import annotations

import dataclasses
import math
import random
import shutil
from pathlib import Path

import yaml
from fuzz import Finding, damaged, watched
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from chonn_ops.experiments import EXPERIMENTS, get
from chonn_ops.experiments.jobs import folder_name, parse_settings
from chonn_plugins.pdebench import CONFIG_DIR, JobError, arguments
from chonn_plugins.pdebench.job import resolve

TEXTS = (
    *("", " ", "0", "-1", "1", "7", "1e3", "1e-3", "1_000", "nan", "inf", "-inf", "1e400", "true"),
    *("False", "null", "~", "None", "adam", "cosine", "scan", "network", "wall", "ring", "x", "é"),
    *(
        "10,5,3",
        "10,,3",
        ",",
        "0x10",
        "\uff11\uff12",
        "9" * 30,
        "9" * 5000,
        "a=b",
        "../../x",
        "a/b",
        "\0",
    ),
    *("${oc.env:HOME}", "${x", "[1,2", "{a: 1}", "!!python/name:os.system", "*a", "&a 1", "- 1"),
    *("!!python/object/apply:os.mkdir [executed]", "[wall, ring]", "[ring, short]", "\ud800", "%"),
)
CONFIGS = sorted(CONFIG_DIR.rglob("*.yaml"))


def runner(config):
    """Stands for the runner of a copy of PDEBench; configs beside it count as known."""
    return config.args.epochs


def prepare(folder: Path) -> Path:
    return folder


def _text(draw: random.Random) -> str:
    text = draw.choice(TEXTS)
    if draw.random() < 0.3:
        kept = damaged((text + draw.choice(TEXTS)).encode("utf-8", "replace"), draw)
        text = kept.decode("utf-8", "replace")
    return text


def _set(draw: random.Random) -> str:
    experiment = get(draw.choice(EXPERIMENTS))
    config = experiment.scales[draw.choice(("smoke", "small"))]
    fields = [field.name for field in dataclasses.fields(config)]
    name = draw.choice(fields) if draw.random() < 0.9 else _text(draw)
    text = _text(draw)
    assignment = f"{name}={text}" if draw.random() < 0.95 else text
    try:
        values = parse_settings(config, [assignment])
        folder = folder_name("small", config, values, "32-true")
    except ValueError as error:
        if not str(error) or len(str(error)) > 8000:
            raise Finding(f"unclear: {error}") from error
        return "refused"
    (value,) = values.values()
    for item in value if isinstance(value, tuple) else (value,):
        if isinstance(item, float) and not math.isfinite(item):
            raise Finding(f"{assignment}: {item}")
    if "/" in folder or "\0" in folder or folder in (".", ".."):
        raise Finding(f"folder {folder!r}")
    kind = type(value)
    if kind in (int, float) and value != kind(text):
        raise Finding(f"{assignment}: {value}")
    return "right"


def _job(draw: random.Random) -> str:
    """One of PDEBench's settings, with options of the models in it."""
    lines = {
        name: _text(draw)
        for name in draw.sample(
            (
                *("cell", "order", "networks", "termination", "mode", "stages", "width", "depth"),
                *("d_state", "norm", "kernel_size", "dt_min", "nodes", "selective", "patch", "x"),
            ),
            2,
        )
    }
    try:
        text = "".join(f"{name}: {value}\n" for name, value in lines.items())
        options = OmegaConf.to_container(OmegaConf.create(text), resolve=True)
    except (yaml.YAMLError, OmegaConfBaseException, ValueError, UnicodeEncodeError):
        return "refused"  # by what the host reads its settings with
    model = draw.choice(("chonn_network", "chonn_fno", "chonn_unet"))
    args = {"model_name": model, "ckb": options, "filename": "f.hdf5", "single_file": True}
    try:
        job = resolve(args)
        name = job.suffix
        arguments.check(job, [_text(draw)], runner, [f"++args.{_text(draw)}={_text(draw)}"])
    except (JobError, ValueError) as error:
        if not str(error) or len(str(error)) > 8000:
            raise Finding(f"unclear: {error}") from error
        return "refused"
    if job.options != options or "/" in name:
        raise Finding(f"{options}: {job.options}, {name!r}")
    return "right"


def _configs(draw: random.Random, folder: Path) -> str:
    """Configs beside a runner that are damaged: they are left out, and settings still checked."""
    config = folder / "place" / "config" / "args"
    shutil.rmtree(folder / "place", ignore_errors=True)
    config.mkdir(parents=True)
    content = draw.choice(CONFIGS).read_bytes()
    if draw.random() < 0.3:
        content = b"args:\n  epochs: " + _text(draw).encode("utf-8", "replace")
    elif draw.random() < 0.05:
        content = b"[" * 100_000
    (config / "a.yaml").write_bytes(damaged(content, draw))
    with watched(folder / "place"):
        top, names = arguments._config_keys([folder / "place" / "config"])
    if not all(isinstance(name, str) for name in (*top, *names)):
        raise Finding(f"{names}")
    return "right"


def attempt(_, draw: random.Random, folder: Path) -> str:
    kind = draw.random()
    if kind < 0.45:
        with watched():
            return _set(draw)
    if kind < 0.8:
        with watched():
            return _job(draw)
    return _configs(draw, folder)
