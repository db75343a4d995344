/* One chunk of one block of channels, forwards. Included once per width of vectors.
 *
 * State arrays are (states, LANES); `table` is (states, 3, LANES): decay, its inverse, and
 * decay / ln(2), the halvings of a unit step. */

/* One step towards the equilibrium b u / decay: v + (1 - exp(-z)) (b u / decay - v). */
INLINE VEC WIDE(update)(VEC state, struct WIDE(coefficients) k, VEC equilibrium) {
    return state + k.loss * (equilibrium - state);
}

/* `count` states from the n-th on; the `first` ones set y, the others add to it. */
INLINE void WIDE(read_out)(
    int rows, int count, const REAL *table, REAL *state, VEC skip, struct NAME(rows) u,
    struct NAME(rows) delta, struct NAME(rows) b, struct NAME(rows) c, struct NAME(rows) y,
    int first) {
    VEC v[CHAINS], inverse[CHAINS], rate[CHAINS];
    for (int i = 0; i < count; i++) {
        v[i] = WIDE(load)(state + i * LANES);
        inverse[i] = WIDE(load)(table + (3 * i + 1) * LANES);
        rate[i] = WIDE(load)(table + (3 * i + 2) * LANES);
    }
    for (int t = 0; t < rows; t++) {
        const VEC input = WIDE(load)(u.at + t * u.step);
        const VEC step = WIDE(load)(delta.at + t * delta.step);
        REAL *out = y.at + t * y.step;
        VEC sum = skip * input;
        if (!first) sum = WIDE(load)(out);
        for (int i = 0; i < count; i++) {
            v[i] = WIDE(update)(v[i], WIDE(zoh)(step * rate[i]),
                                inverse[i] * (b.at[t * b.step + i] * input));
            sum += c.at[t * c.step + i] * v[i];
        }
        WIDE(store)(out, sum);
    }
    for (int i = 0; i < count; i++) WIDE(store)(state + i * LANES, v[i]);
}

/* Advances all states by a chunk and reads them out: y = skip u + sum_n c v, or y += sum_n c v
 * where `add`. */
static void WIDE(forward_block)(int rows, int64_t states, const REAL *table, REAL *state,
                                const REAL *skip, struct NAME(rows) u, struct NAME(rows) delta,
                                struct NAME(rows) b, struct NAME(rows) c, struct NAME(rows) y,
                                int add) {
    const VEC weight = WIDE(load)(skip);
    for (int64_t n = 0, count; n < states; n += count, b.at += count, c.at += count) {
        count = states - n < CHAINS ? 1 : CHAINS;
#define READ_OUT(count, first)                                                                \
    WIDE(read_out)(rows, count, table + 3 * n * LANES, state + n * LANES, weight, u, delta, b, c, \
                   y, first)
        const int first = n == 0 && !add;
        if (count == 1) {
            if (first) READ_OUT(1, 1); else READ_OUT(1, 0);
        } else {
            if (first) READ_OUT(CHAINS, 1); else READ_OUT(CHAINS, 0);
        }
#undef READ_OUT
    }
}

/* States after a chunk, from those before it. */
static void WIDE(advance_block)(int rows, int64_t states, const REAL *table, const REAL *before,
                                REAL *after, struct NAME(rows) u, struct NAME(rows) delta,
                                struct NAME(rows) b) {
    for (int64_t n = 0; n < states; n++) {
        VEC v = WIDE(load)(before + n * LANES);
        const VEC inverse = WIDE(load)(table + (3 * n + 1) * LANES);
        const VEC rate = WIDE(load)(table + (3 * n + 2) * LANES);
        for (int t = 0; t < rows; t++)
            v = WIDE(update)(v, WIDE(zoh)(WIDE(load)(delta.at + t * delta.step) * rate),
                             inverse * (b.at[t * b.step + n] * WIDE(load)(u.at + t * u.step)));
        WIDE(store)(after + n * LANES, v);
    }
}

/* The final state of a line from rest, walking from where it ends:
 *   v += P w b u, P *= exp(-z)    of the scan, from the last step
 *   P *= exp(-z), g += P c grad_y of the adjoint, from the first step
 * with P the share that is left at the end. x is u or grad_y, w is b or c. */
