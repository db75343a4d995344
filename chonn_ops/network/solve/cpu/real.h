/* Vectors, and the solvers that are made of them. */
typedef REAL vec __attribute__((vector_size(VECTOR_BYTES)));
typedef INTEGER mask __attribute__((vector_size(VECTOR_BYTES)));

INLINE vec pick(mask some, vec yes, vec no) { return (vec)((some & (mask)yes) | (~some & (mask)no)); }

/* value where `some` is set, else zero: also where value is NaN. */
INLINE vec where(mask some, vec value) { return (vec)(some & (mask)value); }

/* max(most, |value|) */
INLINE vec larger(vec most, vec value) {
    const vec size = pick(value < 0, -value, value);
    return pick(size > most, size, most);
}

/* 1 / value; 0 where that is not positive: a node without edges and leak has no potential. */
INLINE vec inverse_of(vec value) { return where(value > 0, 1 / value); }

INLINE vec from_doubles(const double *values) {
    vec result;
    for (int k = 0; k < LANES; k++) result[k] = (REAL)values[k];
    return result;
}

#include "pack.h"
#include "multigrid.h"
#include "line.h"

static int64_t run_workspace(const struct network_args *a) {
    return is_line(a) ? line_bytes(a) : workspace(a);
}

static void run_solve(const struct network_args *a) {
    if (is_line(a))
        solve_lines(a);
    else
        solve(a);
}
