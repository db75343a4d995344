/* The multigrid solver for one instruction set: the build defines VECTOR_BYTES and KERNEL.
 *
 * Few networks are solved one after the other: neighbouring nodes fill the vectors, and all threads
 * share the grid. Many are solved in groups of as many networks as a vector has lanes, and each thread
 * solves groups of its own. multigrid.h is compiled for both. */

#include <math.h>
#include <string.h>

#include "_kernel.h"
#include "_half.h"
#include "network.h"
#include "grid.h"
#include "plan.h"
#include "cells.h"
#include "stopping.h"

enum { BUFFERS = 29 }; /* rows of nodes that a thread keeps while it coarsens */

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
