/* Everything of one precision. */
typedef REAL NAME(vec) __attribute__((vector_size(VECTOR_BYTES)));
typedef INTEGER NAME(mask) __attribute__((vector_size(VECTOR_BYTES)));
#define vec NAME(vec)
#define LANES ((int)(VECTOR_BYTES / sizeof(REAL)))

INLINE vec NAME(select)(NAME(mask) mask, vec yes, vec no) {
    return (vec)((mask & (NAME(mask))yes) | (~mask & (NAME(mask))no));
}

/* value where mask is set, else zero: also where value is NaN. */
INLINE vec NAME(where)(NAME(mask) mask, vec value) { return (vec)(mask & (NAME(mask))value); }

/* max(most, |value|) */
INLINE vec NAME(larger)(vec most, vec value) {
    const vec size = NAME(select)(value < 0, -value, value);
    return NAME(select)(size > most, size, most);
}

/* 1 / value; 0 where that is not positive: a node without edges and leak has no potential. */
INLINE vec NAME(inverse)(vec value) { return NAME(where)(value > 0, 1 / value); }

INLINE vec NAME(from_doubles)(const double *values) {
    vec result;
    for (int k = 0; k < LANES; k++) result[k] = (REAL)values[k];
    return result;
}

/* n such that a magnitude is near 2^n, and 2^n and 2^-n are finite; 0 where there is none. */
static int NAME(exponent)(REAL value) {
    const int most = sizeof(REAL) == 4 ? 126 : 1022;
    int exponent = 0;
    if (value > 0 && isfinite(value)) frexp((double)value, &exponent);
    return exponent > most ? most : exponent < -most ? -most : exponent;
}

#include "pack.h"
#include "multigrid.h"
#include "line.h"

static int64_t NAME(run_workspace)(const struct network_args *a) {
    return is_line(a) ? NAME(line_bytes)(a) : NAME(workspace)(a);
}

static void NAME(run_solve)(const struct network_args *a) {
    if (is_line(a))
        NAME(solve_lines)(a);
    else
        NAME(solve)(a);
}

#undef vec
#undef LANES
