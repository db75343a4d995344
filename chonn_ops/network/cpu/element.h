/* Arithmetic of elements and of vectors of them. Included once per form. */

INLINE ELEMENT FORM(splat)(REAL value) { return value - (ELEMENT){0}; }

/* value where mask is set, else zero: also where value is NaN. */
INLINE ELEMENT FORM(where)(MASK mask, ELEMENT value) { return SELECT(mask, value, (ELEMENT){0}); }

/* 1 / value; 0 where that is not positive: a node without edges and leak has no potential. */
INLINE ELEMENT FORM(inverse)(ELEMENT value) { return FORM(where)(value > 0, 1 / value); }

INLINE ELEMENT FORM(magnitude)(ELEMENT value) { return SELECT(value < 0, -value, value); }

/* The value of one network. */
INLINE REAL *FORM(of)(ELEMENT *element, int network) { return (REAL *)element + network; }

INLINE ELEMENT FORM(from_doubles)(const double *values) {
    ELEMENT element;
    for (int k = 0; k < NETWORKS; k++) *FORM(of)(&element, k) = (REAL)values[k];
    return element;
}

/* Whether the value of any network is not zero; a NaN is not. */
INLINE int FORM(any)(ELEMENT element) {
    int any = 0;
    for (int k = 0; k < NETWORKS; k++) any |= *FORM(of)(&element, k) != 0;
    return any;
}

INLINE vec FORM(load)(const ELEMENT *at) { return (vec) * (const NAME(unaligned) *)at; }

/* One element at all nodes of a vector. */
INLINE vec FORM(repeat)(ELEMENT element) { return element - (vec){}; }

/* The first `count` nodes, the others zero. */
INLINE vec FORM(keep)(vec value, int64_t count) {
    vec kept = {};
    if (count >= WIDTH) return value;
    for (int lane = 0; lane < LANES; lane++)
        if (lane < count) kept[lane] = value[lane];
    return kept;
}

/* Write the first `count` nodes, at least one: what lies behind a row stays as it is. */
INLINE void FORM(store)(ELEMENT *at, vec value, int64_t count) {
    if (WIDTH == 1 || count >= WIDTH)
        *(NAME(unaligned) *)at = (NAME(unaligned))value;
    else
        for (int lane = 0; lane < LANES; lane++)
            if (lane < count) ((REAL *)at)[lane] = value[lane];
}

/* The sum over the nodes of a vector. */
INLINE ELEMENT FORM(total)(vec value) {
    ELEMENT sum = {0};
    for (int lane = 0; lane < LANES; lane++) *FORM(of)(&sum, lane % NETWORKS) += value[lane];
    return sum;
}

/* The largest value of the nodes of a vector, at least 0. */
INLINE ELEMENT FORM(largest)(vec value) {
    ELEMENT most = {0};
    for (int lane = 0; lane < LANES; lane++) {
        REAL *to = FORM(of)(&most, lane % NETWORKS);
        if (value[lane] > *to) *to = value[lane];
    }
    return most;
}
