"""Tables and figure of rollouts: shallow water and Navier-Stokes in docs/lab/studies.md."""

from __future__ import annotations

from chonn_lab.pages.files import Build
from chonn_lab.paths import DOCS, RUNS
from chonn_lab.report import style
from chonn_lab.report.document import markdown
from chonn_lab.report.results import Study, read_studies

RESULTS = RUNS / "rollouts"
FLOW, WATER = "navier_stokes_rollouts", "shallow_water_rollouts"
METRICS = (
    *("one_step_relative_l2", "rollout_relative_l2", "rollout_relative_l2_last", "growth_200"),
)
CURVE = "rollout_relative_l2"
# Models of the table of flows and, but for the first history alone, of the figure.
SHOWN = (
    "fno-longer",
    "fno-pushforward-longer",
    "networks-longer",
    "networks-pushforward-longer",
    "substeps",
)


def studies(experiment: str) -> list[Study]:
    # The model changed between runs; each records its commit.
    return [s for s in read_studies(RESULTS, mixed=True) if s.experiment == experiment]


def flow() -> str:
    """A line a model: means over the seeds."""
    lines = [
        [
            group.label,
            f"{group.tags.history or group.runs[0].config['history']} to 1",
            *(str(found) if (found := group.metric(m)).values else "diverged" for m in METRICS),
            f"{group.parameters:,}",
            f"{group.seconds.mean:.0f}",
            str(len(group.runs)),
        ]
        for study in studies(FLOW)
        for group in study.groups
        if group.variant in SHOWN
    ]
    header = ["model", "frames", "one step", "rollout", "last frame", "growth over 200 steps"]
    return markdown([*header, "parameters", "seconds", "seeds"], lines, (0, 1))


def water() -> str:
    """Shallow water: nRMSE, and the change of the volume over a rollout (cRMSE)."""
    rows = [
        [
            group.label,
            *(str(group.metric(name)) for name in ("nrmse", "csv")),
            f"{group.parameters:,}",
            f"{group.seconds.mean:.0f}",
            str(len(group.runs)),
        ]
        for study in studies(WATER)
        for group in study.groups
    ]
    return markdown(["model", "nRMSE", "cRMSE", "parameters", "seconds", "seeds"], rows)


def draw() -> None:
    """Error over the frames of a rollout, a line a model."""
    with style.styled():
        figure, axes = style.grid(1, 1, 3.6)
        axis = axes[0, 0]
        (study,) = [study for study in studies(FLOW) if study.scale == "small"]
        shown = [group for group in study.groups if group.variant in SHOWN]
        for at, group in enumerate(shown):
            errors = group.curve(CURVE)
            look = style.look(group)._replace(colour=style.CYCLE[at], line="-")
            style.band(axis, range(1, len(errors) + 1), errors, look, group.label)
        style.logarithmic(axis.yaxis)
        style.finish(figure, axes, x="frames after the given ones", y=["relative L2"])
        style.save(figure, DOCS / "figures" / "rollouts.svg")


BLOCKS: dict[str, Build] = {"rollouts": flow, "water": water}
