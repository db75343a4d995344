/* Everything of one precision. */
typedef REAL NAME(vec) __attribute__((vector_size(VECTOR_BYTES)));
typedef REAL NAME(loose) __attribute__((vector_size(VECTOR_BYTES), aligned(sizeof(REAL)), may_alias));
typedef INTEGER NAME(mask) __attribute__((vector_size(VECTOR_BYTES)));
typedef REAL NAME(short) __attribute__((vector_size(16)));
#define vec NAME(vec)
#define loose NAME(loose)
#define LANES ((int)(VECTOR_BYTES / sizeof(REAL)))

/* Doubles of as many lanes. */
typedef double NAME(wide) __attribute__((vector_size(LANES * 8)));
/* Where potentials underflow, they have no digits to be right in. */
#define LEAST (TINIEST / EPSILON)

INLINE REAL NAME(size)(REAL v) { return (v < 0 ? -v : v) + LEAST; }

/* value - 0 costs nothing; value + 0 is an addition, which turns -0 into 0. */
INLINE vec NAME(splat)(REAL value) { return value - (vec){}; }

/* 1 / pivot; 0 where there is none, or one so small that nothing divides by it. */
INLINE vec NAME(reciprocal)(vec pivot) {
    return (vec)((NAME(mask))(pivot >= TINIEST) & (NAME(mask))(1 / pivot));
}

/* a where `given` is above 0, else b. */
INLINE vec NAME(either)(vec given, vec a, vec b) {
    const NAME(mask) some = given > 0;
    return (vec)((some & (NAME(mask))a) | (~some & (NAME(mask))b));
}

INLINE vec NAME(larger)(vec a, vec b) {
    const NAME(mask) first = a > b;
    return (vec)((first & (NAME(mask))a) | (~first & (NAME(mask))b));
}

/* Keeps the lanes from `first` up to `last`; the others become 0. */
INLINE vec NAME(between)(vec value, int64_t first, int64_t last) {
    NAME(mask) lanes;
    UNROLL for (int lane = 0; lane < LANES; lane++) lanes[lane] = lane;
    return (vec)((lanes >= (INTEGER)first) & (lanes < (INTEGER)last) & (NAME(mask))value);
}

/* In pieces of 16 bytes, which gcc adds in registers; an array of single lanes goes through memory. */
INLINE REAL NAME(sum)(vec value) {
    NAME(short) part[VECTOR_BYTES / 16];
    memcpy(part, &value, sizeof part);
    UNROLL for (int width = VECTOR_BYTES / 32; width; width /= 2) UNROLL for (int i = 0; i < width; i++)
        part[i] += part[i + width];
    REAL total[16 / sizeof(REAL)];
    UNROLL for (int lane = 0; lane < (int)(16 / sizeof(REAL)); lane++) total[lane] = part[0][lane];
    UNROLL for (int width = 8 / sizeof(REAL); width; width /= 2)
        UNROLL for (int lane = 0; lane < width; lane++) total[lane] += total[lane + width];
    return total[0];
}

/* The networks of an item. */
struct NAME(item) {
    int64_t index, slot; /* slot: whose factors */
    int width;         /* networks; lanes above hold zeros */
    int64_t at[LANES]; /* where each network's first node is in a field (batches, nodes, channels) */
    int64_t of[LANES]; /* and in one (batches, sources, nodes, channels) */
    const REAL *field[4]; /* leak and conductances of these networks alone, node by node */
};

static struct NAME(item) NAME(item_at)(const struct direct_args *a, int64_t index) {
    struct NAME(item) item = {.index = index};
    item.slot = a->call == DIRECT_ONCE ? thread_number() : index;
    const int64_t per = a->rows ? 1 : LANES, networks = a->batches * a->channels;
    item.width = (int)least(per, networks - index * per);
    for (int lane = 0; lane < LANES; lane++) {
        const int64_t network = index * per + (lane < item.width ? lane : 0);
        const int64_t batch = network / a->channels, channel = network % a->channels;
        item.at[lane] = batch * a->nodes * a->channels + channel;
        item.of[lane] = batch * a->sources * a->nodes * a->channels + channel;
    }
    return item;
}

/* Whether `width` values lie side by side and fill a vector. */
static int NAME(together)(const int64_t *at, int width) {
    int all = width == LANES;
    for (int lane = 1; lane < width; lane++) all &= at[lane] == at[0] + lane;
    return all;
}

enum { NAME(BLOCK) = 16 }; /* nodes after which the next lane's have their turn */

