"""A thousand damaged and hostile inputs of each kind: a right answer or a clear error."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("resource")
for needed in ("h5py", "omegaconf"):
    pytest.importorskip(needed)

PROGRAM = Path(__file__).with_name("fuzz.py")


KINDS = ("hdf5", "overrides", "checkpoints", "results")


@pytest.mark.parametrize(
    ("kind", "count"),
    [
        *((kind, 40) for kind in KINDS),
        *(pytest.param(kind, 1000, marks=pytest.mark.slow) for kind in KINDS),
    ],
)
def test_damaged_input(kind, count, tmp_path):
    seed = os.environ.get("CHONN_FUZZ_SEED", "0")
    command = [sys.executable, str(PROGRAM), kind, seed, str(count), str(tmp_path)]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "MPLBACKEND": "agg"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=tmp_path)
    # The last line that it says is the case that ended it.
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert not found["findings"], "\n".join(text for _, text in found["findings"][:5])
    assert sum(found["outcomes"].values()) == count
    # Damage is noticed, and what it does not touch is read.
    assert found["outcomes"]["refused"] > count / 10
    assert found["outcomes"].get("right", 0) > count / 50
