/* The direct method for one instruction set: the build defines VECTOR_BYTES and KERNEL.
 *
 * The files below are included for each type of number, real or complex, of both precisions, and for
 * each mode: an element of a front is one value of every network of a group ("lanes"), or one number,
 * and vectors are pieces of the front's rows ("rows", of real numbers only):
 *     numbers.h     vectors, and how networks are packed into them
 *     mode.h        elements, their sums and products; what one call does
 *     factorize.h   elimination;  substitute.h  substitution;  invert.h  entries of the inverse
 *     solve.h       potentials and drops of real networks, with tiles.h and real.h
 *     refine.h      potentials of complex networks, whose pivots may lose digits */

#include <float.h>
#include <math.h>
#include <string.h>

#include "_kernel.h"
#include "direct.h"
#include "fronts.h"

enum {
    WORTH_SHARING = 4000000, /* multiply-adds of an update for which threads are woken */
    /* Nodes of a front whose rows are too short for a call of memset or memcpy each: one network of
     * 64 x 64 took 6 % longer with these calls. */
    SMALL_FRONT = 48,
    BLOCK = 16, /* nodes after which the next lane's are packed */
    AHEAD = 8192, /* bytes of factors that are prefetched: 400 of 64 x 64 took 4 % longer without */
};

/* Where row i of an update of `width` nodes and ground begins, its first column being i + 1. */
static inline int64_t update_row(int64_t width, int64_t i) { return i * width - i * (i - 1) / 2; }

#define REAL float
#define INTEGER int32_t
#define TINIEST FLT_MIN
#define EPSILON FLT_EPSILON
#define FEW 3.5e-4f /* sqrt(FLT_EPSILON) */
#define NAME(x) x##_float
#include "real.h"
#undef NAME
#define NAME(x) x##_complex_float
#include "complex.h"
#undef REAL
#undef INTEGER
#undef TINIEST
#undef EPSILON
#undef FEW
#undef NAME

#define REAL double
#define INTEGER int64_t
#define TINIEST DBL_MIN
#define EPSILON DBL_EPSILON
#define FEW 1.5e-8 /* sqrt(DBL_EPSILON) */
#define NAME(x) x##_double
#include "real.h"
#undef NAME
#define NAME(x) x##_complex_double
#include "complex.h"

const struct direct_kernel KERNEL(direct)[] = {
    {run_float, workspace_float, VECTOR_BYTES / 4},
    {run_double, workspace_double, VECTOR_BYTES / 8},
    {run_lanes_complex_float, workspace_lanes_complex_float, VECTOR_BYTES / 4},
    {run_lanes_complex_double, workspace_lanes_complex_double, VECTOR_BYTES / 8},
};