/* Fields with their nodes `step` apart, from places `at` on, to the lanes of vectors. */
APART void NAME(pack)(const REAL *from, const int64_t *at, int width, int64_t step, int64_t nodes,
                      vec *to) {
    if (NAME(together)(at, width)) {
        for (int64_t p = 0; p < nodes; p++) to[p] = *(const loose *)(from + at[0] + p * step);
        return;
    }
    for (int64_t first = 0; first < nodes; first += NAME(BLOCK)) {
        const int64_t last = least(first + NAME(BLOCK), nodes);
        if (width < LANES) memset(to + first, 0, (size_t)(last - first) * sizeof(vec));
        for (int lane = 0; lane < width; lane++)
            for (int64_t p = first; p < last; p++) ((REAL *)(to + p))[lane] = from[at[lane] + p * step];
    }
}

APART void NAME(unpack)(const vec *from, const int64_t *at, int width, int64_t step, int64_t nodes,
                        REAL *to) {
    if (NAME(together)(at, width)) {
        for (int64_t p = 0; p < nodes; p++) *(loose *)(to + at[0] + p * step) = from[p];
        return;
    }
    for (int64_t first = 0; first < nodes; first += NAME(BLOCK)) {
        const int64_t last = least(first + NAME(BLOCK), nodes);
        for (int lane = 0; lane < width; lane++)
            for (int64_t p = first; p < last; p++)
                to[at[lane] + p * step] = ((const REAL *)(from + p))[lane];
    }
}

INLINE void NAME(store)(const struct NAME(item) *item, REAL *field, const int64_t *at, int64_t node,
                        vec value) {
    for (int lane = 0; lane < item->width; lane++) field[at[lane] + node] = value[lane];
}

/* The largest of `count` numbers in each lane, and NaN where one is not finite. */
INLINE void NAME(look_at)(const REAL *x, int64_t count, vec *largest, vec *wrong) {
    vec most = *largest, bad = *wrong;
    int64_t i = 0;
    for (; i + LANES <= count; i += LANES) {
        const vec value = *(const loose *)(x + i);
        most = NAME(larger)(value, most);
        bad += value - value;
    }
    for (; i < count; i++) {
        most[0] = x[i] > most[0] ? x[i] : most[0];
        bad[0] += x[i] - x[i];
    }
    *largest = most, *wrong = bad;
}

/* Edges of an axis that follow one another, and how far apart their nodes are. Entries that are no
 * edges lie between. */
INLINE int64_t NAME(edges_in_line)(const struct direct_args *a, int axis, int64_t *inner,
                                   int64_t *lines) {
    *inner = *lines = 1;
    for (int other = 0; other < a->axes; other++)
        *(other < axis ? lines : inner) *= other == axis ? 1 : a->grid[other];
    return (a->grid[axis] - 1) * *inner;
}

/* Powers of two that bring the largest conductance near 1, so that nothing over- or underflows,
 * and which networks are finite. `wide`: numbers a node of the item's fields has. */
APART vec NAME(scales)(const struct direct_args *a, const struct NAME(item) *item, int wide,
                       int64_t *status) {
    vec largest = {}, wrong = {};
    NAME(look_at)(item->field[0], a->nodes * wide, &largest, &wrong);
    for (int axis = 0; axis < a->axes; axis++) {
        int64_t inner, lines, edges = NAME(edges_in_line)(a, axis, &inner, &lines);
        if (a->closed[axis]) edges += inner;
        for (int64_t line = 0; line < lines; line++)
            NAME(look_at)(item->field[1 + axis] + line * a->grid[axis] * inner * wide, edges * wide,
                          &largest, &wrong);
    }
    if (wide == 1)
        for (int lane = 1; lane < LANES; lane++) {
            largest[0] = largest[lane] > largest[0] ? largest[lane] : largest[0];
            wrong[0] += wrong[lane];
        }
    const int most = sizeof(REAL) == 4 ? 126 : 1022;
    vec scale = {};
    for (int lane = 0; lane < item->width; lane++) {
        int exponent = 0;
        if (largest[lane] > 0 && isfinite(largest[lane])) frexp((double)largest[lane], &exponent);
        exponent = exponent > most ? most : exponent < -most ? -most : exponent;
        scale[lane] = (REAL)ldexp(1, -exponent);
        status[lane] = wrong[lane] == 0 ? DIRECT_DETERMINED : DIRECT_NOT_FINITE;
    }
    return scale;
}

INLINE void NAME(add_squares)(const REAL *x, int64_t count, double *sum) {
    NAME(wide) total = {};
    int64_t i = 0;
    for (; i + LANES <= count; i += LANES) {
        const NAME(wide) value = __builtin_convertvector(*(const loose *)(x + i), NAME(wide));
        total += value * value;
    }
    for (int lane = 0; lane < LANES; lane++) sum[lane] = total[lane];
    for (; i < count; i++) sum[0] += (double)x[i] * (double)x[i];
}

