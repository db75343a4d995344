"""Tables of a study."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from chonn_lab.experiments import provenance
from chonn_lab.report.comparison import Statistic, number
from chonn_lab.report.results import Group, Run, Study

METRICS = {
    "relative_l1": "relative L1",
    "relative_l1_median": "relative L1, median",
    "relative_l2": "relative L2",
    "rmse": "RMSE",
    "nrmse": "nRMSE",
    "range_nrmse": "nRMSE (range)",
    # PDEBench's key in its code and in result files; its paper's name.
    "csv": "cRMSE",
    "max_error": "maximum error",
    "max_mse": "MaxMSE",
    "boundary_rmse": "boundary RMSE",
    "fourier_rmse_low": "low frequencies",
    "fourier_rmse_mid": "middle frequencies",
    "fourier_rmse_high": "high frequencies",
    "h1_error": "relative H1",
    "point": "pointwise relative L2",
    "spectral": "spectral relative L2",
    "derivative": "derivative relative L2",
    "rollout_relative_l2": "rollout relative L2",
    "rollout_relative_l2_last": "last step of it",
    "one_step_relative_l2": "one-step relative L2",
    "one_step_vrmse": "one-step VRMSE",
    "rollout_vrmse": "rollout VRMSE",
    "rollout_vrmse_last": "last step of it",
}
TITLES = {
    "order1d": "Order-defined benchmark",
    "darcy": "Darcy flow",
    "poisson": "Poisson equation",
    "shallow_water": "Shallow water",
    "navier_stokes": "Navier-Stokes",
    "digits": "Digits",
    "imagenet": "ImageNet-1K",
}

# Behind a model's name: see `notes`.
MARK = " †"


class Table(NamedTuple):
    """A table of numbers behind a first column of text."""

    caption: str
    header: Sequence[str]
    rows: Sequence[Sequence[Any]]


def title(experiment: str) -> str:
    """What pages call an experiment."""
    return TITLES.get(experiment, experiment.replace("_", " "))


def study_title(study: Study) -> str:
    """`title`, or what an experiment of the user's own calls itself."""
    own = study.title if study.experiment not in TITLES else ""
    return own or title(study.experiment)


def metric_label(name: str) -> str:
    """What pages call a metric."""
    return METRICS.get(name, name.replace("_", " "))


def tables(study: Study) -> list[Table]:
    """Errors of every split, then what the models cost."""
    if any(group.tags.target for group in study.groups):
        errors = [_by_target(study, name) for name in study.metrics()]
    else:
        errors = [_errors(study, split) for split in study.splits()]
    return [*errors, _costs(study)]


def _errors(study: Study, split: str) -> Table:
    names = study.metrics(split)
    rows = [
        [_marked(group), *(str(group.metric(name, split)) for name in names)]
        for group in study.groups
        if any(group.metric(name, split).values for name in names)
    ]
    caption = f"Errors, {split.replace('_', ' ')} split: mean and standard deviation over the seeds"
    return Table(caption, ["model", *map(metric_label, names)], rows)


def _by_target(study: Study, name: str) -> Table:
    """A row a model, a column a target."""
    groups = sorted((g for g in study.groups if g.tags.target), key=_kind)
    targets = sorted({group.tags.target for group in groups})
    found: dict[str, dict[int, Statistic]] = {}
    marked = {model_label(group) for group in groups if _marked(group) != model_label(group)}
    for group in groups:
        found.setdefault(model_label(group), {})[group.tags.target] = group.metric(name)
    rows = [
        [
            label + (MARK if label in marked else ""),
            *(str(row.get(target, Statistic(()))) for target in targets),
        ]
        for label, row in found.items()
    ]
    caption = f"{metric_label(name)}, mean and standard deviation over the seeds"
    return Table(caption, ["model", *(f"T{target}" for target in targets)], rows)


def _kind(group: Group) -> tuple[Any, ...]:
    """Blocks by order, then first-order blocks by their number, then stacks."""
    family = ("chonn", "depth", "stack").index(group.family)
    return family, group.tags.order, group.tags.depth


def full_label(group: Group) -> str:
    """`model_label` with the target, where there is one."""
    target = f"T{group.tags.target} " if group.tags.target else ""
    return target + model_label(group)


def model_label(group: Group) -> str:
    """What tells a model from the others of a table: labels leave out history and target."""
    tags = group.tags
    if tags.history:
        return f"{group.label}, {tags.history} to 1"
    if not tags.target:
        return group.label
    if group.family == "stack":
        return f"{tags.order}x{tags.depth}"
    if group.family == "depth":
        return f"{tags.depth} first-order blocks"
    return f"order {tags.order}"


def _marked(group: Group) -> str:
    return model_label(group) + (MARK if provenance.flags(group.runs) else "")


