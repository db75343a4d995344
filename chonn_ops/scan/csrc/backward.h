/* The adjoint scan of one block of channels. Included once per precision.
 *
 * With g_k the gradient of v_k, e = exp(-delta decay) and w the injection weight:
 *   g_k = c_k grad_y_k + e_{k+1} g_{k+1}        grad_u += w b g          grad_b += w u g
 *   grad_delta += e g (b u - decay v_{k-1})     grad_c += grad_y v_k
 *   grad_decay -= e g delta v_{k-1} + bend b u g,    bend = -dw/ddecay = (w - delta e) / decay
 * States are recomputed from the forward's checkpoints, one every `spacing` chunks. */

struct NAME(chunk) {
    int rows;
    struct NAME(stream) u, delta, b, c, grad_y, grad_u, grad_delta;
};

/* What the walk back needs of the walk forth, for one state and one chunk. */
struct NAME(tape) {
    VEC retention[CHUNK], weight[CHUNK], bend[CHUNK], before[CHUNK], grad_b[CHUNK], grad_c[CHUNK];
};

static inline VEC NAME(advance)(const struct NAME(chunk) *k, VEC state, VEC decay) {
    const VEC inverse = (REAL)1 / decay, rate = decay * (REAL)(1 / LN2);
    for (int t = 0; t < k->rows; t++) {
        const VEC u = NAME(load)(k->u.at + t * k->u.step);
        state = NAME(update)(state,
                             NAME(zoh)(NAME(load)(k->delta.at + t * k->delta.step) * rate),
                             inverse * (k->b.at[t * k->b.step] * u));
    }
    return state;
}

static inline void NAME(record)(const struct NAME(chunk) *k, VEC state, VEC decay,
                                struct NAME(tape) *tape) {
    const VEC inverse = (REAL)1 / decay, rate = decay * (REAL)(1 / LN2);
    for (int t = 0; t < k->rows; t++) {
        const VEC u = NAME(load)(k->u.at + t * k->u.step);
        const VEC delta = NAME(load)(k->delta.at + t * k->delta.step);
        struct NAME(coefficients) z = NAME(zoh)(delta * rate);
        const VEC weight = z.loss * inverse;
        tape->before[t] = state;
        tape->retention[t] = z.retention;
        tape->weight[t] = weight;
        /* The closed form cancels at small z, where bend = delta^2 (1 - exp(-z) - z exp(-z)) / z^2
         * in terms of phi and slope. */
        const VEC series = z.phi * (REAL)(1 / LN2) - z.slope * (REAL)(1 / (LN2 * LN2));
        tape->bend[t] = NAME(select)(z.small, delta * delta * series,
                                     (weight - delta * z.retention) * inverse);
        state = NAME(update)(state, z, inverse * (k->b.at[t * k->b.step] * u));
        tape->grad_c[t] = NAME(load)(k->grad_y.at + t * k->grad_y.step) * state;
    }
}

static inline void NAME(retrace)(const struct NAME(chunk) *k, VEC decay, struct NAME(tape) *tape,
                                 VEC *grad_state, VEC *grad_decay) {
    VEC carried = *grad_state, grad = *grad_decay;
    for (int t = k->rows - 1; t >= 0; t--) {
        const REAL b = k->b.at[t * k->b.step], c = k->c.at[t * k->c.step];
        const VEC u = NAME(load)(k->u.at + t * k->u.step);
        const VEC delta = NAME(load)(k->delta.at + t * k->delta.step);
        REAL *grad_u = k->grad_u.at + t * k->grad_u.step;
        REAL *grad_delta = k->grad_delta.at + t * k->grad_delta.step;
        const VEC g = c * NAME(load)(k->grad_y.at + t * k->grad_y.step) + carried;
        const VEC injected = b * u, weighted = g * tape->weight[t], before = tape->before[t];
        carried = g * tape->retention[t];
        tape->grad_b[t] = weighted * u;
        NAME(store)(grad_u, weighted * b + NAME(load)(grad_u));
        NAME(store)(grad_delta,
                    carried * (injected - decay * before) + NAME(load)(grad_delta));
        grad -= carried * (delta * before) + (g * injected) * tape->bend[t];
    }
    *grad_state = carried;
    *grad_decay = grad;
}

