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

/* out[t] += sum of the lanes of lanes[t]. */
INLINE void sum_lanes(const VEC *lanes, int rows, REAL *out) {
    for (int t = 0; t < rows; t++)
        for (int lane = 0; lane < LANES; lane++) out[t] += lanes[t][lane];
}
