/* The direct method for one instruction set: the build defines VECTOR_BYTES and KERNEL.
 *
 * Everything exists twice for each precision: an element of a front is one value of every network
 * of a group ("lanes"), or one number, and vectors are pieces of the front's rows ("rows"). */

#include <float.h>
#include <math.h>
#include <string.h>

#include "_kernel.h"
#include "network/direct/fronts.h"
#include "direct.h"

enum {
    WORTH_SHARING = 4000000, /* multiply-adds of an update for which threads are woken */
    /* Nodes of a front whose rows are too short for a call of memset or memcpy each: one network of
     * 64 x 64 took 6 % longer with these calls. */
    SMALL_FRONT = 48,
    AHEAD = 8192, /* bytes of factors that are prefetched: 400 of 64 x 64 took 4 % longer without */
};

/* Where row i of an update of `width` nodes and ground begins, its first column being i + 1. */
static inline int64_t update_row(int64_t width, int64_t i) { return i * width - i * (i - 1) / 2; }

#define REAL float
#define INTEGER int32_t
#define TINIEST FLT_MIN
#define EPSILON FLT_EPSILON
#define NAME(x) x##_float
#include "real.h"
#undef REAL
#undef INTEGER
#undef TINIEST
#undef EPSILON
#undef NAME

#define REAL double
#define INTEGER int64_t
#define TINIEST DBL_MIN
#define EPSILON DBL_EPSILON
#define NAME(x) x##_double
#include "real.h"

const struct direct_kernel KERNEL(direct)[2] = {
    {run_float, workspace_float, VECTOR_BYTES / 4},
    {run_double, workspace_double, VECTOR_BYTES / 8},
};
