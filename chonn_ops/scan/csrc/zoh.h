/* Vectors of REAL and the zero-order-hold coefficients. Included once per precision. */

typedef REAL VEC __attribute__((vector_size(VECTOR_BYTES), aligned(sizeof(REAL)), may_alias));
typedef INTEGER IVEC __attribute__((vector_size(VECTOR_BYTES), aligned(sizeof(REAL)), may_alias));

static inline VEC NAME(load)(const REAL *p) { return *(const VEC *)p; }
static inline void NAME(store)(REAL *p, VEC x) { *(VEC *)p = x; }
static inline VEC NAME(select)(IVEC mask, VEC yes, VEC no) {
    return (VEC)((mask & (IVEC)yes) | (~mask & (IVEC)no));
}
/* The smaller one; `x` where `x` is NaN. One instruction where the compiler would need three. */
static inline VEC NAME(least)(VEC bound, VEC x) {
#ifdef LEAST
    return (VEC)LEAST(bound, x);
#else
    return NAME(select)(x > bound, bound, x);
#endif
}

struct NAME(coefficients) {
    VEC retention; /* exp(-z) */
    VEC loss;      /* 1 - exp(-z), relative error of a few ulp at any z */
    VEC phi;       /* (1 - 2^-f) / f, where small holds */
    VEC slope;     /* (ln(2) - phi) / f, where small holds */
    IVEC small;    /* z < ln(2) / 2 */
};

/* exp(-z) of `halvings` = z / ln(2) = k + f, with k whole and |f| <= 1/2, which splits exactly:
 * (1 - 2^-f) / f = phi = ln(2) - f Q(f). Where k = 0 the loss is f phi: nothing cancels. Beyond
 * HALVINGS_MAX (normal numbers end) it saturates; NaN passes. */
static inline struct NAME(coefficients) NAME(zoh)(VEC halvings) {
    const VEC zero = {0};
    halvings = NAME(least)(zero + (REAL)HALVINGS_MAX, halvings);
    /* Adding 1.5 * 2^mantissa rounds to an integer, left in the low bits. */
    VEC shifted = halvings + (REAL)ROUNDER;
    VEC k = shifted - (REAL)ROUNDER;
    VEC f = halvings - k;
    VEC slope = Q(f);
    VEC phi = (REAL)LN2 - f * slope;
    VEC power = (VEC)(EXPONENT_ONE - ((IVEC)shifted << MANTISSA_BITS));
    VEC partial = f * phi;
    struct NAME(coefficients) out = {
        .retention = power - power * partial,
        .loss = power * partial + ((REAL)1 - power),
        .phi = phi,
        .slope = slope,
        .small = k == zero,
    };
    return out;
}

/* One step towards the equilibrium b u / decay: v + (1 - exp(-z)) (b u / decay - v). */
static inline VEC NAME(update)(VEC state, struct NAME(coefficients) k, VEC equilibrium) {
    return state + k.loss * (equilibrium - state);
}

/* One sequence: where step 0 (in scan order) lies, and how far the next one is. */
struct NAME(stream) {
    REAL *at;
    int64_t step;
};

static inline struct NAME(stream) NAME(open)(const void *tensor, const struct scan_args *a,
                                             int64_t batch, const int64_t stride[2]) {
    REAL *first = (REAL *)tensor + batch * stride[0];
    struct NAME(stream) forward = {first, stride[1]};
    struct NAME(stream) backward = {first + (a->steps - 1) * stride[1], -stride[1]};
    return a->reverse ? backward : forward;
}

static inline struct NAME(stream) NAME(channels)(struct NAME(stream) s, int64_t channel) {
    s.at += channel;
    return s;
}

/* The rows of one chunk as whole vectors: in place, or through `packed` where the last block of
 * channels is narrower than a vector. Idle lanes hold zeros: delta = 0 leaves their state alone. */
static inline struct NAME(stream) NAME(rows)(struct NAME(stream) s, int64_t first, int rows,
                                             int width, REAL *packed, int read) {
    s.at += first * s.step;
    if (width == LANES) return s;
    struct NAME(stream) out = {packed, LANES};
    if (read) {
        for (int t = 0; t < rows; t++)
            for (int lane = 0; lane < LANES; lane++)
                packed[t * LANES + lane] = lane < width ? s.at[t * s.step + lane] : 0;
    }
    return out;
}

static inline void NAME(unpack)(struct NAME(stream) s, int64_t first, int rows, int width,
                                const REAL *packed) {
    if (width == LANES) return;
    for (int t = 0; t < rows; t++)
        for (int lane = 0; lane < width; lane++)
            s.at[(first + t) * s.step + lane] = packed[t * LANES + lane];
}

/* (channels, states) tensors of one batch <-> one vector a state; `idle` fills the idle lanes. */
static inline VEC NAME(gather)(const REAL *p, int64_t states, int width, REAL idle) {
    VEC out;
    if (states == 1 && width == LANES) return NAME(load)(p);
    for (int lane = 0; lane < LANES; lane++) out[lane] = lane < width ? p[lane * states] : idle;
    return out;
}

static inline void NAME(scatter)(REAL *p, int64_t states, int width, VEC x) {
    if (states == 1 && width == LANES)
        NAME(store)(p, x);
    else
        for (int lane = 0; lane < width; lane++) p[lane * states] = x[lane];
}

/* The checkpoint before a chunk, for one state and one block of channels. */
static inline REAL *NAME(checkpoint)(const struct scan_args *a, int64_t batch, int64_t chunk,
                                     int64_t state, int64_t channel) {
    const int64_t chunks = (a->steps + CHUNK - 1) / CHUNK;
    const int64_t kept = (chunks + a->spacing - 1) / a->spacing;
    const int64_t row = (batch * kept + chunk / a->spacing) * a->states + state;
    return (REAL *)a->checkpoints + row * a->channels + channel;
}
