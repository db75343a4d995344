/* Substitution: what a pivot has received from its source and earlier ones, it hands on in shares;
 * the last ones' potentials are known first, and in the same shares the others follow. Included once
 * per type of number and mode.
 *
 * `m` values go together and share what is read of the factors: those of a source, and what
 * `take_level` adds. */

/* On the way up currents are doubles, and a pivot hands on all that it has: of single precision its
 * shares, ground's among them, add up to 1 only to rounding, so what each hands on is divided by their
 * sum. The factors then are those of a network whose conductances are off by their rounding, and no
 * current is lost, which would lift all potentials behind a small leak by itself over that leak: sources
 * may cancel. Complex networks are refined instead. */
#if COMPLEX
INLINE element MODE(read)(const element *share) { return *share; }

INLINE carried MODE(hand_on)(carried c, element s, carried x) { return plus_product(c, s, x); }
#else
#if ROWS
#define OF(s, k) (s)
INLINE double MODE(read)(const element *share) { return (double)*share; }
#else
#define OF(s, k) (s).part[k]
INLINE wide MODE(read)(const element *share) { return widen(share); }
#endif

INLINE carried MODE(hand_on)(carried c, portion s, carried x) {
    UNROLL for (int k = 0; k < HALVES; k++) c.part[k] += OF(s, k) * x.part[k];
    return c;
}
#endif

/* Forward substitution of `pivots` from k on: they hand on to each other, then to all later nodes.
 * Shares, and numbers of `over_sum`, lie `step` apart. */
INLINE void MODE(forward_pivots)(const int m, const int step, const int pivots, const element *shares,
                                 const portion *over_sum, int64_t k, int64_t f, carried *t) {
    const element *h[4];
    carried x[4][4];
    UNROLL for (int i = 0; i < pivots; i++) h[i] = shares + share_index(f, k + i, 0) * step;
    UNROLL for (int i = 0; i < pivots; i++) {
        UNROLL for (int j = 0; j < m; j++) x[i][j] = t[(k + i) * m + j];
        UNROLL for (int q = 0; q < i; q++) {
            const portion s = MODE(read)(h[q] + (k + i) * step);
            UNROLL for (int j = 0; j < m; j++) x[i][j] = MODE(hand_on)(x[i][j], s, x[q][j]);
        }
        UNROLL for (int j = 0; j < m; j++) t[(k + i) * m + j] = x[i][j];
#if COMPLEX
        (void)over_sum;
#else
        if (HALVES == 1) continue;
        const portion all = over_sum[(k + i) * step];
        UNROLL for (int j = 0; j < m; j++) UNROLL for (int p = 0; p < HALVES; p++) x[i][j].part[p] *=
            OF(all, p);
#endif
    }
    for (int64_t q = k + pivots; q < f; q++) UNROLL for (int i = 0; i < pivots; i++) {
            const portion s = MODE(read)(h[i] + q * step);
            UNROLL for (int j = 0; j < m; j++) t[q * m + j] = MODE(hand_on)(t[q * m + j], s, x[i][j]);
        }
}

INLINE void MODE(forward)(const int m, const int step, const element *shares, const portion *over_sum,
                          int64_t n, int64_t f, carried *t) {
    int64_t k = 0;
    for (; k + 4 <= n; k += 4) MODE(forward_pivots)(m, step, 4, shares, over_sum, k, f, t);
    if (n & 2) MODE(forward_pivots)(m, step, 2, shares, over_sum, k, f, t);
    if (n & 1) MODE(forward_pivots)(m, step, 1, shares, over_sum, n - 1, f, t);
}

/* Backward substitution: potentials of `pivots` from k on, given those of later nodes. */
INLINE void MODE(backward_pivots)(const int m, const int step, const int pivots, const element *shares,
                                  int64_t k, int64_t f, unit *t) {
    const element *h[4];
    unit x[4][4];
    UNROLL for (int i = 0; i < pivots; i++) {
        h[i] = shares + share_index(f, k + i, 0) * step;
        UNROLL for (int j = 0; j < m; j++) x[i][j] = t[(k + i) * m + j];
    }
    for (int64_t q = k + pivots; q < f; q++) UNROLL for (int i = 0; i < pivots; i++) {
            const unit s = WIDEN(h[i][q * step]);
            UNROLL for (int j = 0; j < m; j++) x[i][j] = plus_product(x[i][j], s, t[q * m + j]);
        }
    UNROLL for (int i = pivots - 1; i >= 0; i--) {
        UNROLL for (int q = i + 1; q < pivots; q++) {
            const unit s = WIDEN(h[i][(k + q) * step]);
            UNROLL for (int j = 0; j < m; j++) x[i][j] = plus_product(x[i][j], s, x[q][j]);
        }
        UNROLL for (int j = 0; j < m; j++) t[(k + i) * m + j] = x[i][j];
    }
}

