/* Potentials from factors: what a pivot has received from its source and earlier ones, it hands on
 * in shares; the last ones' potentials are known first, and in the same shares the others follow.
 * Included once per precision and mode.
 *
 * A value is a vector: of one source for every network of the group, or of LANES sources for one
 * network. Sources beyond one vector share what is read of the factors. */

enum { MODE(SOURCES) = 4 }; /* vectors that go together at most */

static int64_t MODE(solve_bytes)(const struct direct_args *a) {
    const int64_t together = a->sources > 1 ? MODE(SOURCES) : 1;
    return (aligned(a->nodes * (int64_t)sizeof(vec)) +
            aligned((a->largest_front + PAD) * (int64_t)sizeof(vec))) *
           together;
}

INLINE void MODE(forward)(const int m, const element *shares, int64_t n, int64_t f, vec *t) {
    int64_t k = 0;
    for (; k + 4 <= n; k += 4) {
        for (int64_t i = k; i < k + 3; i++)
            for (int64_t q = i + 1; q < k + 4; q++) {
                const vec s = WIDEN(shares[share_index(f, i, q)]);
                UNROLL for (int j = 0; j < m; j++) t[q * m + j] += s * t[i * m + j];
            }
        const element *h[4];
        vec x[4][4];
        UNROLL for (int i = 0; i < 4; i++) {
            h[i] = shares + share_index(f, k + i, 0);
            UNROLL for (int j = 0; j < m; j++) x[i][j] = t[(k + i) * m + j];
        }
        for (int64_t q = k + 4; q < f; q++)
            UNROLL for (int i = 0; i < 4; i++) {
                const vec s = WIDEN(h[i][q]);
                UNROLL for (int j = 0; j < m; j++) t[q * m + j] += s * x[i][j];
            }
    }
    for (; k < n; k++) {
        const element *h = shares + share_index(f, k, 0);
        for (int64_t q = k + 1; q < f; q++) {
            const vec s = WIDEN(h[q]);
            UNROLL for (int j = 0; j < m; j++) t[q * m + j] += s * t[k * m + j];
        }
    }
}

/* `t` of pivots: their potentials, had later nodes potential 0. */
INLINE void MODE(backward)(const int m, const element *shares, int64_t n, int64_t f, vec *t) {
    int64_t k = n;
    for (; k % 4; k--) {
        const element *h = shares + share_index(f, k - 1, 0);
        for (int64_t q = k; q < f; q++) {
            const vec s = WIDEN(h[q]);
            UNROLL for (int j = 0; j < m; j++) t[(k - 1) * m + j] += s * t[q * m + j];
        }
    }
    for (k -= 4; k >= 0; k -= 4) {
        const element *h[4];
        vec x[4][4];
        UNROLL for (int i = 0; i < 4; i++) {
            h[i] = shares + share_index(f, k + i, 0);
            UNROLL for (int j = 0; j < m; j++) x[i][j] = t[(k + i) * m + j];
        }
        for (int64_t q = k + 4; q < f; q++)
            UNROLL for (int i = 0; i < 4; i++) {
                const vec s = WIDEN(h[i][q]);
                UNROLL for (int j = 0; j < m; j++) x[i][j] += s * t[q * m + j];
            }
        for (int i = 3; i >= 0; i--) {
            for (int q = i + 1; q < 4; q++) {
                const vec s = WIDEN(h[i][k + q]);
                UNROLL for (int j = 0; j < m; j++) x[i][j] += s * x[q][j];
            }
            UNROLL for (int j = 0; j < m; j++) t[(k + i) * m + j] = x[i][j];
        }
    }
}

/* Values of a front's nodes: pivots first, then the boundary. */
INLINE void MODE(gather)(const int m, const struct direct_args *a, int64_t r, const vec *x, vec *t) {
    const int64_t n = a->pivots[r], width = a->width[r];
    const int32_t *boundary = a->boundary + a->boundary_at[r];
    memcpy(t, x + a->first[r] * m, (size_t)(n * m) * sizeof(vec));
    for (int64_t q = 0; q < width; q++)
        UNROLL for (int j = 0; j < m; j++) t[(n + q) * m + j] = x[boundary[q] * (int64_t)m + j];
}

INLINE void MODE(sweep)(const int m, const struct direct_args *a, const element *shares,
                        const element *inverse, vec *x, vec *t) {
    for (int64_t r = 0; a->call != DIRECT_SAMPLE && r < a->regions; r++) {
        const int64_t n = a->pivots[r], width = a->width[r];
        const int32_t *boundary = a->boundary + a->boundary_at[r];
        MODE(gather)(m, a, r, x, t);
        MODE(forward)(m, shares + a->share_at[r], n, n + width, t);
        for (int64_t i = 0; i < n; i++) {
            const vec s = WIDEN(inverse[a->first[r] + i]);
            UNROLL for (int j = 0; j < m; j++) x[(a->first[r] + i) * m + j] = t[i * m + j] * s;
        }
        for (int64_t q = 0; q < width; q++)
            UNROLL for (int j = 0; j < m; j++) x[boundary[q] * (int64_t)m + j] = t[(n + q) * m + j];
    }
    for (int64_t r = a->regions - 1; r >= 0; r--) {
        const int64_t n = a->pivots[r];
        MODE(gather)(m, a, r, x, t);
        MODE(backward)(m, shares + a->share_at[r], n, n + a->width[r], t);
        memcpy(x + a->first[r] * m, t, (size_t)(n * m) * sizeof(vec));
    }
}

