"""Controls on docs/results.md: a row and a sentence each, beside the network."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from pages.blocks import markdown
from pages.chosen import SECONDS, error, headline, label, mean

from chonn_ops.experiments import EXPERIMENTS
from chonn_ops.report.comparison import gap, number, sign
from chonn_ops.report.results import Group, Study
from chonn_ops.report.tables import full_label, metric_label, study_title


def controls(studies: Sequence[Study]) -> Iterator[str]:
    """A row and a sentence each, of every study that has them beside a network."""
    yield "## Controls: what is the solver's, what the cells'\n"
    found = with_controls(studies)
    if not found:
        yield (
            "No study has them yet: `chonn run darcy --variants network,network-no-cell,"
            "network-constant,direct,direct-fitted,solve-cnn --seeds 5`, likewise Poisson.\n"
        )
    for study in found:
        (network,) = study.find(role="network")
        groups = [network, *study.find(role="control")]
        metric = metric_label(headline(study))
        lines = [
            [
                label(study, group),
                f"{group.parameters:,}",
                str(error(group, study)),
                f"{mean(group, study) / mean(network, study):.2g}x",
                str(len(group.runs)),
            ]
            for group in sorted(groups, key=lambda g: mean(g, study))
        ]
        yield f"### {study_title(study)}\n"
        yield markdown(["model", "parameters", metric, "/ network", "seeds"], lines)
        by_name = {group.variant: group for group in groups}
        proofs = [proof(study, network, by_name[name]) for name in PROOFS if name in by_name]
        yield "\n".join(filter(None, proofs)) + "\n"


def with_controls(studies: Sequence[Study]) -> list[Study]:
    """Of each problem the study with most of them beside a network."""
    found: dict[str, Study] = {}
    for study in sorted(studies, key=lambda s: (len(s.find(role="control")), SECONDS in s.scale)):
        networks = study.find(role="network")
        if study.find(role="control") and any(error(group, study).values for group in networks):
            found[study.experiment] = study
    return [found[name] for name in EXPERIMENTS if name in found]


# By control: what it is, and what follows if its error is above the network's, below it, or not
# told from it.
PROOFS = {
    "direct": (
        "the textbook's solve on the input's own grid, told the equation",
        "the network does more than that scheme: it has learned what the textbook does not know of "
        "these data, such as walls and faces",
        "who knows the equation needs no network here: the network's gain is over other networks "
        "alone",
        "the network is as good as a solver that was told the equation",
    ),
    "direct-fitted": (
        "the same with walls and faces fitted, which can become the data's own scheme",
        "the network is below what this scheme can be fitted to",
        "this is the floor: what a network could learn at most if it found the scheme",
        "the network has reached what the fitted scheme gives",
    ),
    "solve-cnn": (
        "the textbook's solve, corrected by convolutions",
        "one solve and a small network behind it are not what the networks do",
        "a solve that was told the equation and a few convolutions do better than learned networks",
        "a solve that was told the equation and a few convolutions do as well",
    ),
    "network-no-cell": (
        "the network without its solves, as large",
        "the error comes down by the solves, not by what is around them",
        "the solves do harm",
        "what is around the solves does all of it",
    ),
    "network-constant": (
        "networks of conductances that do not depend on the input, as large",
        "it matters that the conductances follow the input",
        "conductances that follow the input do harm",
        "that the conductances follow the input shows no gain",
    ),
}


def proof(study: Study, network: Group, control: Group) -> str:
    if not error(control, study).values:
        return ""
    what, above, below, alike = PROOFS[control.variant]
    ours, other = error(network, study), error(control, study)
    ratio = other.mean / ours.mean
    detectable = gap(ours, other).detectable
    shown = f", and {number(detectable)} would have been" if math.isfinite(detectable) else ""
    follows = {
        "<": above,
        ">": below,
        "≈": f"{alike} (not told apart{shown})",
        "?": "a single seed decides nothing",
    }[sign(ours, other)]
    text = f"- {full_label(control)}, {what}: {ratio:.2g} times the network's error."
    return f"{text} {follows[0].upper()}{follows[1:]}."
