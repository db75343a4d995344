"""The tables of README.md and docs/ are those of the result files, and so is what they sum up."""

import subprocess
import sys


def test_tables_of_the_pages_come_from_the_result_files():
    subprocess.run([sys.executable, "-m", "chonn_lab.pages.tables", "--check"], check=True)
