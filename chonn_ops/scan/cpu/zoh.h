/* Vectors of REAL and the zero-order-hold coefficients. Included once per width of vectors. */

typedef REAL VEC __attribute__((vector_size(WIDTH * sizeof(REAL)), aligned(sizeof(REAL)), may_alias));
typedef INTEGER IVEC
    __attribute__((vector_size(WIDTH * sizeof(REAL)), aligned(sizeof(REAL)), may_alias));

INLINE VEC WIDE(load)(const REAL *p) { return *(const VEC *)p; }
static inline void WIDE(store)(REAL *p, VEC x) { *(VEC *)p = x; }
INLINE VEC WIDE(select)(IVEC mask, VEC yes, VEC no) {
    return (VEC)((mask & (IVEC)yes) | (~mask & (IVEC)no));
}
/* The smaller one; `x` where `x` is NaN. One instruction where the compiler would need three. */
INLINE VEC WIDE(least)(VEC bound, VEC x) {
#ifdef LEAST
    return (VEC)LEAST(bound, x);
#else
    return WIDE(select)(x > bound, bound, x);
#endif
}
/* The larger one, likewise. */
INLINE VEC WIDE(most)(VEC bound, VEC x) {
#ifdef MOST
    return (VEC)MOST(bound, x);
#else
    return WIDE(select)(x < bound, bound, x);
#endif
}
INLINE int WIDE(any)(IVEC mask) {
    INTEGER any = 0;
    for (int lane = 0; lane < WIDTH; lane++) any |= mask[lane];
    return any != 0;
}

struct WIDE(coefficients) {
    VEC retention; /* exp(-z) */
    VEC loss;      /* 1 - exp(-z), relative error of a few ulp at any z */
};

/* exp(-z) of `halvings` = z / ln(2) = k + f, with k whole and |f| <= 1/2, which splits exactly:
 * (1 - 2^-f) / f = phi = ln(2) - f Q(f). Where k = 0 the loss is f phi: nothing cancels. Beyond
 * HALVINGS_MAX (normal numbers end) it saturates; NaN passes. Growth beyond the largest number,
 * of negative steps or rates, ends in infinities and NaN: unbounded, k would wrap around. */
INLINE struct WIDE(coefficients) WIDE(zoh)(VEC halvings) {
    const VEC zero = {0};
    halvings = WIDE(least)(zero + (REAL)HALVINGS_MAX, halvings);
    halvings = WIDE(most)(zero - (REAL)DOUBLINGS_MAX, halvings);
    /* Adding 1.5 * 2^mantissa rounds to an integer, left in the low bits. */
    VEC shifted = halvings + (REAL)ROUNDER;
    VEC k = shifted - (REAL)ROUNDER;
    VEC f = halvings - k;
    VEC phi = (REAL)LN2 - f * Q(f);
    VEC power = (VEC)(EXPONENT_ONE - ((IVEC)shifted << MANTISSA_BITS));
    VEC partial = f * phi;
    struct WIDE(coefficients) out = {
        .retention = power - power * partial,
        .loss = power * partial + ((REAL)1 - power),
    };
    return out;
}
