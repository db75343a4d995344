"""neuraloperator's own tests, from the installed package, with our keywords and with our mixer."""

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

RUNNER = Path(__file__).with_name("host_suite.py")
# UNO's tests allocate and free gigabytes, and wait for the pages twice as long as they compute.
KEEP_FREED_MEMORY = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(2**34)}
FNO_TESTS = ["models/tests/test_fno.py"]
OTHER_TESTS = ["models/tests/test_uno.py", "layers/tests/test_fno_block.py"]


class Run:
    """A run of `host_suite` in a process of its own: two of them share the work of two cores."""

    def __init__(self, report, *arguments, **environment):
        self.report = report
        clean = {k: v for k, v in os.environ.items() if "AUTOLOAD" not in k}
        self.process = subprocess.Popen(
            [sys.executable, RUNNER, report, *arguments],
            env={**clean, "OMP_NUM_THREADS": "1", **KEEP_FREED_MEMORY, **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def result(self):
        output, _ = self.process.communicate()
        assert self.process.returncode == 0, output
        return json.loads(self.report.read_text())


def outcomes(*results):
    return Counter(outcome for result in results for outcome in result["outcomes"].values())


@pytest.mark.slow
def test_their_tests_pass_with_the_plugin_as_without(tmp_path):
    files = [*FNO_TESTS, *OTHER_TESTS]
    # Without: what there is to run. That all of it passes there is neuraloperator's business.
    without = Run(tmp_path / "0", "--collect-only", *files, CHONN_AUTOLOAD="0").result()
    assert not without["hooked"]
    runs = [Run(tmp_path / "1", *FNO_TESTS), Run(tmp_path / "2", *OTHER_TESTS)]
    results = [run.result() for run in runs]
    assert all(result["hooked"] for result in results)
    ran = [test for result in results for test in result["outcomes"]]
    assert sorted(ran) == sorted(without["outcomes"])
    assert outcomes(*results) == {"passed": len(without["outcomes"])}
    assert len(ran) > 300


@pytest.mark.slow
def test_their_fno_tests_pass_with_a_mixer_in_every_model(tmp_path):
    runs = [
        Run(tmp_path / mode, "--mixer", json.dumps(keywords), *FNO_TESTS)
        for mode, keywords in {
            "lift": {"spectral_mixer": "ckb"},
            "replace": {"spectral_mixer": "ckb", "spectral_mixer_kwargs": {"cell": "scan"}},
            "alongside": {
                "spectral_mixer": "ckb",
                "spectral_mixer_kwargs": {"cell": "scan"},
                "spectral_mixer_mode": "alongside",
                "spectral_mixer_layers": [0, -1],
            },
        }.items()
    ]
    for run in runs:
        result = run.result()
        passed = outcomes(result)["passed"]
        assert outcomes(result) == {"passed": passed}
        # Each test builds one model.
        assert result["mixed"] == passed > 250
