/* Everything of one precision of real numbers. */
typedef REAL piece16 __attribute__((vector_size(16)));

/* Where potentials underflow, they have no digits to be right in. */
#define LEAST (TINIEST / EPSILON)

INLINE REAL magnitude(REAL v) { return v < 0 ? -v : v; }

INLINE REAL size_of(REAL v) { return magnitude(v) + LEAST; }

/* value - 0 costs nothing; value + 0 is an addition, which turns -0 into 0. */
INLINE vec splat(REAL value) { return value - (vec){}; }

/* 1 / pivot; 0 where there is none, or one so small that nothing divides by it. */
INLINE vec reciprocal(vec pivot) { return (vec)((mask)(pivot >= TINIEST) & (mask)(1 / pivot)); }

/* a where `given` is above 0, else b. */
INLINE vec either(vec given, vec a, vec b) { return pick(given > 0, a, b); }

INLINE vec larger(vec a, vec b) { return pick(a > b, a, b); }

/* Keeps the lanes from `first` up to `last`; the others become 0. */
INLINE vec between(vec value, int64_t first, int64_t last) {
    mask lanes;
    UNROLL for (int lane = 0; lane < LANES; lane++) lanes[lane] = lane;
    return (vec)((lanes >= (INTEGER)first) & (lanes < (INTEGER)last) & (mask)value);
}

/* In pieces of 16 bytes, which gcc adds in registers; an array of single lanes goes through memory. */
INLINE REAL sum_of(vec value) {
    piece16 part[VECTOR_BYTES / 16];
    memcpy(part, &value, sizeof part);
    UNROLL for (int width = VECTOR_BYTES / 32; width; width /= 2) UNROLL for (int i = 0; i < width; i++)
        part[i] += part[i + width];
    REAL total[16 / sizeof(REAL)];
    UNROLL for (int lane = 0; lane < (int)(16 / sizeof(REAL)); lane++) total[lane] = part[0][lane];
    UNROLL for (int width = 8 / sizeof(REAL); width; width /= 2)
        UNROLL for (int lane = 0; lane < width; lane++) total[lane] += total[lane + width];
    return total[0];
}

APART void unpack(const vec *from, const int64_t *at, int width, int64_t step, int64_t nodes, REAL *to) {
    if (together(at, width)) {
        for (int64_t p = 0; p < nodes; p++) *(loose *)(to + at[0] + p * step) = from[p];
        return;
    }
    for (int64_t first = 0; first < nodes; first += BLOCK) {
        const int64_t last = least(first + BLOCK, nodes);
        for (int lane = 0; lane < width; lane++)
            for (int64_t p = first; p < last; p++)
                to[at[lane] + p * step] = ((const REAL *)(from + p))[lane];
    }
}

INLINE void store(const struct item *item, REAL *field, const int64_t *at, int64_t node, vec value) {
    for (int lane = 0; lane < item->width; lane++) field[at[lane] + node] = value[lane];
}

/* Numbers of the factors' precision in the place of `count` doubles, behind which whole vectors may
 * read. */
APART void narrow(double *values, int64_t count) {
    const int each = VECTOR_BYTES / 8;
    for (int64_t i = 0; i < count; i += each)
        *(half *)((REAL *)values + i) =
            __builtin_convertvector(*(const loose_doubles *)(values + i), half);
}

INLINE void add_squares(const REAL *x, int64_t count, double *sum) {
    wide total = {};
    int64_t i = 0;
    for (; i + LANES <= count; i += LANES) {
        const vec some = *(const loose *)(x + i);
        const wide value = widen(&some);
        UNROLL for (int k = 0; k < HALVES; k++) total.part[k] += value.part[k] * value.part[k];
    }
    for (int lane = 0; lane < LANES; lane++) sum[lane] = ((const double *)&total)[lane];
    for (; i < count; i++) sum[0] += (double)x[i] * (double)x[i];
}

