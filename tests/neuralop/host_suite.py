"""Runs neuraloperator's own tests, as installed, in a process of its own; writes what came out.

    python host_suite.py report.json [--collect-only] [--mixer KEYWORDS] FILE...

Files are relative to the package ``neuralop``. The report maps test ids to outcomes, and says how
many models were built with how many CKBs. With ``--mixer``, a JSON object of keywords, every FNO
that the tests build takes them; tests in four dimensions, which no CKB has, are left out then.
"""

import argparse
import functools
import inspect
import json
import sys
from pathlib import Path

import neuralop
import pytest
import torch
from neuralop.models import FNO


class Report:
    def __init__(self, mixer: dict | None) -> None:
        self.mixer, self.outcomes, self.mixed = mixer, {}, 0

    def pytest_collection_modifyitems(self, config, items):
        if self.mixer is not None:
            four = [i for i in items if _parameters(i).get("n_dim") == 4]
            items[:] = [i for i in items if i not in four]
            config.hook.pytest_deselected(items=four)
        self.outcomes.update({item.nodeid: "collected" for item in items})

    def pytest_runtest_logreport(self, report):
        if report.when == "call" or report.outcome != "passed":
            self.outcomes[report.nodeid] = report.outcome

    def mix_every_fno(self):
        plain = FNO.__init__

        @functools.wraps(plain)
        def __init__(model, *args, **kwargs):
            plain(model, *args, **kwargs, **self.mixer)
            self.mixed += any(type(m).__name__ == "CKB" for m in model.modules())

        FNO.__init__ = __init__


def _parameters(item) -> dict:
    return item.callspec.params if hasattr(item, "callspec") else {}


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("report", type=Path)
    parser.add_argument("--collect-only", action="store_true")
    parser.add_argument("--mixer", type=json.loads)
    parser.add_argument("files", nargs="+")
    options = parser.parse_args()
    # Their tests move models to "cuda" wherever torch was built with it, GPU or not.
    torch.has_cuda = False
    report = Report(options.mixer)
    hooked = "spectral_mixer" in inspect.signature(FNO).parameters
    if options.mixer is not None:
        report.mix_every_fno()
    package = Path(neuralop.__file__).parent
    arguments = [str(package / file) for file in options.files]
    arguments += [f"--rootdir={package.parent}", "-c", "/dev/null", "-q", "-p", "no:cacheprovider"]
    if options.collect_only:
        arguments.append("--collect-only")
    code = pytest.main(arguments, plugins=[report])
    found = {"hooked": hooked, "mixed": report.mixed, "outcomes": report.outcomes}
    options.report.write_text(json.dumps(found))
    return int(code)


if __name__ == "__main__":
    sys.exit(main())
