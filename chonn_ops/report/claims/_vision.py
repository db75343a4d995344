"""Claims on image recognition: ImageNet is not run here, digits stand in for the routing."""

from __future__ import annotations

import functools

from chonn_ops.report.claims._claim import NOT_TESTED, Claim, Judgement, Pair, untested
from chonn_ops.report.results import Study

ERROR = "error"
_SECTION = "Text on Fig. 5h"


def _untested(study: Study) -> Judgement:  # noqa: ARG001
    return untested("ImageNet-1K is not trained here")


def _routing(study: Study, ours: str, other: str) -> Judgement:
    first, second = study.find(routing=ours), study.find(routing=other)
    if not first or not second:
        return untested("no results for it")
    pair = Pair(
        f"test error, {ours} against {other}:", first[0].metric(ERROR), second[0].metric(ERROR)
    )
    return Judgement(NOT_TESTED, f"on digits instead: {pair}", (first[0], second[0]))


_IMAGENET = (
    (
        "Across model scales, CHONN consistently improves recognition accuracy while maintaining "
        "competitive parameter and computational costs",
        _SECTION,
        "top-1 accuracy of Tiny, Small and Base above their peers'",
    ),
    (
        "Across Tiny, Small, and Base settings, CHONN achieves higher early-stage accuracy than "
        "VMamba",
        "Fig. 5j",
        "top-1 accuracy after 30 epochs above VMamba's",
    ),
)
_ROUTING = (
    ("Parallel expansion provides moderate gains", "parallel", "baseline"),
    ("series cascade brings a larger improvement", "serial", "parallel"),
    (
        "adding explicit Kirchhoff constraints further improves accuracy",
        "serial+constraints",
        "serial",
    ),
)
CLAIMS = (
    *(Claim("imagenet", *row, _untested) for row in _IMAGENET),
    *(
        Claim(
            "digits",
            quote,
            "Fig. 5i",
            f"the test error of {ours} is lower than that of {other} on ImageNet-1K; digits, small "
            "and nearly solved, show tendencies at most",
            functools.partial(_routing, ours=ours, other=other),
        )
        for quote, ours, other in _ROUTING
    ),
)
