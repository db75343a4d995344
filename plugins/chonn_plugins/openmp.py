"""How OpenMP's threads wait, and the command ``chonn``, which says so before torch is loaded.

The module needs the standard library only.
"""

from __future__ import annotations

import os
import sys

# Any of these says how long threads spin: OpenMP's own, GNU's and Intel's (and LLVM's).
_SETTINGS = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME", "KMP_LIBRARY")


def sleep_while_waiting() -> None:
    """Let OpenMP's threads sleep while they wait, unless the user has said how they wait.

    By default they spin, which slows everybody down where another program needs the same cores, or
    a container has fewer cores than it sees. OpenMP reads the environment once, when torch loads
    it: with torch in the process this changes nothing.
    """
    if "torch" not in sys.modules and not any(name in os.environ for name in _SETTINGS):
        os.environ["OMP_WAIT_POLICY"] = "passive"


def chonn() -> int:
    """Run ``chonn``, whose package imports torch."""
    sleep_while_waiting()
    from chonn_ops.cli import main

    return main()
