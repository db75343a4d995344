"""docs/lab/claims.md: verdict and deciding number of every claim of the paper, by problem."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from chonn_lab.pages.kept import file_of
from chonn_lab.report import claims
from chonn_lab.report.document import markdown
from chonn_lab.report.results import Study

INTRODUCTION = f"""# Claims

Every quantitative or comparative claim of the paper, and what its experiment gives here. The page is generated from `lab/results/runs/`; `chonn-lab report --results lab/results/runs` also writes every comparison behind a verdict, all metrics and all settings. [experiments.md](experiments.md) says how to run the experiments.

{claims.RULE}

{claims.DECIDED} {claims.SIGNS}

The scale `small` trains models that are smaller than the paper's, for minutes on two CPU cores. A claim that fails here may hold at the paper's scale, and the reverse.
"""  # noqa: E501
FINDINGS = """In the deepest stages of a CNO, where the paper has its blocks, neither the blocks nor their order change the error beyond the spread over seeds. On the order-defined benchmark the seeds do not separate a block of order n from n first-order blocks.
"""  # noqa: E501


def page(found: Sequence[Study]) -> str:
    """The page of some studies."""
    judged = claims.verdicts(_with_claims(found))
    small = any(v.study is not None and claims.scaled_down(v.study) for v in judged)
    models = "the paper's models, scaled down" if small else "the paper's models"
    parts = [INTRODUCTION, f"Claims on {models}: {claims.summary(judged)}.\n", _counts(judged)]
    parts.append(FINDINGS)
    for heading, group in claims.by_study(judged).items():
        parts.append(f"## {heading}\n")
        if study := group[0].study:
            parts.append(f"Every run: [{file_of(study).name}]({file_of(study)}).\n")
        parts.append(markdown(claims.HEADER, [verdict.row() for verdict in group], range(3)))
    return "\n".join(parts)


def sentence(found: Sequence[Study]) -> str:
    """How many claims have which verdict, for the README."""
    return (
        "The paper's claims, tested at the sizes that two CPU cores can train: "
        f"{claims.summary(claims.verdicts(_with_claims(found)))} "
        "([docs/lab/claims.md](docs/lab/claims.md)).\n"
    )


def _with_claims(found: Sequence[Study]) -> list[Study]:
    """Studies of the models that the claims are about; those of a search have others."""
    return [study for study in found if "+" not in study.scale]


def _counts(judged: Sequence[claims.Verdict]) -> str:
    """How many claims have which verdict, by study."""
    lines = []
    for heading, group in claims.by_study(judged).items():
        counts = Counter(verdict.judgement.verdict for verdict in group)
        lines.append([heading, *(str(counts[verdict]) for verdict in claims.VERDICTS)])
    return markdown(["claims on", *claims.VERDICTS], lines)
