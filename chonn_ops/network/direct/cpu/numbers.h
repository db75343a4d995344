/* Vectors, items and what is packed into them. */
#include <float.h>
#include <string.h>

#include "_kernel.h"
#include "direct.h"
#include "fronts.h"

enum {
    WORTH_SHARING = 4000000, /* multiply-adds of an update for which threads are woken */
    BLOCK = 16, /* nodes after which the next lane's are packed */
};

/* Where row i of an update of `width` nodes and ground begins, its first column being i + 1. */
static inline int64_t update_row(int64_t width, int64_t i) { return i * width - i * (i - 1) / 2; }

#if REAL_BYTES == 4
#define TINIEST FLT_MIN
#define EPSILON FLT_EPSILON
#define HALF_DIGITS 3.5e-4f /* sqrt(FLT_EPSILON) */
#else
#define TINIEST DBL_MIN
#define EPSILON DBL_EPSILON
#define HALF_DIGITS 1.5e-8 /* sqrt(DBL_EPSILON) */
#endif

typedef REAL vec __attribute__((vector_size(VECTOR_BYTES)));
typedef REAL loose __attribute__((vector_size(VECTOR_BYTES), aligned(sizeof(REAL)), may_alias));
typedef INTEGER mask __attribute__((vector_size(VECTOR_BYTES)));
#define PARTS (1 + COMPLEX) /* REALs of a number: real and imaginary part */

#define HALVES ((int)(sizeof(double) / sizeof(REAL)))
/* Doubles that fill a vector, and as many numbers of the factors' precision. */
typedef double doubles __attribute__((vector_size(VECTOR_BYTES)));
typedef double loose_doubles __attribute__((vector_size(VECTOR_BYTES), aligned(8), may_alias));
typedef REAL half __attribute__((vector_size(VECTOR_BYTES / HALVES), aligned(sizeof(REAL)), may_alias));
/* One double for each lane. */
typedef struct {
    doubles part[HALVES];
} wide;

INLINE wide widen(const vec *x) {
    wide all;
    UNROLL for (int k = 0; k < HALVES; k++) all.part[k] =
        __builtin_convertvector(((const half *)x)[k], doubles);
    return all;
}

INLINE vec pick(mask some, vec a, vec b) { return (vec)((some & (mask)a) | (~some & (mask)b)); }

/* The networks of an item. */
struct item {
    int64_t index, slot; /* slot: whose factors */
    int width;           /* networks; lanes above hold zeros */
    int64_t at[LANES];   /* where each network's first node is in a field (batches, nodes, channels) */
    int64_t of[LANES];   /* and in one (batches, sources, nodes, channels) */
    int64_t edges_at[LANES], edges_of[LANES]; /* likewise each network's first conductance and drop */
    const REAL *field[4]; /* leak and conductances of these networks alone */
};

static struct item item_at(const struct direct_args *a, int64_t index) {
    struct item item = {.index = index};
    item.slot = a->call == DIRECT_ONCE ? thread_number() : index;
    const int64_t per = a->rows ? 1 : LANES, networks = a->batches * a->channels;
    item.width = (int)least(per, networks - index * per);
    for (int lane = 0; lane < LANES; lane++) {
        const int64_t network = index * per + (lane < item.width ? lane : 0);
        const int64_t batch = network / a->channels, channel = network % a->channels;
        item.at[lane] = batch * a->nodes * a->channels + channel;
        item.of[lane] = batch * a->sources * a->nodes * a->channels + channel;
        item.edges_at[lane] = batch * a->entries * a->channels + channel;
        item.edges_of[lane] = batch * a->sources * a->entries * a->channels + channel;
    }
    return item;
}

/* Whether `width` values lie side by side and fill a vector. */
static int together(const int64_t *at, int width) {
    int all = width == LANES;
    for (int lane = 1; lane < width; lane++) all &= at[lane] == at[0] + lane;
    return all;
}

/* Fields with their nodes `step` apart, from places `at` on, to the lanes of vectors. */
APART void pack(const REAL *from, const int64_t *at, int width, int64_t step, int64_t nodes, vec *to) {
    if (!COMPLEX && together(at, width)) {
        for (int64_t p = 0; p < nodes; p++) to[p] = *(const loose *)(from + at[0] + p * step);
        return;
    }
    for (int64_t first = 0; first < nodes; first += BLOCK) {
        const int64_t last = least(first + BLOCK, nodes);
        if (width < LANES) memset(to + first * PARTS, 0, (size_t)((last - first) * PARTS) * sizeof(vec));
        for (int lane = 0; lane < width; lane++)
            for (int64_t p = first; p < last; p++)
                UNROLL for (int part = 0; part < PARTS; part++)((REAL *)(to + p * PARTS + part))[lane] =
                    from[(at[lane] + p * step) * PARTS + part];
    }
}

/* The largest of `count` numbers in each lane, and NaN where one is not finite. */
INLINE void look_at(const REAL *x, int64_t count, vec *largest, vec *wrong) {
    vec most = *largest, bad = *wrong;
    int64_t i = 0;
    for (; i + LANES <= count; i += LANES) {
        const vec value = *(const loose *)(x + i);
        const vec size = COMPLEX ? pick(value < 0, -value, value) : value;
        most = pick(size > most, size, most);
        bad += value - value;
    }
    for (; i < count; i++) { /* of one real network */
        most[0] = x[i] > most[0] ? x[i] : most[0];
        bad[0] += x[i] - x[i];
    }
    *largest = most, *wrong = bad;
}

/* Powers of two that bring the largest conductance near 1, so that nothing over- or underflows,
 * and which networks are finite. `reals`: those that a node of the item's fields has. */
APART vec scales_of(const struct direct_args *a, const struct item *item, int reals, int64_t *status) {
    vec largest = {}, wrong = {};
    look_at(item->field[0], a->nodes * reals, &largest, &wrong);
    for (const struct direct_run *run = a->runs; run < a->runs + a->num_runs; run++)
        look_at(item->field[1 + run->axis] + run->entry * reals, run->count * reals, &largest, &wrong);
    if (reals == 1)
        for (int lane = 1; lane < LANES; lane++) {
            largest[0] = largest[lane] > largest[0] ? largest[lane] : largest[0];
            wrong[0] += wrong[lane];
        }
    vec scale = {};
    for (int lane = 0; lane < item->width; lane++) {
        scale[lane] = (REAL)ldexp(1, -exponent_of(largest[lane]));
        status[lane] = wrong[lane] == 0 ? DIRECT_DETERMINED : DIRECT_NOT_FINITE;
    }
    return scale;
}
