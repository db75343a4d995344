/* Everything of one precision. */
typedef REAL NAME(vec) __attribute__((vector_size(VECTOR_BYTES)));
typedef REAL NAME(loose) __attribute__((vector_size(VECTOR_BYTES), aligned(sizeof(REAL)), may_alias));
typedef INTEGER NAME(mask) __attribute__((vector_size(VECTOR_BYTES)));
#define vec NAME(vec)
#define loose NAME(loose)
#define LANES ((int)(VECTOR_BYTES / sizeof(REAL)))

INLINE vec NAME(splat)(REAL value) { return (vec){} + value; }

/* 1 / pivot; 0 where there is none, or one so small that nothing divides by it. */
INLINE vec NAME(reciprocal)(vec pivot) {
    return (vec)((NAME(mask))(pivot >= TINIEST) & (NAME(mask))(1 / pivot));
}

INLINE vec NAME(larger)(vec a, vec b) {
    const NAME(mask) first = a > b;
    return (vec)((first & (NAME(mask))a) | (~first & (NAME(mask))b));
}

INLINE REAL NAME(sum)(vec value) {
    REAL part[LANES];
    memcpy(part, &value, sizeof part);
    UNROLL for (int width = LANES / 2; width; width /= 2)
        UNROLL for (int lane = 0; lane < width; lane++) part[lane] += part[lane + width];
    return part[0];
}

/* The networks of an item. */
struct NAME(item) {
    int64_t index, slot; /* slot: whose factors */
    int width;         /* networks; lanes above hold zeros */
    int together;      /* whether they lie side by side and fill the vector */
    int64_t at[LANES]; /* where each network's first node is in a field (batches, nodes, channels) */
    int64_t of[LANES]; /* and in one (batches, sources, nodes, channels) */
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
    item.together = item.width == LANES;
    for (int lane = 1; lane < item.width; lane++)
        item.together &=
            item.at[lane] == item.at[0] + lane && item.of[lane] == item.of[0] + lane;
    return item;
}

/* What a node of every network holds. */
INLINE vec NAME(load)(const struct NAME(item) *item, const REAL *field, const int64_t *at,
                      int64_t node) {
    if (item->together) return *(const loose *)(field + at[0] + node);
    vec value = {};
    for (int lane = 0; lane < item->width; lane++) value[lane] = field[at[lane] + node];
    return value;
}

INLINE void NAME(store)(const struct NAME(item) *item, REAL *field, const int64_t *at, int64_t node,
                        vec value) {
    if (item->together) {
        *(loose *)(field + at[0] + node) = value;
        return;
    }
    for (int lane = 0; lane < item->width; lane++) field[at[lane] + node] = value[lane];
}

INLINE const REAL *NAME(edge)(const struct direct_args *a, int64_t edge, int64_t *node) {
    const int64_t axis = (edge >= a->nodes) + (edge >= 2 * a->nodes);
    *node = (edge - axis * a->nodes) * a->channels;
    return (const REAL *)a->conductance[axis];
}

/* Powers of two that bring the largest conductance near 1, so that nothing over- or underflows,
 * and which networks are finite. */
APART vec NAME(scales)(const struct direct_args *a, const struct NAME(item) *item, int64_t *status) {
    vec largest = {}, wrong = {};
#define SEE(load)                                                                                \
    {                                                                                            \
        const vec value = load;                                                                  \
        largest = NAME(larger)(value, largest);                                                  \
        wrong += value - value; /* NaN for NaN and infinities */                                 \
    }
    for (int64_t p = 0; p < a->nodes; p++)
        SEE(NAME(load)(item, (const REAL *)a->leak, item->at, p * a->channels))
    for (int64_t e = 0; e < a->edge_at[a->regions]; e++) {
        int64_t node;
        const REAL *field = NAME(edge)(a, a->edge[e], &node);
        SEE(NAME(load)(item, field, item->at, node))
    }
#undef SEE
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

#define ROWS 0
#define MODE(x) NAME(x##_lanes)
#include "mode.h"
#undef ROWS
#undef MODE
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
