/* What a segment adds to the state, or to the adjoint, that enters it: one chunk of one block of
 * channels.
 *
 * The final state from rest is a sum over steps, which starts at the step that matters most:
 *   v += P (1 - exp(-z)) / decay b u, P *= exp(-z)    the scan, from its last step backwards
 *   P *= exp(-z), g += P c grad_y                     the adjoint, from the first step forwards
 * where P is the share of a step's contribution that is left at the end. For the adjoint, grad_y is
 * the field u and c is the field b. */
INLINE void from_rest_states(int rows, int count, int adjoint, const REAL *table, REAL *share, REAL *out,
                             struct fields f) {
    const struct rates k = rates_of(count, table);
    VEC left[CHAINS], sum[CHAINS];
    for (int i = 0; i < count; i++) {
        left[i] = load(share + i * LANES);
        sum[i] = load(out + i * LANES);
    }
    for (int row = 0; row < rows; row++) {
        const int t = adjoint ? row : rows - 1 - row;
        const VEC input = ROW(u), step = ROW(delta);
        for (int i = 0; i < count; i++) {
            const struct coefficients z = zoh(step * k.rate[i]);
            const VEC weighted = OF_STATE(b) * input;
            if (adjoint) {
                left[i] *= retention(z);
                sum[i] += left[i] * weighted;
            } else {
                sum[i] += left[i] * (loss(z) * (k.inverse[i] * weighted));
                left[i] *= retention(z);
            }
        }
    }
    for (int i = 0; i < count; i++) {
        store(share + i * LANES, left[i]);
        store(out + i * LANES, sum[i]);
    }
}

/* One chunk of `from_rest` for all states; adds the chunk's deltas to `time`. The function skips
 * states whose share is below FORGOTTEN in every lane, and returns whether it skipped all. */
static int from_rest_block(int rows, int64_t states, int adjoint, const REAL *table, REAL *share,
                           REAL *out, REAL *time, struct fields f) {
    const VEC forgotten = (VEC){0} + (REAL)FORGOTTEN;
    VEC sum = load(time);
    int done = 1;
    for (int t = 0; t < rows; t++) sum += ROW(delta);
    store(time, sum);
    EACH_STATE {
        REAL *left = share + n * LANES;
        IVEC felt = load(left) > forgotten;
        for (int i = 1; i < count; i++) felt |= load(left + i * LANES) > forgotten;
        if (!any(felt)) continue;
        done = 0;
#define FROM_REST(count, adjoint) \
    from_rest_states(rows, count, adjoint, table + 3 * n * LANES, left, out + n * LANES, f)
        WITH_CONSTANTS(FROM_REST, count, adjoint);
#undef FROM_REST
    }
    return done;
}

/* The state after a segment whose deltas sum to `time`: out = added + exp(-decay time) in. With
 * `close`, the state that one period reproduces: out = added / (1 - exp(-decay time)). */
static void carry_block(int64_t states, const REAL *table, const REAL *time, const REAL *in,
                        const REAL *added, REAL *out, int close) {
    for (int64_t n = 0; n < states; n++) {
        const VEC rate = load(table + (3 * n + 2) * LANES);
        const struct coefficients z = zoh_over(load(time), rate);
        VEC sum = load(added + n * LANES);
        if (close)
            sum /= loss(z);
        else
            sum += retention(z) * load(in + n * LANES);
        store(out + n * LANES, sum);
    }
}
