"""Runs netlists in ngspice."""

import re
import shutil
import subprocess

import pytest

needs_ngspice = pytest.mark.skipif(
    shutil.which("ngspice") is None, reason="needs ngspice: make setup-ngspice"
)


def run(netlist, folder):
    """What ngspice prints for a netlist."""
    path = folder / "circuit.cir"
    path.write_text(netlist)
    done = subprocess.run(
        ["ngspice", "-b", str(path)], capture_output=True, text=True, timeout=300, check=False
    )
    printed = done.stdout + done.stderr
    assert done.returncode == 0, printed
    assert not re.search(r"error|singular", printed, re.IGNORECASE), printed
    return printed


def measured(printed, name):
    """Measurements name_1, name_2, ... of a transient."""
    return [float(x) for x in re.findall(rf"^{name}_\d+\s*=\s*(\S+)", printed, re.MULTILINE)]


def operating_point(printed):
    """Potential of every node, and current of every voltage source as name#branch."""
    rows = re.findall(r"^\s*([a-z][\w#]*)\s+(-?\d\S*)\s*$", printed, re.MULTILINE)
    return {name: float(value) for name, value in rows}


def alternating(printed):
    """Complex potential of every node that a netlist's lines ``.print ac`` name, at one
    frequency."""
    number = r"(-?[\d.]+e[+-]\d+),?"
    rows = re.findall(
        rf"vr\((\w+)\)\s+vi\(\w+\)\s*\n-+\n0\s+{number}\s+{number}\s+{number}", printed
    )
    return {name: complex(float(real), float(imaginary)) for name, _, real, imaginary in rows}
