/* Everything of one precision. */
typedef REAL NAME(vec) __attribute__((vector_size(VECTOR_BYTES)));
typedef REAL NAME(unaligned) __attribute__((vector_size(VECTOR_BYTES), aligned(sizeof(REAL)), may_alias));
typedef INTEGER NAME(mask) __attribute__((vector_size(VECTOR_BYTES)));
#define vec NAME(vec)
#define LANES ((int)(VECTOR_BYTES / sizeof(REAL)))

/* value - 0 costs nothing; value + 0 is an addition, which turns -0 into 0. */
INLINE vec NAME(splat)(REAL value) { return value - (vec){}; }

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

/* n such that a magnitude is near 2^n, and 2^n and 2^-n are finite; 0 where there is none. */
static int NAME(exponent)(REAL value) {
    const int most = sizeof(REAL) == 4 ? 126 : 1022;
    int exponent = 0;
    if (value > 0 && isfinite(value)) frexp((double)value, &exponent);
    return exponent > most ? most : exponent < -most ? -most : exponent;
}

/* A network whose neighbouring nodes fill the vectors. */
#define ELEMENT REAL
#define MASK int
#define NETWORKS 1
#define SELECT(mask, yes, no) ((mask) ? (yes) : (no))
#define FORM(x) NAME(x##_nodes)
#include "multigrid.h"
#undef ELEMENT
#undef MASK
#undef NETWORKS
#undef SELECT
#undef FORM

/* As many networks as a vector has lanes. */
#define ELEMENT vec
#define MASK NAME(mask)
#define NETWORKS LANES
#define SELECT(mask, yes, no) NAME(select)(mask, yes, no)
#define FORM(x) NAME(x##_networks)
#include "multigrid.h"
#include "line.h"
#undef ELEMENT
#undef MASK
#undef NETWORKS
#undef SELECT
#undef FORM

static int64_t NAME(run_workspace)(const struct network_args *a) {
    if (is_line(a)) return NAME(line_bytes)(a);
    return a->alone ? NAME(workspace_nodes)(a) : NAME(workspace_networks)(a);
}

static void NAME(run_solve)(const struct network_args *a) {
    if (is_line(a))
        NAME(solve_lines)(a);
    else if (a->alone)
        NAME(solve_nodes)(a);
    else
        NAME(solve_networks)(a);
}

#undef vec
#undef LANES
