"""Programs in processes of their own."""

import os
import subprocess
import sys
from collections.abc import Mapping
from typing import Any


def run(
    *command: Any, code: int | None = 0, env: Mapping[str, str | None] = {}, **options: Any
) -> subprocess.CompletedProcess[str]:
    """Run a program, with `env` beside the variables of this process, None for one that is unset,
    and return what it printed. It ends with the exit code `code`, or any one for None."""
    kept = {name: value for name, value in {**os.environ, **env}.items() if value is not None}
    given = {"capture_output": True, "text": True, "check": False, **options}
    done = subprocess.run([*map(str, command)], env=kept, **given)
    assert code in (None, done.returncode), f"{done.stdout}{done.stderr}"
    return done


def python(code: str, *arguments: Any, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run Python code."""
    return run(sys.executable, "-c", code, *arguments, **options)