/* Takes the currents of edges between nodes `far` apart from r, and adds to z what they are sums of. */
INLINE void take_currents(const REAL *restrict g, const REAL *v, int64_t edges, int64_t far,
                          REAL *restrict r, REAL *restrict z) {
#define CURRENT (g[i] * (v[i] - v[i + far]))
#define TERMS (g[i] * (size_of(v[i]) + size_of(v[i + far])))
    for (int64_t i = 0; i < edges; i++) r[i] -= CURRENT, z[i] += TERMS;
    for (int64_t i = 0; i < edges; i++) r[i + far] += CURRENT, z[i + far] += TERMS;
#undef CURRENT
#undef TERMS
}

/* |s - A v| / |s| in each lane, and 0 where that is what rounding v leaves. r: the sources, which are
 * lost; z: scratch. A node with neither edge nor leak, which has no inverse, is no part of the
 * network; a NaN in its source still counts. `reals` as in `scales_of`. */
APART void residuals(const struct direct_args *a, const struct item *item, int reals, const REAL *inverse,
                     REAL *r, const REAL *v, REAL *z, double *residual) {
    const int64_t count = a->nodes * reals;
    const REAL *leak = item->field[0];
    double norm[LANES], squares[LANES], terms[LANES];
    for (int64_t p = 0; p < a->nodes; p++) {
        const int64_t at = a->node[p] * (int64_t)reals;
        if (reals == 1) {
            if (!(inverse[p] > 0) && !(leak[at] > 0)) r[at] *= 0;
            continue;
        }
        const vec value = *(const loose *)(r + at);
        const vec tied = larger(*(const loose *)(leak + at), *(const loose *)(inverse + p * reals));
        *(loose *)(r + at) = either(tied, value, value * 0);
    }
    add_squares(r, count, norm);
    for (int64_t i = 0; i < count; i++) r[i] -= leak[i] * v[i], z[i] = leak[i] * size_of(v[i]) + LEAST;
    for (const struct direct_run *run = a->runs; run < a->runs + a->num_runs; run++) {
        const int64_t at = run->node * reals;
        take_currents(item->field[1 + run->axis] + run->entry * reals, v + at, run->count * reals,
                      run->far * reals, r + at, z + at);
    }
    add_squares(r, count, squares);
    add_squares(z, count, terms);
    if (reals == 1)
        for (int lane = 1; lane < LANES; lane++)
            norm[0] += norm[lane], squares[0] += squares[lane], terms[0] += terms[lane];
    for (int lane = 0; lane < item->width; lane++) {
        const double rounding = NETWORK_ROUNDING * (double)EPSILON * sqrt(terms[lane]),
                     size = sqrt(squares[lane]);
        residual[lane] = size <= rounding ? 0 : size / (norm[lane] > 0 ? sqrt(norm[lane]) : 1);
    }
}

/* Connected parts of one network, whose numbers lie `step` apart. `label`, by position: that of the
 * part's last node, which hands nothing on but to ground; -1 for what is no part of the network. */
APART void find_parts(const struct direct_args *a, const REAL *shares, const REAL *inverse,
                      const REAL *grounded, int64_t step, INTEGER *label) {
    for (int64_t r = a->regions - 1; r >= 0; r--) {
        const int64_t n = a->pivots[r], f = n + a->width[r], first = a->first[r];
        const int32_t *boundary = a->boundary + a->boundary_at[r];
        for (int64_t i = n - 1; i >= 0; i--) {
            const int64_t p = first + i;
            const REAL *h = shares + (a->share_at[r] + share_index(f, i, 0)) * step;
            int64_t q = i + 1;
            while (q < f && !(h[q * step] > 0)) q++;
            const int64_t last = q == f ? p : label[(q < n ? first + q : boundary[q - n]) * step];
            label[p * step] = (INTEGER)(inverse[p * step] > 0 ? last : -1);
        }
    }
}

/* `take_level` of one network, each of whose parts has a level V of its own. Values of one source lie
 * `apart`.
 * `limit`: what the rounding of currents may make of the potential of a part's last node; 0 for other
 * nodes. */
