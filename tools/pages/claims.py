"""docs/claims.md: verdict and deciding number of every claim, a line each, by problem."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from pages.blocks import markdown
from pages.experiments import studies

from chonn_ops.report import scoreboard
from chonn_ops.report.claims import VERDICTS
from chonn_ops.report.results import Study
from chonn_ops.report.tables import study_title

INTRODUCTION = f"""# Claims

What the paper claims, and what its experiments give here; beside it, what else the same runs show. Generated from the JSON files in `docs/results/`, which hold every run ([how to run them](experiments.md), [the results on a page](results.md)); nobody types a number. `chonn report --results docs/results` writes the rest of it from them: every comparison behind a verdict, all metrics of all models, their costs and settings.

{scoreboard.RULE}

{scoreboard.DECIDED} {scoreboard.SIGNS}

The scale `small` trains models that are scaled down from their publications', for minutes on two CPU cores: what it contradicts may still hold at the paper's scale, and what it supports may not.
"""  # noqa: E501
# Where the file of a study is not <experiment>-<scale>.json.
ELSEWHERE = {"digits": "../benchmarks/results/digits_ablation.json"}


def claims_page() -> str:
    return page(studies())


def page(found: Sequence[Study]) -> str:
    """The page of some studies."""
    asked = _asked(found)
    entries, observations = scoreboard.entries(asked), scoreboard.observations(asked)
    parts = [
        INTRODUCTION,
        f"Of the claims, with the paper's models{scoreboard.how(asked)}: "
        f"{scoreboard.summary(entries)}.\n",
    ]
    for board in scoreboard.boards(entries):
        study = board.study
        parts.append(f"## {board.heading}\n")
        if study:
            parts.append(f"Every run: [{_file(study).name}]({_file(study)}).\n")
        rows = [list(map(str, row)) for row in board.rows()]
        parts.append(markdown(scoreboard.HEADER, rows, range(4)))
        lines = [
            [f"{e.claim.quote} ({e.claim.test})", str(e.judgement), e.judgement.number]
            for e in observations
            if e.study is study
        ]
        if lines:
            parts += ["Beyond the paper's claims, by the same rule:\n"]
            parts.append(markdown(["statement of ours", *scoreboard.HEADER[2:]], lines, range(3)))
    parts += ["## All runs\n", markdown(["study", "models", "runs", "file"], _files(found), (0, 3))]
    return "\n".join(parts)


def _asked(found: Sequence[Study]) -> list[Study]:
    """Those whose models claims are about, without those of a search."""
    return [study for study in found if "+" not in study.scale]


def _files(found: Sequence[Study]) -> Iterator[list[str]]:
    for study in found:
        name = f"{study_title(study)}, `{study.scale}`"
        link = f"[{_file(study).name}]({_file(study)})"
        yield [name, str(len(study.groups)), str(len(study.runs)), link]


def _file(study: Study) -> Path:
    return Path(ELSEWHERE.get(study.experiment, f"results/{study.experiment}-{study.scale}.json"))


def verdicts() -> str:
    """How many claims, with the paper's models, have which verdict."""
    lines = []
    for board in scoreboard.boards(scoreboard.entries(_asked(studies()))):
        counts = Counter(e.judgement.verdict for e in board.entries if not e.claim.setting)
        lines.append([board.heading, *(str(counts[verdict]) for verdict in VERDICTS)])
    return markdown(["claims on", *VERDICTS], lines)
