"""The paper's quantitative and comparative claims, each with the test that judges it."""

from chonn_ops.report.claims import _fields, _navier_stokes, _order1d
from chonn_ops.report.claims._claim import (
    CONTRADICTED,
    INCONCLUSIVE,
    NOT_TESTED,
    SUPPORTED,
    VERDICTS,
    Claim,
    Judgement,
)
from chonn_ops.report.claims._ours import OBSERVATIONS

CLAIMS: tuple[Claim, ...] = (
    *_order1d.CLAIMS,
    *_fields.CLAIMS,
    *_navier_stokes.CLAIMS,
    *_fields.IMAGES,
)

__all__ = [
    "CLAIMS",
    "CONTRADICTED",
    "INCONCLUSIVE",
    "NOT_TESTED",
    "OBSERVATIONS",
    "SUPPORTED",
    "VERDICTS",
    "Claim",
    "Judgement",
]