/* Adds each row's sum over lanes to out: neighbours in pairs, halving the width each time. */
static inline void NAME(fold)(VEC *lanes, int rows, struct NAME(stream) out) {
    REAL spare[CHUNK * LANES / 2];
    REAL *restrict from = (REAL *)lanes, *restrict to = spare;
    for (int width = LANES / 2; width > 0; width /= 2) {
        for (int i = 0; i < rows * width; i++) to[i] = from[2 * i] + from[2 * i + 1];
        REAL *swap = from;
        from = to;
        to = swap;
    }
    for (int t = 0; t < rows; t++) out.at[t * out.step] += from[t];
}

/* The states before each chunk from `first`, which has a checkpoint, to `last`. */
static void NAME(enter)(const struct scan_args *a, const struct NAME(chunk) *line, int64_t batch,
                        int64_t channel, int64_t first, int64_t last, int64_t n0, int states,
                        int width, const VEC *decay, REAL *u_packed, REAL *delta_packed,
                        VEC *entries) {
    for (int n = 0; n < states; n++)
        entries[n] =
            NAME(gather)(NAME(checkpoint)(a, batch, first, n0 + n, channel), 1, width, 0);
    for (int64_t chunk = first; chunk < last; chunk++, entries += SLICE) {
        const int64_t t = chunk * CHUNK;
        struct NAME(chunk) k = *line;
        k.rows = CHUNK;
        k.u = NAME(rows)(line->u, t, k.rows, width, u_packed, 1);
        k.delta = NAME(rows)(line->delta, t, k.rows, width, delta_packed, 1);
        for (int n = 0; n < states; n++) {
            k.b.at = line->b.at + t * line->b.step + n0 + n;
            entries[SLICE + n] = NAME(advance)(&k, entries[n], decay[n]);
        }
    }
}

