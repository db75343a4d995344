/* Vectors of REAL: selection, zero-order-hold coefficients, and sums over lanes. */

typedef REAL VEC __attribute__((vector_size(LANES * sizeof(REAL)), aligned(sizeof(REAL)), may_alias));
typedef INTEGER IVEC __attribute__((vector_size(LANES * sizeof(REAL)), aligned(sizeof(REAL)), may_alias));

INLINE VEC load(const REAL *p) { return *(const VEC *)p; }
static inline void store(REAL *p, VEC x) { *(VEC *)p = x; }
INLINE VEC pick(IVEC mask, VEC yes, VEC no) { return (VEC)((mask & (IVEC)yes) | (~mask & (IVEC)no)); }
/* The minimum, or `x` where `x` is NaN. The intrinsic is one instruction; compilers emit three. */
INLINE VEC least(VEC bound, VEC x) {
#ifdef MM
    return (VEC)LEAST(bound, x);
#else
    return pick(x > bound, bound, x);
#endif
}
/* The maximum, or `x` where `x` is NaN. */
INLINE VEC most(VEC bound, VEC x) {
#ifdef MM
    return (VEC)MOST(bound, x);
#else
    return pick(x < bound, bound, x);
#endif
}
INLINE int any(IVEC mask) {
    INTEGER any = 0;
    for (int lane = 0; lane < LANES; lane++) any |= mask[lane];
    return any != 0;
}

/* exp(-z) = power (1 - partial), with a power of two and |partial| < 1/2. */
struct coefficients {
    VEC power, partial;
};

INLINE VEC retention(struct coefficients z) { return z.power - z.power * z.partial; }
/* 1 - exp(-z), with a relative error of a few ulp at any z. */
INLINE VEC loss(struct coefficients z) { return z.power * z.partial + ((REAL)1 - z.power); }
/* The state v a step later, at the equilibrium x: exp(-z) v + (1 - exp(-z)) x. The plain form
 * v + loss (x - v) rounds v as a whole, so where exp(-z) is tiny some of a large v would stay; a
 * retention close to 1 would lose the digits of z. */
INLINE VEC relax(struct coefficients z, VEC v, VEC x) {
    return z.power * (v + z.partial * (x - v)) + ((REAL)1 - z.power) * x;
}

/* The coefficients of one step, from `halvings` = z / ln(2). The function splits halvings = k + f
 * without rounding, with k an integer and |f| <= 1/2, and evaluates
 * (1 - 2^-f) / f = phi = ln(2) - f Q(f). Power is 2^-k and partial f phi: at k = 0 partial is the loss,
 * so that nothing cancels.
 * The retention saturates above HALVINGS_MAX, where normal numbers end. A negative rate makes
 * `halvings` negative; below -DOUBLINGS_MAX the result is infinite or NaN, because an unbounded k
 * would wrap around. A NaN stays NaN. */
INLINE struct coefficients zoh(VEC halvings) {
    const VEC zero = {0};
    halvings = least(zero + (REAL)HALVINGS_MAX, halvings);
    halvings = most(zero - (REAL)DOUBLINGS_MAX, halvings);
    /* Adding 1.5 * 2^MANTISSA_BITS rounds to an integer, which the low bits then hold. */
    VEC shifted = halvings + (REAL)ROUNDER;
    VEC k = shifted - (REAL)ROUNDER;
    VEC f = halvings - k;
    VEC phi = (REAL)LN2 - f * Q(f);
    VEC power = (VEC)(EXPONENT_ONE - ((IVEC)shifted << MANTISSA_BITS));
    struct coefficients out = {.power = power, .partial = f * phi};
    return out;
}

/* The coefficients of a run of steps whose deltas sum to `time`. */
INLINE struct coefficients zoh_over(VEC time, VEC rate) {
    const VEC limit = (VEC){0} - (REAL)HALVINGS_MAX, halvings = time * rate;
    return zoh(pick(halvings < limit, limit, halvings)); /* a negative rate grows */
}

/* Rows of a block's table, (states, 3, LANES), for the states that a loop keeps in registers: decay,
 * its inverse, and rate = decay / ln(2), the halvings of a unit step. */
struct rates {
    VEC decay[CHAINS], inverse[CHAINS], rate[CHAINS];
};

INLINE struct rates rates_of(int count, const REAL *table) {
    struct rates out;
    for (int i = 0; i < count; i++, table += 3 * LANES) {
        out.decay[i] = load(table);
        out.inverse[i] = load(table + LANES);
        out.rate[i] = load(table + 2 * LANES);
    }
    return out;
}

#if defined(__has_builtin)
#if __has_builtin(__builtin_shufflevector)
#define SHUFFLES
#endif
#endif

#if defined(SHUFFLES) && (LANES == 4 || LANES == 8 || LANES == 16)
/* HALVES joins the lower (or upper) halves of each block of 2w lanes of two vectors. */
#define PICK(j, w, upper) \
    ((j) / (2 * (w)) * (2 * (w)) + (j) % (w) + (upper) * (w) + ((j) % (2 * (w)) < (w) ? 0 : LANES))
#define PICK4(j, w, upper) \
    PICK(j, w, upper), PICK(j + 1, w, upper), PICK(j + 2, w, upper), PICK(j + 3, w, upper)
#if LANES == 4
#define HALVES(a, b, w, upper) __builtin_shufflevector(a, b, PICK4(0, w, upper))
#elif LANES == 8
#define HALVES(a, b, w, upper) __builtin_shufflevector(a, b, PICK4(0, w, upper), PICK4(4, w, upper))
#else
#define HALVES(a, b, w, upper)                                                                \
    __builtin_shufflevector(a, b, PICK4(0, w, upper), PICK4(4, w, upper), PICK4(8, w, upper), \
                            PICK4(12, w, upper))
#endif
#define LEVEL(w) \
    for (int t = 0; t < (w); t++) v[t] = HALVES(v[t], v[t + (w)], w, 0) + HALVES(v[t], v[t + (w)], w, 1);

/* out[t] += sum of the lanes of rows[t], for LANES rows. LEVEL(w) adds the halves of two vectors
 * whose rows are w apart, so that lane t of the last vector is the sum of row t. */
INLINE void sum_lanes_of_group(const VEC *rows, REAL *out) {
    VEC v[LANES];
    for (int t = 0; t < LANES; t++) v[t] = rows[t];
#if LANES == 16
    LEVEL(8)
#endif
#if LANES >= 8
    LEVEL(4)
#endif
    LEVEL(2)
    LEVEL(1)
    store(out, load(out) + v[0]);
}
#undef LEVEL
#undef HALVES
#undef PICK4
#undef PICK
#else
INLINE void sum_lanes_of_group(const VEC *rows, REAL *out) {
    for (int t = 0; t < LANES; t++)
        for (int lane = 0; lane < LANES; lane++) out[t] += rows[t][lane];
}
#endif
#undef SHUFFLES

/* out[t] += sum of lanes[t]. `out` has room for CHUNK sums; the sums from `rows` on are undefined. */
INLINE void sum_lanes(const VEC *lanes, int rows, REAL *out) {
    for (int t = 0; t < rows; t += LANES) sum_lanes_of_group(lanes + t, out + t);
}
