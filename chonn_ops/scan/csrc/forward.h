/* y and the final state of one block of channels. Included once per precision. */

/* `count` states over one chunk; the `first` ones set y, the others add to it. */
static inline void NAME(forward_chunk)(int rows, int count, VEC *state, const VEC *decay, VEC skip,
                                       struct NAME(stream) u, struct NAME(stream) delta,
                                       struct NAME(stream) b, struct NAME(stream) c,
                                       struct NAME(stream) y, int first) {
    VEC v[PAIR], inverse[PAIR], rate[PAIR];
    for (int i = 0; i < count; i++) {
        v[i] = state[i];
        inverse[i] = (REAL)1 / decay[i];
        rate[i] = decay[i] * (REAL)(1 / LN2);
    }
    for (int t = 0; t < rows; t++) {
        const VEC input = NAME(load)(u.at + t * u.step);
        const VEC step = NAME(load)(delta.at + t * delta.step);
        REAL *out = y.at + t * y.step;
        VEC sum = skip * input;
        if (!first) sum = NAME(load)(out);
        for (int i = 0; i < count; i++) {
            v[i] = NAME(update)(v[i], NAME(zoh)(step * rate[i]),
                                inverse[i] * (b.at[t * b.step + i] * input));
            sum += c.at[t * c.step + i] * v[i];
        }
        NAME(store)(out, sum);
    }
    for (int i = 0; i < count; i++) state[i] = v[i];
}

static void NAME(forward_block)(const struct scan_args *a, int64_t batch, int64_t channel) {
    const int64_t D = a->channels, N = a->states, L = a->steps;
    const int width = D - channel < LANES ? (int)(D - channel) : LANES;
    const int64_t y_stride[2] = {L * D, D};
    const struct NAME(stream) u = NAME(channels)(NAME(open)(a->u, a, batch, a->u_stride), channel);
    const struct NAME(stream) delta =
        NAME(channels)(NAME(open)(a->delta, a, batch, a->delta_stride), channel);
    const struct NAME(stream) y = NAME(channels)(NAME(open)(a->y, a, batch, y_stride), channel);
    const struct NAME(stream) b = NAME(open)(a->b, a, batch, a->b_stride);
    const struct NAME(stream) c = NAME(open)(a->c, a, batch, a->c_stride);
    const VEC zero = {0};
    const VEC skip = a->d ? NAME(gather)((const REAL *)a->d + channel, 1, width, 0) : zero;
    REAL u_packed[CHUNK * LANES], delta_packed[CHUNK * LANES], y_packed[CHUNK * LANES];
    VEC state[SLICE], decay[SLICE];

    for (int64_t n0 = 0; n0 < N; n0 += SLICE) {
        const int states = N - n0 < SLICE ? (int)(N - n0) : SLICE;
        for (int n = 0; n < states; n++) {
            const int64_t at = (batch * D + channel) * N + n0 + n;
            decay[n] = NAME(gather)((const REAL *)a->decay + channel * N + n0 + n, N, width, 1);
            state[n] = a->initial_state
                           ? NAME(gather)((const REAL *)a->initial_state + at, N, width, 0)
                           : zero;
        }
        for (int64_t t = 0; t < L; t += CHUNK) {
            const int rows = L - t < CHUNK ? (int)(L - t) : CHUNK;
            const struct NAME(stream) us = NAME(rows)(u, t, rows, width, u_packed, 1);
            const struct NAME(stream) ds = NAME(rows)(delta, t, rows, width, delta_packed, 1);
            const struct NAME(stream) ys = NAME(rows)(y, t, rows, width, y_packed, n0 > 0);
            const int keep = a->checkpoints && t / CHUNK % a->spacing == 0;
            for (int n = 0; keep && n < states; n++)
                NAME(scatter)(NAME(checkpoint)(a, batch, t / CHUNK, n0 + n, channel), 1, width,
                              state[n]);
            for (int n = 0; n < states; n += PAIR) {
                struct NAME(stream) bs = b, cs = c;
                bs.at += t * b.step + n0 + n;
                cs.at += t * c.step + n0 + n;
#define WALK(count, first)                                                                  \
    NAME(forward_chunk)(rows, count, state + n, decay + n, skip, us, ds, bs, cs, ys, first)
                if (n + 1 == states) {
                    if (n0 + n == 0) WALK(1, 1); else WALK(1, 0);
                } else {
                    if (n0 + n == 0) WALK(PAIR, 1); else WALK(PAIR, 0);
                }
#undef WALK
            }
            NAME(unpack)(y, t, rows, width, y_packed);
        }
        for (int n = 0; n < states; n++)
            NAME(scatter)((REAL *)a->state + (batch * D + channel) * N + n0 + n, N, width,
                          state[n]);
    }
}

static void NAME(forward)(const struct scan_args *a) {
    const int64_t blocks = (a->channels + LANES - 1) / LANES;
#pragma omp parallel for schedule(static) num_threads(a->threads) if (a->threads > 1)
    for (int64_t job = 0; job < a->batches * blocks; job++)
        NAME(forward_block)(a, job / blocks, job % blocks * LANES);
}
