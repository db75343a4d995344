"""``python -m chonn_lab.cli``."""

import sys

from chonn_lab.cli import main

sys.exit(main())