/* `t` of pivots: their potentials, had later nodes potential 0. */
INLINE void MODE(backward)(const int m, const int step, const element *shares, int64_t n, int64_t f,
                           unit *t) {
    if (n & 1) MODE(backward_pivots)(m, step, 1, shares, n - 1, f, t);
    if (n & 2) MODE(backward_pivots)(m, step, 2, shares, n / 4 * 4, f, t);
    for (int64_t k = n / 4 * 4 - 4; k >= 0; k -= 4) MODE(backward_pivots)(m, step, 4, shares, k, f, t);
}

/* Values of a front's nodes, of `size` bytes each: pivots first, then the boundary. */
INLINE void MODE(gather)(const int64_t size, const struct direct_args *a, int64_t r, const void *x,
                         void *t) {
    const int64_t n = a->pivots[r], width = a->width[r];
    const int32_t *boundary = a->boundary + a->boundary_at[r];
    memcpy(t, (const char *)x + a->first[r] * size, (size_t)(n * size));
    for (int64_t q = 0; q < width; q++)
        memcpy((char *)t + (n + q) * size, (const char *)x + boundary[q] * size, (size_t)size);
}

INLINE void MODE(forward_region)(const int m, const int step, const struct direct_args *a, int64_t r,
                                 const element *shares, const element *inverse, const portion *over_sum,
                                 carried *x, carried *t) {
    const int64_t n = a->pivots[r], width = a->width[r], first = a->first[r];
    const int32_t *boundary = a->boundary + a->boundary_at[r];
    if (!n) return;
    MODE(gather)(m * (int64_t)sizeof(carried), a, r, x, t);
    MODE(forward)(m, step, shares + a->share_at[r] * step, over_sum ? over_sum + first * step : NULL, n,
                  n + width, t);
    for (int64_t i = 0; i < n; i++) {
        const portion s = MODE(read)(inverse + (first + i) * step);
        UNROLL for (int j = 0; j < m; j++) x[(first + i) * m + j] =
            MODE(hand_on)((carried){}, s, t[i * m + j]);
    }
    for (int64_t q = 0; q < width; q++)
        UNROLL for (int j = 0; j < m; j++) x[boundary[q] * (int64_t)m + j] = t[(n + q) * m + j];
}

/* Whether all of these values are 0. */
INLINE int MODE(are_zero)(const carried *x, int64_t count) {
    const mask *value = (const mask *)x;
    mask some = {};
    for (int64_t i = 0; i < count * (int64_t)(sizeof(carried) / sizeof(mask)); i++) some |= value[i];
    int64_t all = 0;
    for (int lane = 0; lane < LANES; lane++) all |= some[lane];
    return !all;
}

/* A region that no current comes to hands none on: most regions, where sources are few nodes.
 * `over_sum`: read of single precision only. Factors lie `step` apart. */
INLINE void MODE(sweep_up)(const int m, const int step, const struct direct_args *a,
                           const element *shares, const element *inverse, const portion *over_sum,
                           carried *x, carried *t) {
    for (int64_t r = 0; r < a->regions; r++) {
        if (MODE(are_zero)(x + a->first[r] * m, a->pivots[r] * m)) continue;
        MODE(forward_region)(m, step, a, r, shares, inverse, over_sum, x, t);
    }
}

INLINE void MODE(sweep_down)(const int m, const int step, const struct direct_args *a,
                             const element *shares, unit *x, unit *t) {
    for (int64_t r = a->regions - 1; r >= 0; r--) {
        const int64_t n = a->pivots[r];
        if (!n) continue;
        MODE(gather)(m * (int64_t)sizeof(unit), a, r, x, t);
        MODE(backward)(m, step, shares + a->share_at[r] * step, n, n + a->width[r], t);
        memcpy(x + a->first[r] * m, t, (size_t)(n * m) * sizeof(unit));
    }
}

#undef OF