/* Takes the currents of edges between nodes `far` apart from r, and adds to z what they are sums of. */
INLINE void NAME(take_currents)(const REAL *restrict g, const REAL *v, int64_t edges, int64_t far,
                                REAL *restrict r, REAL *restrict z) {
#define CURRENT (g[i] * (v[i] - v[i + far]))
#define TERMS (g[i] * (NAME(size)(v[i]) + NAME(size)(v[i + far])))
    for (int64_t i = 0; i < edges; i++) r[i] -= CURRENT, z[i] += TERMS;
    for (int64_t i = 0; i < edges; i++) r[i + far] += CURRENT, z[i + far] += TERMS;
#undef CURRENT
#undef TERMS
}

/* |s - A v| / |s| in each lane, and 0 where that is what rounding v leaves. r: the sources, which are
 * lost; z: scratch. A node with neither edge nor leak, which has no inverse, is no part of the
 * network; a NaN in its source still counts. `wide` as above. */
APART void NAME(residuals)(const struct direct_args *a, const struct NAME(item) *item, int wide,
                           const REAL *inverse, REAL *r, const REAL *v, REAL *z, double *residual) {
    const int64_t count = a->nodes * wide;
    const REAL *leak = item->field[0];
    double norm[LANES], excess[LANES], terms[LANES];
    for (int64_t p = 0; p < a->nodes; p++) {
        const int64_t at = a->node[p] * (int64_t)wide;
        if (wide == 1) {
            if (!(inverse[p] > 0) && !(leak[at] > 0)) r[at] *= 0;
            continue;
        }
        const vec value = *(const loose *)(r + at);
        const vec tied = NAME(larger)(*(const loose *)(leak + at), *(const loose *)(inverse + p * wide));
        *(loose *)(r + at) = NAME(either)(tied, value, value * 0);
    }
    NAME(add_squares)(r, count, norm);
    for (int64_t i = 0; i < count; i++) r[i] -= leak[i] * v[i], z[i] = leak[i] * NAME(size)(v[i]) + LEAST;
    for (int axis = 0; axis < a->axes; axis++) {
        int64_t inner, lines;
        const int64_t edges = NAME(edges_in_line)(a, axis, &inner, &lines);
        for (int64_t line = 0; line < lines; line++) {
            const int64_t at = line * a->grid[axis] * inner * wide, last = at + edges * wide;
            const REAL *g = item->field[1 + axis];
            NAME(take_currents)(g + at, v + at, edges * wide, inner * wide, r + at, z + at);
            if (a->closed[axis])
                NAME(take_currents)(g + last, v + last, inner * wide, at - last, r + last, z + last);
        }
    }
    NAME(add_squares)(r, count, excess);
    NAME(add_squares)(z, count, terms);
    if (wide == 1)
        for (int lane = 1; lane < LANES; lane++)
            norm[0] += norm[lane], excess[0] += excess[lane], terms[0] += terms[lane];
    for (int lane = 0; lane < item->width; lane++) {
        const double rounding = NETWORK_ROUNDING * (double)EPSILON * sqrt(terms[lane]),
                     left = sqrt(excess[lane]);
        residual[lane] = left <= rounding ? 0 : left / (norm[lane] > 0 ? sqrt(norm[lane]) : 1);
    }
}

/* Connected parts of one network, whose numbers lie `step` apart. `label`, by position: that of the
 * part's last node, which hands nothing on but to ground; -1 for what is no part of the network. */
