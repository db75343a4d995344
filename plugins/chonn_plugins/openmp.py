"""How OpenMP's threads wait, and the command ``chonn``, which says so before torch is loaded.

The module needs the standard library only.
"""

from __future__ import annotations

import os
import sys

# Any of these says how long threads spin: OpenMP's own, GNU's and Intel's (and LLVM's).
_SETTINGS = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME", "KMP_LIBRARY")


def sleep_while_waiting() -> None:
    """Let OpenMP's threads sleep after a short wait, unless the user has said how they wait.

    By default GNU's spin for milliseconds, which slows everybody down where another program needs
    the same cores, or a container has fewer cores than it sees. OpenMP reads the environment once,
    when torch loads it: with torch in the process this changes nothing.

    Seconds per epoch on two cores: PDEBench's U-Net beside a program that keeps both busy, 29.4 by
    default, 4.7 with 3,000 turns, 4.3 where threads sleep at once (``OMP_WAIT_POLICY=passive``);
    its FNO alone 0.81, 0.80 and 3.97.
    """
    if "torch" not in sys.modules and not any(name in os.environ for name in _SETTINGS):
        os.environ["GOMP_SPINCOUNT"] = "3000"


def chonn() -> int:
    """Run ``chonn``, whose package imports torch."""
    sleep_while_waiting()
    from chonn_ops.cli import main

    return main()