INLINE void WIDE(from_rest)(int rows, int count, int adjoint, const REAL *table, REAL *share,
                            REAL *out, struct NAME(rows) x, struct NAME(rows) delta,
                            struct NAME(rows) w) {
    VEC left[CHAINS], sum[CHAINS], inverse[CHAINS], rate[CHAINS];
    for (int i = 0; i < count; i++) {
        left[i] = WIDE(load)(share + i * LANES);
        sum[i] = WIDE(load)(out + i * LANES);
        inverse[i] = WIDE(load)(table + (3 * i + 1) * LANES);
        rate[i] = WIDE(load)(table + (3 * i + 2) * LANES);
    }
    for (int row = 0; row < rows; row++) {
        const int t = adjoint ? row : rows - 1 - row;
        const VEC input = WIDE(load)(x.at + t * x.step);
        const VEC step = WIDE(load)(delta.at + t * delta.step);
        for (int i = 0; i < count; i++) {
            const struct WIDE(coefficients) z = WIDE(zoh)(step * rate[i]);
            const VEC weighted = w.at[t * w.step + i] * input;
            if (adjoint) {
                left[i] *= z.retention;
                sum[i] += left[i] * weighted;
            } else {
                sum[i] += left[i] * (z.loss * (inverse[i] * weighted));
                left[i] *= z.retention;
            }
        }
    }
    for (int i = 0; i < count; i++) {
        WIDE(store)(share + i * LANES, left[i]);
        WIDE(store)(out + i * LANES, sum[i]);
    }
}

/* One chunk of that walk for all states, and the sum of its steps into `time`. States of which no
 * lane has a share above FORGOTTEN are done; returns whether all are. */
static int WIDE(from_rest_block)(int rows, int64_t states, int adjoint, const REAL *table,
                                 REAL *share, REAL *out, REAL *time, struct NAME(rows) x,
                                 struct NAME(rows) delta, struct NAME(rows) w) {
    const VEC forgotten = (VEC){0} + (REAL)FORGOTTEN;
    VEC sum = WIDE(load)(time);
    int done = 1;
    for (int t = 0; t < rows; t++) sum += WIDE(load)(delta.at + t * delta.step);
    WIDE(store)(time, sum);
    for (int64_t n = 0, count; n < states; n += count, w.at += count) {
        count = states - n < CHAINS ? 1 : CHAINS;
        REAL *left = share + n * LANES;
        IVEC felt = WIDE(load)(left) > forgotten;
        for (int i = 1; i < count; i++) felt |= WIDE(load)(left + i * LANES) > forgotten;
        if (!WIDE(any)(felt)) continue;
        done = 0;
#define FROM_REST(count, adjoint)                                                                 \
    WIDE(from_rest)(rows, count, adjoint, table + 3 * n * LANES, left, out + n * LANES, x, delta, w)
        if (count == 1) {
            if (adjoint) FROM_REST(1, 1); else FROM_REST(1, 0);
        } else {
            if (adjoint) FROM_REST(CHAINS, 1); else FROM_REST(CHAINS, 0);
        }
#undef FROM_REST
    }
    return done;
}

/* Over a segment whose steps sum to `time`: out = added + exp(-decay time) in. With `close`, out is
 * what a ring adds up to: added / (1 - exp(-decay time)). */
static void WIDE(carry_block)(int64_t states, const REAL *table, const REAL *time, const REAL *in,
                              const REAL *added, REAL *out, int close) {
    const VEC limit = (VEC){0} - (REAL)HALVINGS_MAX;
    for (int64_t n = 0; n < states; n++) {
        VEC halvings = WIDE(load)(time) * WIDE(load)(table + (3 * n + 2) * LANES);
        halvings = WIDE(select)(halvings < limit, limit, halvings); /* active circuits grow */
        const struct WIDE(coefficients) z = WIDE(zoh)(halvings);
        VEC sum = WIDE(load)(added + n * LANES);
        if (close)
            sum /= z.loss;
        else
            sum += z.retention * WIDE(load)(in + n * LANES);
        WIDE(store)(out + n * LANES, sum);
    }
}
