"""Processes with hosts, integrations and a table of them made for a test."""

import os
import sys
import textwrap

from commands import run

HOST = """
    class Model:
        pass
"""
# What autoload imports once `host.models` is loaded; it must find the host complete.
INTEGRATION = """
    from host.models import Model
    calls = []
    def install():
        from host.models import Model
        calls.append(Model)
"""
FAKES = """
    import sys, warnings
    import chonn_autoload
    from chonn_plugins import autoload
    autoload.HOSTS.clear()
    autoload.HOSTS["host.models"] = "ours:install"
"""


def write(folder, files):
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))


def succeeds(folder, code, *options, **environment):
    """Run code in a process of its own, with the files in `folder` importable."""
    unset = dict.fromkeys(name for name in os.environ if "AUTOLOAD" in name)
    env = {**unset, "PYTHONPATH": str(folder), **environment}
    return run(sys.executable, *options, "-c", textwrap.dedent(code), env=env)


class Fakes:
    """A folder with a host package, a module that integrates it, and a table that says so."""

    def __init__(self, folder):
        self.folder = folder
        host = {"host/__init__.py": "", "host/models.py": HOST, "host/other.py": ""}
        self.write({**host, "ours.py": INTEGRATION, "fakes.py": FAKES})

    def write(self, files):
        write(self.folder, files)

    def run(self, code, *options):
        """Run code that knows the fakes; it ends without an error."""
        code = "from fakes import *\n" + textwrap.dedent(code)
        return succeeds(self.folder, code, *options)

    def silent(self, code):
        assert self.run(code).stderr == ""
