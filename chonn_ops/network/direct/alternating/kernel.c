/* The direct method for complex numbers and one instruction set: the build defines VECTOR_BYTES and
 * KERNEL.
 *
 * A vector holds one real or imaginary part of every network of a group. Factors exist in both
 * precisions; refinement is of double precision. */

#include <float.h>
#include <math.h>
#include <string.h>

#include "_kernel.h"
#include "network/direct/fronts.h"
#include "alternating.h"

/* Rows and columns of a block whose sums stay in registers. */
#if VECTOR_BYTES == 64
#define ROWS 4
#define COLUMNS 2
#else
#define ROWS 2
#define COLUMNS 2
#endif

/* c += s a. */
#define ADD_PRODUCT(c, s, a)                                                          \
    ((c).re += (s).re * (a).re, (c).im += (s).re * (a).im, (c).re -= (s).im * (a).im, \
     (c).im += (s).im * (a).re)

#define REAL float
#define INTEGER int32_t
#define PARTS 2     /* vectors of doubles that a vector widens to */
#define TINIEST FLT_MIN
#define FEW 3.5e-4f /* sqrt(FLT_EPSILON) */
#define ALWAYS 1    /* refinements whatever the residual: it may be far below the error */
#define NAME(x) x##_float
#include "factorize.h"
#include "solve.h"
#include "precision.h"
#undef REAL
#undef INTEGER
#undef PARTS
#undef TINIEST
#undef FEW
#undef ALWAYS
#undef NAME

#define REAL double
#define INTEGER int64_t
#define PARTS 1
#define TINIEST DBL_MIN
#define FEW 1.5e-8 /* sqrt(DBL_EPSILON) */
#define ALWAYS 0
#define NAME(x) x##_double
#include "factorize.h"
#include "solve.h"
#include "precision.h"

const struct alternating_kernel KERNEL(alternating)[2] = {
    {run_float, workspace_float, VECTOR_BYTES / 4},
    {run_double, workspace_double, VECTOR_BYTES / 8},
};
