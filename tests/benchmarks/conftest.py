"""The programs in benchmarks/ and tools/ are scripts: their helpers are found beside them."""

import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path += [str(ROOT / "benchmarks"), str(ROOT / "tools")]
