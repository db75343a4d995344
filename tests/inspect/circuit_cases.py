"""Random circuits of known coefficients."""

import numpy as np

from chonn_ops.inspect import Cascade, RCCell


def random_cell(rng):
    C, leak, coupling = rng.uniform(0.3, 3, 3)
    B, c, d = rng.uniform(-2, 2, 3)
    return RCCell(C, leak, coupling, B, c, d)


def random_cascade(stages, seed=0):
    rng = np.random.default_rng(seed)
    return Cascade(random_cell(rng) for _ in range(stages))
