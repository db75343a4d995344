"""What the runs show beyond the paper's claims, by the same test."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

from chonn_ops.report.claims._claim import Claim, Judgement, Untested, lower_in
from chonn_ops.report.claims._navier_stokes import HISTORIES
from chonn_ops.report.results import Study
from chonn_ops.report.roles import Role
from chonn_ops.report.tables import full_label, metric_label

Tags = Mapping[str, Any]
TARGETS = (1, 2, 3, 4)


def _lower(study: Study, sides: Sequence[tuple[Tags, Tags]], metrics: Sequence[str]) -> Judgement:
    """Whether the first model of every pair has the lower error, in every metric."""
    found = [[study.find(**tags)[:1] for tags in pair] for pair in sides]
    if not all(map(all, found)):
        raise Untested
    return lower_in(
        (f"{metric_label(name)}, {full_label(a)} against {full_label(b)}:", a, b, name)
        for (a,), (b,) in found
        for name in metrics
    )


def _claim(experiment: str, statement: str, sides: Sequence[Any], *metrics: str) -> Claim:
    test = "lower in " + " and ".join(metric_label(name) for name in metrics)
    judge = functools.partial(_lower, sides=sides, metrics=metrics)
    return Claim(experiment, statement, "ours", test, judge)


def _ends(target: int, family: str, size: str) -> tuple[Tags, Tags]:
    tags = {"family": family, "target": target, "equal_parameters": False, size: target}
    return {**tags, "termination": "ring"}, {**tags, "termination": "matched"}


def _matched(target: int, n: int, end: str) -> tuple[Tags, Tags]:
    """A block of order n, and n first-order blocks of as many parameters in all."""
    place = {"target": target, "termination": end}
    return (
        {"family": "chonn", "order": n, **place},
        {"family": "depth", "depth": n, "equal_parameters": True, **place},
    )


def _recipe(family: str, history: int, recipe: str) -> Tags:
    return {"family": family, "history": history, "recipe": recipe}


def _mixer(depth: int, order: int) -> Tags:
    plain = {"termination": None, "directions": None, "norm": None}
    return {"family": "chonn", "backbone": "mixer", "depth": depth, "order": order, **plain}


def _probe(order: int, block: Tags) -> Tags:
    return {"role": Role.PROBE, "order": order, **block}


def _backbone(order: int) -> Tags:
    return {"family": "chonn", "role": Role.ABLATION, "order": order}


_BEST: Tags = {"family": "chonn", "role": Role.BEST}
_BOTH = ("one_step_relative_l2", "rollout_relative_l2")
_ONE_STEP, _ROLLOUT = _BOTH
_INCREMENTS = "Models of increments, 10 to 1"

_ORDER1D: Sequence[Any] = (
    (
        "Lines that close on themselves lower the errors of every order on this periodic problem",
        [_ends(target, "chonn", "order") for target in TARGETS],
        *("point", "derivative"),
    ),
    (
        "Lines that close on themselves lower the errors of every stack of first-order blocks, too",
        [_ends(target, "depth", "depth") for target in TARGETS[1:]],
        *("point", "derivative"),
    ),
    *(
        (
            f"At equal parameters a block of order n is lower in {metric_label(metric)} than n "
            f"first-order blocks, n = 2, 3, 4, on every target, {where}",
            [_matched(target, n, end) for target in TARGETS for n in TARGETS[1:]],
            metric,
        )
        for end, where in (("matched", "from rest"), ("ring", "periodic"))
        for metric in ("point", "derivative")
    ),
)
_NAVIER_STOKES: Sequence[Any] = (
    (
        "One step: CHONN in the paper's place has a lower error than FNO",
        [(_recipe("chonn", h, "paper"), _recipe("fno", h, "paper")) for h in HISTORIES],
        _ONE_STEP,
    ),
    (
        "One step: CHONN with periodic axial lines has, where both predict increments",
        [(_recipe("chonn", h, "increment"), _recipe("fno", h, "increment")) for h in HISTORIES],
        _ONE_STEP,
    ),
    (
        "Predicting the increment lowers FNO's error over the rollout",
        [(_recipe("fno", h, "increment"), _recipe("fno", h, "paper")) for h in HISTORIES],
        _ROLLOUT,
    ),
    *(
        (
            f"{_INCREMENTS}: {what} lowers {label}'s error over the rollout",
            [({"recipe": f"{family}-{probe}"}, _recipe(family, 10, "increment"))],
            _ROLLOUT,
        )
        for probe, what in (
            ("noise", "noise on the given frames in training"),
            ("pushforward", "pushforward"),
        )
        for family, label in (("fno", "FNO"), ("chonn", "CHONN"))
    ),
    (
        f"{_INCREMENTS}: closing the axial lines to rings lowers CHONN's errors",
        [(_recipe("chonn", 10, "increment"), {"recipe": "chonn-lines"})],
        *_BOTH,
    ),
    (
        f"{_INCREMENTS}: leaving out the block's norm lowers CHONN's error over the rollout",
        [({"recipe": "chonn-unnormed"}, _recipe("chonn", 10, "increment"))],
        _ROLLOUT,
    ),
    *(
        (
            f"{_INCREMENTS}{how}: CHONN rings without norm have lower errors than FNO",
            [({"recipe": ours}, {"family": "fno", "history": 10, "recipe": other})],
            *_BOTH,
        )
        for how, ours, other in (
            ("", "chonn-unnormed", "increment"),
            (", pushforward", "chonn-both", "fno-pushforward"),
        )
    ),
)
# Of Darcy flow and of Poisson's equation, topic by topic: statement, and the tags of both models.
_STEADY = (
    [
        (f"{ours} has a lower error than {label} of as many parameters or a few more", tags, other)
        for ours, tags in (
            ("CHONN in the paper's place, of order 2,", _backbone(2)),
            ("The mixer of order 2, whose CKBs are the only coupling of points,", _BEST),
        )
        for other, label in (
            ({"family": "unet"}, "a U-Net"),
            ({"family": "fno"}, "an FNO"),
            ({"family": "cno"}, "a CNO"),
        )
    ],
    [
        (
            f"In a CNO's deepest stages, CKBs of order {order} lower its error",
            *(_backbone(order), _backbone(0)),
        )
        for order in (1, 2, 4)
    ],
    [
        (
            f"In a CNO's deepest stages, CKBs of order {order} give a lower error than CKBs of "
            "order 1",
            *(_backbone(order), _backbone(1)),
        )
        for order in (2, 4)
    ],
    [
        (
            f"Where CKBs are the only coupling, order {order} has a lower error than order 1 "
            f"{where}",
            *(_mixer(depth, order), _mixer(depth, 1)),
        )
        for depth, where in ((1, "in one layer"), (3, "in three layers"))
        for order in (2, 4)
    ],
    [
        (
            f"In one layer {where}, order {order} has a lower error than order 1",
            *(_probe(order, block), _probe(1, block)),
        )
        for where, block in (
            ("with odd walls", {"termination": "short"}),
            ("with even walls", {"termination": "open"}),
            ("with lines through all rows", {"directions": "cross"}),
            ("with a norm", {"norm": "group"}),
        )
        for order in (2, 4)
    ],
)
OBSERVATIONS = (
    *(_claim("order1d", *row) for row in _ORDER1D),
    *(_claim("navier_stokes", *row) for row in _NAVIER_STOKES),
    *(
        _claim(problem, statement, [sides], "relative_l1")
        for topic in _STEADY
        for problem in ("poisson", "darcy")
        for statement, *sides in topic
    ),
    _claim(
        "shallow_water",
        "Axial lines with even walls have a lower error than the paper's flattened line",
        [(_BEST, {"family": "chonn", "role": Role.PAPER})],
        *("rmse", "boundary_rmse"),
    ),
)