#if ROWS
INLINE vec NAME(piece)(const REAL *at) { return *(const loose *)at; }

/* One source for one network: vectors run along the fronts' rows. */
static void NAME(forward_one)(const REAL *shares, int64_t n, int64_t f, REAL *t) {
    int64_t k = 0;
    for (; k + 4 <= n; k += 4) {
        const REAL *h[4];
        vec x[4];
        for (int i = 0; i < 4; i++) h[i] = shares + share_index(f, k + i, 0);
        for (int i = 0; i < 4; i++) {
            x[i] = NAME(splat)(t[k + i]);
            for (int q = i + 1; q < 4; q++) t[k + q] += h[i][k + q] * t[k + i];
        }
        int64_t q = k + 4;
        for (; q + LANES <= f; q += LANES) {
            vec sum = NAME(piece)(t + q);
            UNROLL for (int i = 0; i < 4; i++) sum += NAME(piece)(h[i] + q) * x[i];
            *(loose *)(t + q) = sum;
        }
        for (; q < f; q++)
            t[q] += (h[0][q] * x[0][0] + h[1][q] * x[1][0]) + (h[2][q] * x[2][0] + h[3][q] * x[3][0]);
    }
    for (; k < n; k++) {
        const REAL *restrict h = shares + share_index(f, k, k + 1), x = t[k];
        REAL *restrict to = t + k + 1;
        for (int64_t q = 0; q < f - k - 1; q++) to[q] += h[q] * x;
    }
}

static void NAME(backward_one)(const REAL *shares, int64_t n, int64_t f, REAL *t) {
    int64_t k = n;
    for (; k % 4; k--) {
        const REAL *h = shares + share_index(f, k - 1, 0);
        vec sum = {};
        int64_t q = k;
        for (; q + LANES <= f; q += LANES) sum += NAME(piece)(h + q) * NAME(piece)(t + q);
        REAL all = NAME(sum)(sum);
        for (; q < f; q++) all += h[q] * t[q];
        t[k - 1] += all;
    }
    for (k -= 4; k >= 0; k -= 4) {
        const REAL *h[4];
        vec sum[4] = {};
        for (int i = 0; i < 4; i++) h[i] = shares + share_index(f, k + i, 0);
        int64_t q = k + 4;
        for (; q + LANES <= f; q += LANES) {
            const vec x = NAME(piece)(t + q);
            UNROLL for (int i = 0; i < 4; i++) sum[i] += NAME(piece)(h[i] + q) * x;
        }
        for (int i = 3; i >= 0; i--) {
            REAL all = NAME(sum)(sum[i]);
            for (int64_t j = q; j < f; j++) all += h[i][j] * t[j];
            for (int j = i + 1; j < 4; j++) all += h[i][k + j] * t[k + j];
            t[k + i] += all;
        }
    }
}

static void NAME(sweep_one)(const struct direct_args *a, const REAL *shares, const REAL *inverse,
                            REAL *x, REAL *t) {
    for (int64_t r = 0; a->call != DIRECT_SAMPLE && r < a->regions; r++) {
        const int64_t n = a->pivots[r], width = a->width[r], first = a->first[r];
        const int32_t *boundary = a->boundary + a->boundary_at[r];
        memcpy(t, x + first, (size_t)n * sizeof(REAL));
        for (int64_t q = 0; q < width; q++) t[n + q] = x[boundary[q]];
        NAME(forward_one)(shares + a->share_at[r], n, n + width, t);
        for (int64_t i = 0; i < n; i++) x[first + i] = t[i] * inverse[first + i];
        for (int64_t q = 0; q < width; q++) x[boundary[q]] = t[n + q];
    }
    for (int64_t r = a->regions - 1; r >= 0; r--) {
        const int64_t n = a->pivots[r], width = a->width[r], first = a->first[r];
        const int32_t *boundary = a->boundary + a->boundary_at[r];
        memcpy(t, x + first, (size_t)n * sizeof(REAL));
        for (int64_t q = 0; q < width; q++) t[n + q] = x[boundary[q]];
        NAME(backward_one)(shares + a->share_at[r], n, n + width, t);
        memcpy(x + first, t, (size_t)n * sizeof(REAL));
    }
}

