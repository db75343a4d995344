/* The multigrid solver for one instruction set: the build defines VECTOR_BYTES and KERNEL.
 *
 * A group is as many networks as a vector has lanes. All lanes walk the same grid in step, so that
 * sweeps that are sequential along the grid (Gauss-Seidel, elimination) still fill the vectors.
 * Few networks are solved one after the other, with neighbouring nodes in the lanes (rows.h). */

#include <math.h>
#include <string.h>

#include "_kernel.h"
#include "_half.h"
#include "network.h"
#include "grid.h"
#include "plan.h"
#include "cells.h"
#include "stopping.h"

enum {
    CHUNK_ROWS = 16,  /* of a plane, that a thread sweeps without a pause (rows.h) */
    CHUNK_PLANES = 4, /* the same of a volume */
    BUFFERS = 29,     /* rows of nodes that a thread keeps while it coarsens */
};

/* Share of a node's conductances below which the axes that it lies between coarse nodes on do not
 * tie it to anything: 0.005 to 0.1 took the same iterations at a contrast of 10,000, 0.1 fewer at
 * 100. */
#define LOOSE 0.1

#define REAL float
#define INTEGER int32_t
#define NAME(x) x##_float
#include "real.h"
#undef REAL
#undef INTEGER
#undef NAME

#define REAL double
#define INTEGER int64_t
#define NAME(x) x##_double
#include "real.h"

const struct network_kernel KERNEL(network)[2] = {
    {run_solve_float, run_workspace_float, VECTOR_BYTES / 4},
    {run_solve_double, run_workspace_double, VECTOR_BYTES / 8},
};