APART void NAME(find_parts)(const struct direct_args *a, const REAL *shares, const REAL *inverse,
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

/* `take_level` of one network with a level V of each part; values of one source lie `apart`.
 * `limit`: what the rounding of currents may make of the potential of a part's last node; 0 for other
 * nodes. */
APART void NAME(take_levels)(const struct direct_args *a, const REAL *leak, const INTEGER *label,
                             int64_t step, const REAL *s, REAL *u, int64_t apart, REAL *limit,
                             int64_t limits_apart, double *sums) {
    for (int64_t p = 0; p < a->nodes; p++) u[p * apart] = s[p * apart];
    /* Twice, and in double: what a node's own leak takes of its source may be nearly all of it. */
    for (int round = 0; round < 3; round++) {
        memset(sums, 0, (size_t)(3 * a->nodes) * sizeof(double));
        for (int64_t p = 0; p < a->nodes; p++) {
            if (label[p * step] < 0) continue;
            double *const sum = sums + 3 * label[p * step], current = (double)u[p * apart];
            sum[0] += current;
            sum[1] += (double)leak[p * step];
            sum[2] += current < 0 ? -current : current;
        }
        for (int64_t p = 0; p < a->nodes; p++) {
            const double *const sum = sums + 3 * (label[p * step] > 0 ? label[p * step] : 0);
            const int inside = label[p * step] >= 0 && sum[1] > 0;
            const int is_last = inside && label[p * step] == p;
            const double level = inside && round < 2 ? sum[0] / sum[1] : 0;
            u[p * apart] = (REAL)((double)u[p * apart] - (double)leak[p * step] * level);
            limit[p * limits_apart] = (REAL)(is_last ? 4 * (double)EPSILON * sum[2] / sum[1] : 0);
        }
    }
}

/* For each node, a power of two that is at least the largest |u| of its part and at most twice that, or
 * tiny. Values of one source lie `apart`, the powers `sizes_apart`. */
APART void NAME(part_sizes)(const struct direct_args *a, const INTEGER *label, int64_t step,
                            const REAL *u, int64_t apart, REAL *size, int64_t sizes_apart) {
    for (int64_t p = 0; p < a->nodes; p++) size[p * sizes_apart] = 0;
    for (int64_t p = 0; p < a->nodes; p++) {
        if (label[p * step] < 0) continue;
        const REAL own = u[p * apart] < 0 ? -u[p * apart] : u[p * apart];
        REAL *const most = size + label[p * step] * sizes_apart;
        *most = own > *most ? own : *most;
    }
    const int most = sizeof(REAL) == 4 ? 126 : 1022;
    for (int64_t p = 0; p < a->nodes; p++) {
        if (label[p * step] != p) continue;
        REAL *const own = size + p * sizes_apart;
        int exponent = -most;
        if (*own > 0 && isfinite(*own)) frexp((double)*own, &exponent);
        exponent = exponent > most ? most : exponent < -most ? -most : exponent;
        *own = (REAL)ldexp(1, exponent);
    }
    for (int64_t p = 0; p < a->nodes; p++) {
        const int64_t last = label[p * step];
        if (last != p) size[p * sizes_apart] = last < 0 ? 1 : size[last * sizes_apart];
    }
}

/* Plain differences of potentials, where solved ones are none or no better: along edges of conductance
 * 0 between two parts, of nodes that are no part of the network, whose potential is 0, and where
 * potentials are small beside the `size` of their part, to whose rounding drops are right; also where
 * both differ by far more than the rounding of potentials, as behind an edge of 1e-19 of the others,
 * where the reference of drops is one of nodes that have nothing to do with these. `at`: of the first
 * node in fields. */
APART void NAME(plain_drops)(const struct direct_args *a, const INTEGER *label, int64_t step, int64_t at,
                             const REAL *size, int64_t sizes_apart, REAL factor, double *scratch) {
    const REAL *v = (const REAL *)a->potential + at;
    int64_t *const part = (int64_t *)scratch, inner = 1; /* by node */
    for (int64_t p = 0; p < a->nodes; p++) part[a->node[p]] = label[p * step];
    for (int axis = (int)a->axes - 1; axis >= 0; inner *= a->grid[axis--]) {
        REAL *drop = (REAL *)a->drop[axis] + at;
        const int64_t n = a->grid[axis];
        for (int64_t node = 0; node < a->nodes; node++) {
            const int64_t i = node / inner % n, next = node + (i < n - 1 ? inner : -i * inner);
            if (i == n - 1 && !a->closed[axis]) continue;
            const REAL first = v[node * a->channels], second = v[next * a->channels];
            int plain = part[node] != part[next] || part[node] < 0;
            if (!plain) {
                const REAL both = (first < 0 ? -first : first) + (second < 0 ? -second : second);
                plain = both < size[part[node] * sizes_apart] * factor / 16;
                const REAL off = drop[node * a->channels] - (first - second);
                plain |= (off < 0 ? -off : off) > DIRECT_OFF * EPSILON * both;
            }
            if (plain) drop[node * a->channels] = first - second;
        }
    }
}

#define ROWS 0
#define MODE(x) NAME(x##_lanes)
#include "mode.h"
#undef ROWS
#undef MODE
#include "tiles.h"
#define ROWS 1
#define MODE(x) NAME(x##_rows)
#include "mode.h"
#undef ROWS
#undef MODE

static int64_t NAME(workspace)(const struct direct_args *a) {
    return a->rows ? NAME(workspace_rows)(a) : NAME(workspace_lanes)(a);
}

static void NAME(run)(const struct direct_args *a) {
    if (a->rows)
        NAME(run_rows)(a);
    else
        NAME(run_lanes)(a);
}

#undef vec
#undef loose
#undef LANES
#undef LEAST
