/* The solver that iterates, and the one of lines, for one instruction set: the build defines
 * VECTOR_BYTES and KERNEL. */

#include <math.h>
#include <string.h>

#include "_kernel.h"
#include "_half.h"
#include "network.h"
#include "grid.h"
#include "stopping.h"

enum { LINE_CHUNK = 256 }; /* nodes of a line that are read at once: they stay in the L1 cache */

static inline int is_line(const struct network_args *a) { return a->grid[0] == 1 && a->grid[1] == 1; }

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
