"""``python -m chonn_ops.cli``."""

import sys

from chonn_ops.cli import main

sys.exit(main())
