"""The programs in tools/ are scripts: their helpers are found beside them."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2] / "tools"))
