"""Keep the results of studies with the code, in docs/results/.

python tools/keep_results.py runs        # of `chonn run`: docs/results/<experiment>-<scale>.json
python tools/keep_results.py runs paper+epochs=200,sizes=small
python tools/keep_results.py --rollouts runs/navier_stokes_rollouts/FOLDER

Smoke runs are not kept, nor are runs of changed settings but for the sizes of a search and those
whose folders are named behind.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from pathlib import Path

from pages import rollouts
from pages.experiments import RESULTS

from chonn_ops.experiments import EXPERIMENTS
from chonn_ops.report.results import collect, read_studies

# Scales, also with the sizes of a search, such as small+sizes=seconds.
KEPT = re.compile(r"(small|paper)(\+sizes=\w+)?")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("runs", type=Path, help="folder of `chonn run`")
    parser.add_argument("scales", nargs="*", help="folders of changed settings to keep as well")
    parser.add_argument("--rollouts", action="store_true", help="a study of rollout_ablations.py")
    args = parser.parse_args()
    if args.rollouts:
        print(f"wrote {collect(args.runs, rollouts.RESULTS, mixed=True)}")
    else:
        keep(args.runs, args.scales)


def keep(runs: Path, also: Sequence[str] = ()) -> None:
    """Compact the results of `chonn run`; those of experiments that were not run stay."""
    for study in read_studies(runs):
        kept = KEPT.fullmatch(study.scale) or study.scale in also
        if study.folder is not None and study.experiment in EXPERIMENTS and kept:
            print(f"wrote {collect(study.folder, RESULTS)}: {len(study.runs)} runs")


if __name__ == "__main__":
    main()
