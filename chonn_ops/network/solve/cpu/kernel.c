/* The solver that iterates, and the one of lines, for one instruction set and size of numbers. */

#include <string.h>

#include "_kernel.h"
#include "_half.h"
#include "network.h"
#include "grid.h"
#include "stopping.h"

enum { LINE_CHUNK = 256 }; /* nodes of a line that are read at once: they stay in the L1 cache */

static inline int is_line(const struct network_args *a) { return a->grid[0] == 1 && a->grid[1] == 1; }

#include "real.h"

const struct network_kernel KERNEL(network) = {run_solve, run_workspace, LANES};
