/* Vectors, items and what is packed into them, for one type of number. */
typedef REAL NAME(vec) __attribute__((vector_size(VECTOR_BYTES)));
typedef REAL NAME(loose) __attribute__((vector_size(VECTOR_BYTES), aligned(sizeof(REAL)), may_alias));
typedef INTEGER NAME(mask) __attribute__((vector_size(VECTOR_BYTES)));
#define vec NAME(vec)
#define loose NAME(loose)
#define mask NAME(mask)
#define LANES ((int)(VECTOR_BYTES / sizeof(REAL)))
#define PARTS (1 + COMPLEX) /* REALs of a number: real and imaginary part */

#define HALVES ((int)(sizeof(double) / sizeof(REAL)))
/* Doubles that fill a vector, and as many numbers of the factors' precision. */
typedef double NAME(doubles) __attribute__((vector_size(VECTOR_BYTES)));
typedef double NAME(loose_doubles) __attribute__((vector_size(VECTOR_BYTES), aligned(8), may_alias));
typedef REAL NAME(half)
    __attribute__((vector_size(VECTOR_BYTES / HALVES), aligned(sizeof(REAL)), may_alias));
/* One double for each lane. */
typedef struct {
    NAME(doubles) part[HALVES];
} NAME(wide);
#define doubles NAME(doubles)
#define loose_doubles NAME(loose_doubles)
#define half NAME(half)
#define wide NAME(wide)
#define widen NAME(widen)

INLINE wide widen(const vec *x) {
    wide all;
    UNROLL for (int k = 0; k < HALVES; k++) all.part[k] =
        __builtin_convertvector(((const half *)x)[k], doubles);
    return all;
}

INLINE vec NAME(pick)(mask some, vec a, vec b) { return (vec)((some & (mask)a) | (~some & (mask)b)); }

/* The networks of an item. */
struct NAME(item) {
    int64_t index, slot; /* slot: whose factors */
    int width;           /* networks; lanes above hold zeros */
    int64_t at[LANES];   /* where each network's first node is in a field (batches, nodes, channels) */
    int64_t of[LANES];   /* and in one (batches, sources, nodes, channels) */
    int64_t edges_at[LANES], edges_of[LANES]; /* likewise each network's first conductance and drop */
    const REAL *field[4]; /* leak and conductances of these networks alone */
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
        item.edges_at[lane] = batch * a->entries * a->channels + channel;
        item.edges_of[lane] = batch * a->sources * a->entries * a->channels + channel;
    }
    return item;
}

/* Whether `width` values lie side by side and fill a vector. */
static int NAME(together)(const int64_t *at, int width) {
    int all = width == LANES;
    for (int lane = 1; lane < width; lane++) all &= at[lane] == at[0] + lane;
    return all;
}

/* Fields with their nodes `step` apart, from places `at` on, to the lanes of vectors. */
APART void NAME(pack)(const REAL *from, const int64_t *at, int width, int64_t step, int64_t nodes,
                      vec *to) {
    if (!COMPLEX && NAME(together)(at, width)) {
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
INLINE void NAME(look_at)(const REAL *x, int64_t count, vec *largest, vec *wrong) {
    vec most = *largest, bad = *wrong;
    int64_t i = 0;
    for (; i + LANES <= count; i += LANES) {
        const vec value = *(const loose *)(x + i);
        const vec size = COMPLEX ? NAME(pick)(value < 0, -value, value) : value;
        most = NAME(pick)(size > most, size, most);
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
APART vec NAME(scales)(const struct direct_args *a, const struct NAME(item) *item, int reals,
                       int64_t *status) {
    vec largest = {}, wrong = {};
    NAME(look_at)(item->field[0], a->nodes * reals, &largest, &wrong);
    for (const struct direct_run *run = a->runs; run < a->runs + a->num_runs; run++)
        NAME(look_at)(item->field[1 + run->axis] + run->entry * reals, run->count * reals, &largest,
                      &wrong);
    if (reals == 1)
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
