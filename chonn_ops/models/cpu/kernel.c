/* Limited fluxes for one instruction set: the build defines VECTOR_BYTES and KERNEL. */

#include <string.h>

#include "_kernel.h"
#include "carry.h"

enum { FIELDS = 12 }; /* of a sample, in the workspace */

static inline int64_t cells(const struct carry_args *a) { return a->grid[0] * a->grid[1] * a->grid[2]; }

static int64_t workspace(const struct carry_args *a) { return FIELDS * cells(a); }

#define REAL float
#define NAME(x) x##_float
#include "real.h"
#undef REAL
#undef NAME

#define REAL double
#define NAME(x) x##_double
#include "real.h"

const struct carry_kernel KERNEL(carry)[2] = {
    {forward_float, backward_float, fastest_float, workspace, VECTOR_BYTES / 4},
    {forward_double, backward_double, fastest_double, workspace, VECTOR_BYTES / 8},
};