static void NAME(solve_one)(const struct direct_args *a, const struct NAME(item) *item,
                            int64_t source, REAL factor, REAL wrong, char *workspace) {
    const REAL *shares = (const REAL *)a->shares + item->slot * a->item_shares;
    const REAL *inverse = (const REAL *)a->inverse + item->slot * a->nodes;
    const int64_t offset = item->of[0] + source * a->nodes * a->channels;
    const REAL *from = (const REAL *)a->source + offset;
    REAL *to = (REAL *)a->potential + offset, *x = (REAL *)workspace;
    for (int64_t p = 0; p < a->nodes; p++) {
        REAL s = from[a->node[p] * a->channels];
        wrong += s - s;
        x[p] = a->call == DIRECT_SAMPLE ? s * (REAL)sqrt(inverse[p]) : s;
    }
    NAME(sweep_one)(a, shares, inverse, x, x + aligned(a->nodes * (int64_t)sizeof(vec)) / (int64_t)sizeof(REAL));
    for (int64_t p = 0; p < a->nodes; p++) to[a->node[p] * a->channels] = x[p] * factor + wrong;
}
#endif

INLINE void MODE(solve_some)(const int m, const struct direct_args *a, const struct NAME(item) *item,
                             int64_t source, vec factor, vec wrong, char *workspace) {
    const element *shares = (const element *)a->shares + item->slot * a->item_shares;
    const element *inverse = (const element *)a->inverse + item->slot * a->nodes;
    vec *x = (vec *)workspace, *t = x + a->nodes * m, bad[4];
    const int64_t next = a->nodes * a->channels;
    for (int j = 0; j < m; j++) {
        bad[j] = wrong;
        for (int64_t p = 0; p < a->nodes; p++) {
            const int64_t node = a->node[p] * a->channels;
            vec s = {};
#if ROWS
            const REAL *from = (const REAL *)a->source + item->of[0] + node;
            for (int lane = 0; lane < LANES; lane++) {
                const int64_t of = source + j * LANES + lane;
                if (of < a->sources) s[lane] = from[of * next];
            }
#else
            if (source + j < a->sources)
                s = NAME(load)(item, (const REAL *)a->source, item->of, (source + j) * next + node);
#endif
            bad[j] += s - s;
            if (a->call == DIRECT_SAMPLE) {
                const vec i = WIDEN(inverse[p]);
                for (int lane = 0; lane < LANES; lane++) s[lane] *= (REAL)sqrt(i[lane]);
            }
            x[p * m + j] = s;
        }
    }
    MODE(sweep)(m, a, shares, inverse, x, t);
    for (int j = 0; j < m; j++)
        for (int64_t p = 0; p < a->nodes; p++) {
            const int64_t node = a->node[p] * a->channels;
            const vec v = x[p * m + j] * factor + bad[j];
#if ROWS
            REAL *to = (REAL *)a->potential + item->of[0] + node;
            for (int lane = 0; lane < LANES; lane++) {
                const int64_t of = source + j * LANES + lane;
                if (of < a->sources) to[of * next] = v[lane];
            }
#else
            if (source + j < a->sources)
                NAME(store)(item, (REAL *)a->potential, item->of, (source + j) * next + node, v);
#endif
        }
}

APART void MODE(solve_single)(const struct direct_args *a, const struct NAME(item) *item,
                              int64_t source, vec factor, vec wrong, char *workspace) {
    MODE(solve_some)(1, a, item, source, factor, wrong, workspace);
}

APART void MODE(solve_several)(const struct direct_args *a, const struct NAME(item) *item,
                               int64_t source, vec factor, vec wrong, char *workspace) {
    MODE(solve_some)(MODE(SOURCES), a, item, source, factor, wrong, workspace);
}

static void MODE(solve_item)(const struct direct_args *a, int64_t index, char *workspace) {
    const struct NAME(item) item = NAME(item_at)(a, index);
    vec factor = {}, wrong = {};
    for (int lane = 0; lane < LANES; lane++) {
        const int64_t network = index * (ROWS ? 1 : LANES) + (lane < item.width ? lane : 0);
        const REAL scale = ((const REAL *)a->scale)[network];
        factor[lane] = a->call == DIRECT_SAMPLE ? (REAL)sqrt(scale) : scale;
        wrong[lane] = a->status[network] == DIRECT_NOT_FINITE ? (REAL)NAN : 0;
    }
    int64_t source = 0;
    const int64_t per = ROWS ? LANES : 1;
#if ROWS
    for (; a->sources - source < 3 && source < a->sources; source++)
        NAME(solve_one)(a, &item, source, factor[0], wrong[0], workspace);
#endif
    while (source < a->sources) {
        const int64_t left = a->sources - source;
        if (left > per) {
            MODE(solve_several)(a, &item, source, factor, wrong, workspace);
            source += MODE(SOURCES) * per;
        } else {
            MODE(solve_single)(a, &item, source, factor, wrong, workspace);
            source += per;
        }
    }
}