APART void take_levels(const struct direct_args *a, const REAL *leak, const INTEGER *label, int64_t step,
                       const double *s, double *u, int64_t apart, REAL *limit, int64_t limits_apart,
                       double *sums) {
    for (int64_t p = 0; p < a->nodes; p++) u[p * apart] = s[p * apart];
    /* The level is taken twice, because a node's own leak may take nearly all of its source, which
     * leaves rounding. The third round finds the limits. */
    for (int round = 0; round < 3; round++) {
        memset(sums, 0, (size_t)(3 * a->nodes) * sizeof(double));
        for (int64_t p = 0; p < a->nodes; p++) {
            if (label[p * step] < 0) continue;
            double *const sum = sums + 3 * label[p * step], current = u[p * apart];
            sum[0] += current;
            sum[1] += (double)leak[p * step];
            sum[2] += current < 0 ? -current : current;
        }
        for (int64_t p = 0; p < a->nodes; p++) {
            const double *const sum = sums + 3 * (label[p * step] > 0 ? label[p * step] : 0);
            const int inside = label[p * step] >= 0 && sum[1] > 0;
            const int is_last = inside && label[p * step] == p;
            const double level = inside && round < 2 ? sum[0] / sum[1] : 0;
            u[p * apart] -= (double)leak[p * step] * level;
            limit[p * limits_apart] = (REAL)(is_last ? 4 * (double)EPSILON * sum[2] / sum[1] : 0);
        }
    }
}

/* For each node, a power of two that is at least the largest |u| of its part and at most twice that, or
 * tiny. Values of one source lie `apart`, the powers `sizes_apart`. */
APART void part_sizes(const struct direct_args *a, const INTEGER *label, int64_t step, const REAL *u,
                      int64_t apart, REAL *size, int64_t sizes_apart) {
    for (int64_t p = 0; p < a->nodes; p++) size[p * sizes_apart] = 0;
    for (int64_t p = 0; p < a->nodes; p++) {
        if (label[p * step] < 0) continue;
        const REAL own = magnitude(u[p * apart]);
        REAL *const most = size + label[p * step] * sizes_apart;
        *most = own > *most ? own : *most;
    }
    for (int64_t p = 0; p < a->nodes; p++) {
        if (label[p * step] != p) continue;
        REAL *const own = size + p * sizes_apart;
        *own = *own > 0 && isfinite(*own) ? (REAL)ldexp(1, exponent_of(*own)) : TINIEST;
    }
    for (int64_t p = 0; p < a->nodes; p++) {
        const int64_t last = label[p * step];
        if (last != p) size[p * sizes_apart] = last < 0 ? 1 : size[last * sizes_apart];
    }
}

/* Replaces a solved drop by the difference of the two potentials where they deviate by more than these
 * potentials are rounded by: then the solved drop is wrong.
 *
 * Either way of finding a drop fails somewhere. A difference of two large potentials loses the digits of
 * a small drop. Where sources have one sign, every potential is a sum of positive terms and has all its
 * digits, however small it is. Errors of solved drops are relative to the largest u nearby. That is too
 * coarse where potentials decay, behind weak edges, and along an edge of conductance 0 between two parts.
 *
 * `v` is in the order of nodes. `reals`: numbers of one of its values, and of a drop. */
APART void judge_drops(const struct direct_args *a, int64_t reals, const REAL *restrict v,
                       REAL *restrict drop) {
    for (const struct direct_run *run = a->runs; run < a->runs + a->num_runs; run++) {
        REAL *solved = drop + (run->axis * a->entries + run->entry) * reals;
        const REAL *first = v + run->node * reals, *second = first + run->far * reals;
        for (int64_t i = 0; i < run->count * reals; i++) {
            const REAL plain = first[i] - second[i], off = solved[i] - plain;
            const REAL both = magnitude(first[i]) + magnitude(second[i]);
            solved[i] = magnitude(off) <= DIRECT_OFF * EPSILON * both ? solved[i] : plain;
        }
    }
}

#define ROWS 0
#define MODE(x) x##_lanes
#include "mode.h"
#undef ROWS
#undef MODE
#include "tiles.h"
#define ROWS 1
#define MODE(x) x##_rows
#include "mode.h"
#undef ROWS
#undef MODE

static int64_t workspace(const struct direct_args *a) {
    return a->rows ? workspace_rows(a) : workspace_lanes(a);
}

static void run(const struct direct_args *a) {
    if (a->rows)
        run_rows(a);
    else
        run_lanes(a);
}
