"""What a model is, and which models of a study stand for what: the paper's, the best, baselines."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from chonn_ops.report.results import Group, Study


class Role(str, enum.Enum):
    """What a model stands for in a comparison: its ``role`` among a variant's tags."""

    BASELINE = "baseline"
    PAPER = "paper"  # as the paper describes it
    ABLATION = "ablation"  # of the orders in the paper's backbone
    MIXER = "mixer"  # blocks as the only coupling of points, in several layers
    BEST = "best"  # of those that go beyond the paper
    LAYER = "layer"  # blocks as the only coupling, in a single layer
    NETWORK = "network"
    CONTROL = "control"
    PROBE = "probe"  # of one setting


@dataclasses.dataclass(frozen=True)
class Tags:
    """What a model is: by these, tables and figures group, sort and compare.

    Empty, 0 or, for `order`, -1 where a model has none.

    Parameters
    ----------
    family : str
        "unet", "fno", "chonn" and the like.
    role : str
        One of `Role`; own experiments may have others.
    order, depth : int
        Of its blocks, and how many it has in series.
    target : int
        Order of the system that it learns.
    history : int
        Frames that it is given.
    termination : str
        Ends of its lines.
    recipe : str
        How it is trained.
    equal_parameters : bool
        Whether its width gives it the parameters of the model that it is compared with;
        ``matched_parameters`` in files.
    others : mapping
        What else is in the file.
    """

    family: str = ""
    role: str = ""
    order: int = -1
    depth: int = 0
    target: int = 0
    history: int = 0
    termination: str = ""
    recipe: str = ""
    equal_parameters: bool = False
    others: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    @classmethod
    def parse(cls, tags: Mapping[str, Any]) -> Tags:
        """From those of a variant or of a result file."""
        others = dict(tags)
        equal = bool(others.pop("matched_parameters", False))
        names = {field.name for field in dataclasses.fields(cls)} & others.keys()
        known = {name: others.pop(name) for name in names - {"equal_parameters", "others"}}
        return cls(**known, equal_parameters=equal, others=others)

    def has(self, **asked: Any) -> bool:
        """Whether all of these are so; None asks for a tag's absence."""
        own = {**self.others, **vars(self)}
        return all(
            not own.get(name) if value is None else own.get(name) == value
            for name, value in asked.items()
        )


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
    """The first model of a family, None where there is none."""
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


def by_size(
    study: Study, family: str, target: int, end: str, equal: bool = False
) -> dict[int, Group]:
    """Of the order-defined benchmark, blocks by order n ("chonn") or stacks by depth n ("depth").

    Parameters
    ----------
    study : Study
    family : {"chonn", "depth"}
        A stack of one first-order block is the block of order 1.
    target : int
    end : str
        Termination of their lines.
    equal : bool
        Stacks with the parameters of the block of order n, not of its width.
    """
    shared = {"target": target, "termination": end}
    chosen = list(study.find(family=family, equal_parameters=equal, **shared))
    if family == "depth" and chosen:
        chosen += study.find(family="chonn", order=1, **shared)
    return dict(sorted((size(group), group) for group in chosen))


def size(group: Group) -> int:
    """The n of a block of order n or of n first-order blocks."""
    return group.tags.depth if group.family == "depth" else group.tags.order


def order_and_depth(
    study: Study, target: int, end: str, equal: bool = False
) -> dict[int, tuple[Group, Group]]:
    """By n > 1 the block of order n and the stack of n first-order blocks, where there are both."""
    blocks = by_size(study, "chonn", target, end)
    stacks = by_size(study, "depth", target, end, equal)
    return {n: (blocks[n], stacks[n]) for n in blocks if n > 1 and n in stacks}


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
