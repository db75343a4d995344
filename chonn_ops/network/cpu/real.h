/* Everything of one precision. `vec` is one value of every network of a group. */
typedef REAL NAME(vec) __attribute__((vector_size(VECTOR_BYTES)));
typedef INTEGER NAME(mask) __attribute__((vector_size(VECTOR_BYTES)));
#define vec NAME(vec)
#define LANES ((int)(VECTOR_BYTES / sizeof(REAL)))

/* value - 0 costs nothing; value + 0 is an addition, which turns -0 into 0. */
INLINE vec NAME(splat)(REAL value) { return value - (vec){}; }

/* value where mask is set, else zero: also where value is NaN. */
INLINE vec NAME(where)(NAME(mask) mask, vec value) { return (vec)(mask & (NAME(mask))value); }

/* 1 / value; 0 where that is not positive: a node without edges and leak has no potential. */
INLINE vec NAME(inverse)(vec value) { return NAME(where)(value > 0, 1 / value); }

/* n such that a magnitude is near 2^n, and 2^n and 2^-n are finite; 0 where there is none. */
static int NAME(exponent)(REAL value) {
    const int most = sizeof(REAL) == 4 ? 126 : 1022;
    int exponent = 0;
    if (value > 0 && isfinite(value)) frexp((double)value, &exponent);
    return exponent > most ? most : exponent < -most ? -most : exponent;
}

#include "level.h"
#include "pack.h"
#include "eliminate.h"
#include "coarsen.h"
#include "smooth.h"
#include "transfer.h"
#include "cycle.h"
#include "line.h"
#include "rows.h"
#include "solve.h"

#undef vec
#undef LANES