def mixture(study: Study) -> list[str]:
    """In which data or settings the results of a study differ."""
    return [f"Not all runs have the same data and settings: {text}" for text in study.mixed]


def notes(study: Study) -> list[str]:
    """What has to be said of the results in the tables: differences, and what `MARK` means."""
    lines = mixture(study)
    for text, variants in provenance.flags(study.runs).items():
        groups = [group for group in study.groups if group.variant in variants]
        whose = ", ".join(map(full_label, groups))
        lines.append(
            f"{MARK.strip()} {text}: {'all' if len(groups) == len(study.groups) else whose}"
        )
    return lines


def _costs(study: Study) -> Table:
    """A line a model; of the order-defined benchmark, the models of the highest target."""
    top = max((group.tags.target for group in study.groups), default=0)
    rows = []
    for group in sorted(study.groups, key=_kind) if top else study.groups:
        if group.tags.target == top:
            memory = Statistic.of(run.peak_memory_mib for run in group.runs)
            rows.append(
                [
                    _marked(group),
                    f"{group.parameters:,}",
                    number(group.multiply_adds / 1e6) if group.multiply_adds else "-",
                    number(group.seconds.mean),
                    number(memory.mean) if memory.values else "-",
                    str(len(group.runs)),
                ]
            )
    header = ["model", "parameters", "multiply-adds, M", "training, s", "peak MiB", "seeds"]
    return Table("Parameters, multiply-adds of one sample's forward pass, training", header, rows)


def settings(study: Study) -> dict[str, str]:
    """Where, when and with what a study was run; several values where the runs differ."""
    runs = study.runs
    hardware = _distinct(run.hardware for run in runs)
    machine = [_or(hardware, name) for name in ("device", "processor", "machine")]
    count = f"{_or(hardware, 'cores')} cores, {_or(hardware, 'threads')} thread(s) a process"
    versions = _distinct(run.versions for run in runs)
    return {
        "hardware": ", ".join([*(text for text in machine if text != "-"), count]),
        "versions": ", ".join(f"{name} {' / '.join(found)}" for name, found in versions.items()),
        "commit": " / ".join(
            f"{commit} ({count} runs)" if count < len(runs) else commit
            for commit, count in sorted(Counter(run.provenance.state for run in runs).items())
        ),
        "data": "; ".join(sorted({_data(*item) for run in runs for item in run.data.items()}))
        or "not recorded",
        "date": " / ".join(sorted({run.date[:10] for run in runs})),
        "settings": ", ".join(
            f"{name} {' / '.join(found)}"
            for name, found in _distinct(run.config for run in runs).items()
            if name != "seed"
        ),
    }


def _data(name: str, file: Mapping[str, Any]) -> str:
    """Where a data file comes from, and its checksum."""
    text = "official" if file.get("official") else "origin unknown"
    if "generator" in file:
        text = f"made by {file['generator']}, version {file.get('generator_version')}"
        text += f", seed {file['seed']}" if "seed" in file else ""
    return f"{name} ({text}, SHA-256 {str(file.get('sha256'))[: provenance.SHOWN]})"


def _distinct(records: Any) -> dict[str, list[str]]:
    found: dict[str, dict[str, None]] = {}
    for record in records:
        for name, value in record.items():
            found.setdefault(name, {})[str(value)] = None
    return {name: list(values) for name, values in found.items()}


def _or(found: Mapping[str, list[str]], name: str) -> str:
    return " / ".join(found.get(name, [])) or "-"


def run_table(runs: Sequence[Run], mixed: bool = False) -> str:
    """Parameters and scores of every variant, mean and standard deviation over the seeds.

    Below it, what has to be said of where they come from.

    Raises
    ------
    ValueError
        For results of different data, settings or model code, unless `mixed`.
    """
    differing = provenance.mixture("this table", runs, mixed)
    variants: dict[str, list[Run]] = {}
    for run in runs:
        variants.setdefault(run.variant, []).append(run)
    scores = [(split, name) for run in runs for split, s in run.metrics.items() for name in s]
    splits = dict.fromkeys(split for split, _ in scores) or ["test"]
    names = dict.fromkeys(name for _, name in scores)
    rows = [["variant", "split", "runs", "parameters", *names]]
    for variant, seeds in variants.items():
        group = Group(tuple(seeds))
        for split in splits:
            cells = (str(group.metric(name, split)) for name in names)
            rows.append([variant, split, str(len(seeds)), f"{group.parameters:,}", *cells])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
    lines += [f"mixed: {text}" for text in differing]
    lines += [f"{', '.join(names)}: {text}" for text, names in provenance.flags(runs).items()]
    return "\n".join(lines)