static void NAME(backward_block)(const struct scan_args *a, int64_t batch, int64_t group,
                                 int64_t channel, VEC *entries) {
    const int64_t D = a->channels, N = a->states, L = a->steps;
    const int64_t chunks = (L + CHUNK - 1) / CHUNK;
    const int width = D - channel < LANES ? (int)(D - channel) : LANES;
    const int64_t wide[2] = {L * D, D}, narrow[2] = {L * N, N};
#define CHANNELS(tensor, stride) NAME(channels)(NAME(open)(tensor, a, batch, stride), channel)
    const struct NAME(chunk) line = {
        .u = CHANNELS(a->u, a->u_stride),
        .delta = CHANNELS(a->delta, a->delta_stride),
        .b = NAME(open)(a->b, a, batch, a->b_stride),
        .c = NAME(open)(a->c, a, batch, a->c_stride),
        .grad_y = CHANNELS(a->grad_y, a->grad_y_stride),
        .grad_u = CHANNELS(a->grad_u, wide),
        .grad_delta = CHANNELS(a->grad_delta, wide),
    };
#undef CHANNELS
    const struct NAME(stream) grad_b =
        NAME(open)(a->grad_b, a, group * a->batches + batch, narrow);
    const struct NAME(stream) grad_c =
        NAME(open)(a->grad_c, a, group * a->batches + batch, narrow);
    const VEC zero = {0};
    const VEC skip = a->d ? NAME(gather)((const REAL *)a->d + channel, 1, width, 0) : zero;
    REAL packed[5][CHUNK * LANES];
    VEC decay[SLICE], grad_state[SLICE], grad_decay[SLICE], grad_d = zero;
    struct NAME(tape) tape;

    for (int64_t n0 = 0; n0 < N; n0 += SLICE) {
        const int states = N - n0 < SLICE ? (int)(N - n0) : SLICE;
        const int64_t corner = (batch * D + channel) * N + n0;
        for (int n = 0; n < states; n++) {
            decay[n] = NAME(gather)((const REAL *)a->decay + channel * N + n0 + n, N, width, 1);
            grad_state[n] = grad_decay[n] = zero;
            if (a->grad_state)
                grad_state[n] =
                    NAME(gather)((const REAL *)a->grad_state + corner + n, N, width, 0);
        }
        for (int64_t chunk = chunks - 1; chunk >= 0; chunk--) {
            const int64_t t = chunk * CHUNK, since = chunk % a->spacing;
            if (chunk == chunks - 1 || since == a->spacing - 1)
                NAME(enter)(a, &line, batch, channel, chunk - since, chunk, n0, states, width,
                            decay, packed[0], packed[1], entries);
            struct NAME(chunk) k = line;
            k.rows = L - t < CHUNK ? (int)(L - t) : CHUNK;
            k.u = NAME(rows)(line.u, t, k.rows, width, packed[0], 1);
            k.delta = NAME(rows)(line.delta, t, k.rows, width, packed[1], 1);
            k.grad_y = NAME(rows)(line.grad_y, t, k.rows, width, packed[2], 1);
            k.grad_u = NAME(rows)(line.grad_u, t, k.rows, width, packed[3], n0 > 0);
            k.grad_delta = NAME(rows)(line.grad_delta, t, k.rows, width, packed[4], n0 > 0);
            for (int row = 0; n0 == 0 && row < k.rows; row++) {
                const VEC grad_y = NAME(load)(k.grad_y.at + row * k.grad_y.step);
                NAME(store)(k.grad_u.at + row * k.grad_u.step, skip * grad_y);
                NAME(store)(k.grad_delta.at + row * k.grad_delta.step, zero);
                grad_d += grad_y * NAME(load)(k.u.at + row * k.u.step);
            }
            for (int n = 0; n < states; n++) {
                struct NAME(stream) to_b = grad_b, to_c = grad_c;
                k.b.at = line.b.at + t * line.b.step + n0 + n;
                k.c.at = line.c.at + t * line.c.step + n0 + n;
                to_b.at += t * grad_b.step + n0 + n;
                to_c.at += t * grad_c.step + n0 + n;
                NAME(record)(&k, entries[since * SLICE + n], decay[n], &tape);
                NAME(retrace)(&k, decay[n], &tape, &grad_state[n], &grad_decay[n]);
                NAME(fold)(tape.grad_b, k.rows, to_b);
                NAME(fold)(tape.grad_c, k.rows, to_c);
            }
            NAME(unpack)(line.grad_u, t, k.rows, width, packed[3]);
            NAME(unpack)(line.grad_delta, t, k.rows, width, packed[4]);
        }
        for (int n = 0; n < states; n++) {
            NAME(scatter)((REAL *)a->grad_decay + corner + n, N, width, grad_decay[n]);
            if (a->grad_initial_state)
                NAME(scatter)((REAL *)a->grad_initial_state + corner + n, N, width,
                              grad_state[n]);
        }
    }
    if (a->grad_d) NAME(scatter)((REAL *)a->grad_d + batch * D + channel, 1, width, grad_d);
}

/* A job owns the b and c gradients of one batch and one group of channel blocks: no atomics, and
 * sums whose order depends on the number of groups only. */
static void NAME(backward)(const struct scan_args *a) {
    const int64_t blocks = (a->channels + LANES - 1) / LANES, L = a->steps, N = a->states;
#pragma omp parallel for schedule(static) num_threads(a->threads) if (a->threads > 1)
    for (int64_t job = 0; job < a->batches * a->groups; job++) {
        const int64_t batch = job % a->batches, group = job / a->batches;
        VEC *entries = (VEC *)a->workspace + thread_number() * a->spacing * SLICE;
        memset((REAL *)a->grad_b + job * L * N, 0, (size_t)(L * N) * sizeof(REAL));
        memset((REAL *)a->grad_c + job * L * N, 0, (size_t)(L * N) * sizeof(REAL));
        for (int64_t block = group * blocks / a->groups; block < (group + 1) * blocks / a->groups;
             block++)
            NAME(backward_block)(a, batch, group, block * LANES, entries);
    }
}
