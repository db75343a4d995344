"""``python -m chonn_lab.cli``. Processes that it starts do not import this module."""

import sys

from chonn_lab.cli import main

sys.exit(main())
