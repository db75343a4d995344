"""Which models of a study stand for what: CHONN as in the paper, the best one, the baselines."""

from __future__ import annotations

from chonn_ops.experiments.base import Role
from chonn_ops.experiments.results import Group, Study

BASELINES = ("unet", "fno")
PAPERS_ORDER = 2
PAPERS_ROLES = (Role.PAPER, Role.ABLATION)
# Roles of the models of a ladder: in the paper's backbone; blocks as the only coupling of points,
# in several layers, one of which is the best model; and in a single layer.
LADDERS = {
    "ablation": (Role.ABLATION,),
    "mixer": (Role.MIXER, Role.BEST),
    "layer": (Role.LAYER,),
}


def baseline(study: Study, family: str) -> Group | None:
    found = study.find(family=family)
    return found[0] if found else None


def baselines(study: Study) -> list[Group]:
    """U-Net and FNO, where there."""
    return [group for family in BASELINES if (group := baseline(study, family))]


def stronger(study: Study, metric: str) -> Group | None:
    """U-Net or FNO, whichever has the lower mean."""
    scored = [group for group in baselines(study) if group.metric(metric).values]
    return min(scored, key=lambda group: group.metric(metric).mean, default=None)


def papers(study: Study) -> Group | None:
    """CHONN as the paper describes it for the problem: blocks of order 2 in its backbone."""
    found = [
        group
        for group in study.find(family="chonn", order=PAPERS_ORDER)
        if group.tags.role in PAPERS_ROLES
    ]
    return found[0] if found else None


def best(study: Study) -> Group | None:
    """Of the models that go beyond the paper, the one that stands for them."""
    found = study.find(family="chonn", role=Role.BEST)
    return found[0] if found else None


def orders(study: Study, ladder: str = "ablation") -> dict[int, Group]:
    """Models of one of `LADDERS`, which differ in the order of their blocks only, by order."""
    found = [group for role in LADDERS[ladder] for group in study.find(family="chonn", role=role)]
    return {group.tags.order: group for group in sorted(found, key=lambda g: g.tags.order)}


def compared(study: Study) -> list[Group]:
    """All models but those that probe one setting."""
    return [group for group in study.groups if group.tags.role != Role.PROBE]


def representatives(study: Study) -> tuple[Group, ...]:
    """Baselines, the backbone without blocks, the paper's CHONN, the best, networks: where there.

    All models where the study is no comparison of this kind.
    """
    chosen = [
        *study.find(role=Role.BASELINE),
        *study.find(family="chonn", role=Role.ABLATION, order=0),
        papers(study),
        best(study),
        *study.find(role=Role.NETWORK),
    ]
    kept = {group.variant: group for group in chosen if group}
    return tuple(kept.values()) if study.find(role=Role.BASELINE) else study.groups
