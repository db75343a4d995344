/* A whole line of one block of channels, scanned in both directions.
 *
 * The walk up goes from the first step to the last, with the forward scan and the adjoint of the
 * reverse scan. The walk down goes back, with the reverse scan and the adjoint of the forward scan.
 * Both scans share a step's coefficients: the walk up records them in `tape`, and the walk down reads
 * them. Entry t + 1 of the tape is step t; entry 0 is the state before the first step. */

struct steps {
    struct coefficients z;
    VEC v, g; /* v: the forward scan's state; g: the reverse scan's adjoint */
};

/* The final states and adjoints of the forward (up) and the reverse (down) scan from rest; after
 * `close_line`, the periodic line's initial ones. */
struct starts {
    VEC up, down, g_up, g_down;
};

/* 1 - exp(-decay time), but 1 where `time` is 0, as it is in idle lanes: the result is a divisor. */
INLINE VEC loss_over(VEC time, VEC rate) {
    const VEC zero = {0};
    return pick(time == zero, zero + (REAL)1, loss(zoh_over(time, rate)));
}

INLINE VEC line_sum(int rows, struct rows x) {
    VEC sum = {0};
    for (int t = 0; t < rows; t++) sum += load(x.at + t * x.step);
    return sum;
}

/* The walk up for `count` states, which includes the reverse scan's adjoint where `adjoint`. It stores
 * in `ends` what both end with from rest; where periodic also what the walk down would end with. */
INLINE void walk_up(int rows, int count, int periodic, int adjoint, const REAL *table, struct fields f,
                    struct steps (*tape)[CHAINS], struct starts *ends) {
    const VEC zero = {0};
    const struct rates k = rates_of(count, table);
    VEC share[CHAINS], v[CHAINS], carried[CHAINS], down[CHAINS], g_up[CHAINS];
    for (int i = 0; i < count; i++) {
        v[i] = carried[i] = down[i] = g_up[i] = tape[0][i].v = zero;
        share[i] = zero + (REAL)1;
    }
    for (int t = 0; t < rows; t++) {
        const VEC input = ROW(u), step = ROW(delta), out = adjoint ? ROW(grad_y) : zero;
        for (int i = 0; i < count; i++) {
            const struct coefficients z = zoh(step * k.rate[i]);
            const VEC x = k.inverse[i] * (OF_STATE(b) * input);
            struct steps *to = &tape[t + 1][i];
            v[i] = relax(z, v[i], x);
            to->z = z;
            to->v = v[i];
            if (periodic) {
                down[i] += share[i] * (loss(z) * x);
                share[i] *= retention(z);
            }
            if (adjoint) {
                const VEC shown = OF_STATE(c) * out, g = shown + carried[i];
                to->g = g;
                carried[i] = g * retention(z);
                if (periodic) g_up[i] += share[i] * shown;
            }
        }
    }
    for (int i = 0; i < count; i++) {
        const struct starts end = {v[i], down[i], g_up[i], carried[i]};
        ends[i] = end;
    }
}

/* Turns what a periodic line ends with from rest into what it starts with, and adds the contribution
 * of that start to the tape. */
INLINE void close_line(int rows, int count, int adjoint, const REAL *table, VEC time,
                       struct steps (*tape)[CHAINS], struct starts *ends) {
    VEC share[CHAINS];
    for (int i = 0; i < count; i++) {
        const VEC loss = loss_over(time, load(table + (3 * i + 2) * LANES));
        ends[i].up /= loss;
        ends[i].down /= loss;
        ends[i].g_up /= loss;
        ends[i].g_down /= loss;
        tape[0][i].v = ends[i].up;
        share[i] = (VEC){0} + (REAL)1;
    }
    for (int t = 1; t <= rows; t++)
        for (int i = 0; i < count; i++) {
            if (adjoint) tape[t][i].g += share[i] * ends[i].g_down;
            share[i] *= retention(tape[t][i].z);
            tape[t][i].v += share[i] * ends[i].up;
        }
}

/* The reverse scan's initial state and the forward scan's initial adjoint, at the last step. */
INLINE void far_end(int count, int periodic, int mirror, const struct starts *ends, VEC *state,
                    VEC *adjoint) {
    for (int i = 0; i < count; i++) {
        state[i] = adjoint[i] = (VEC){0};
        if (periodic) {
            state[i] = ends[i].down;
            adjoint[i] = ends[i].g_up;
        } else if (mirror) {
            state[i] = (REAL)mirror * ends[i].up;
            adjoint[i] = (REAL)mirror * ends[i].g_down;
        }
    }
}

/* y = skip u + sum_n c (v + w) where `first`, else y += sum_n c (v + w), with v and w the states of the
 * forward and the reverse scan. `time` is the sum of the line's deltas. */
INLINE void forward_line_states(int rows, int count, int periodic, int mirror, int first,
                                const REAL *table, VEC skip, VEC time, struct fields f,
                                struct steps (*tape)[CHAINS]) {
    struct starts ends[CHAINS];
    const struct rates k = rates_of(count, table);
    VEC v[CHAINS], unused[CHAINS];
    walk_up(rows, count, periodic, 0, table, f, tape, ends);
    if (periodic) close_line(rows, count, 0, table, time, tape, ends);
    far_end(count, periodic, mirror, ends, v, unused);
    for (int t = rows - 1; t >= 0; t--) {
        const VEC input = ROW(u);
        REAL *out = f.y.at + t * f.y.step;
        VEC sum = skip * input;
        if (!first) sum = load(out);
        for (int i = 0; i < count; i++) {
            const struct steps *from = &tape[t + 1][i];
            v[i] = relax(from->z, v[i], k.inverse[i] * (OF_STATE(b) * input));
            sum += OF_STATE(c) * (from->v + v[i]);
        }
        store(out, sum);
    }
}

static void forward_line(int rows, int64_t states, int periodic, int mirror, const REAL *table,
                         const REAL *skip, struct fields f, int add, REAL *workspace) {
    const VEC weight = load(skip), time = line_sum(rows, f.delta);
    EACH_STATE {
        const int first = n == 0 && !add;
#define WALK(count, periodic)                                                                         \
    forward_line_states(rows, count, periodic, mirror, first, table + 3 * n * LANES, weight, time, f, \
                        (struct steps(*)[CHAINS])workspace)
        WITH_CONSTANTS(WALK, count, periodic);
#undef WALK
    }
}

/* The walk down of the adjoint, from step `end` - 1 to `start`. It computes the sums of walk_block.h
 * for both scans at once: the states `before` and v, the adjoints g and at->g. */
INLINE void walk_down(int start, int end, int count, const REAL *table, struct fields f,
                      const struct steps (*tape)[CHAINS], VEC *v, VEC *carried, REAL *grad_decay,
                      VEC (*grad_b)[CHUNK], VEC (*grad_c)[CHUNK]) {
    const VEC zero = {0}, one = zero + (REAL)1;
    const struct rates k = rates_of(count, table);
    VEC gain[CHAINS], toll[CHAINS];
    for (int i = 0; i < count; i++) {
        gain[i] = toll[i] = zero;
    }
    for (int t = end - 1; t >= start; t--) {
        const VEC input = ROW(u), step = ROW(delta), out = ROW(grad_y);
        VEC to_u = ROW(grad_u), to_delta = ROW(grad_delta);
        for (int i = 0; i < count; i++) {
            const struct steps *at = &tape[t + 1][i];
            const VEC before = tape[t][i].v, beyond = v[i];
            const REAL b_t = OF_STATE(b);
            const VEC x = k.inverse[i] * (b_t * input);
            const VEC pull = x - before, pull_back = x - beyond;
            const VEC g = OF_STATE(c) * out + carried[i];
            const VEC keep = retention(at->z);
            const VEC weighted = (g + at->g) * loss(at->z) * k.inverse[i];
            const VEC to_b = weighted * input, g_before = at->g * keep;
            carried[i] = g * keep;
            v[i] = relax(at->z, v[i], x);
            const VEC flow = carried[i] * pull + g_before * pull_back;
            grad_b[i][t - start] = to_b;
            grad_c[i][t - start] = out * (at->v + v[i]);
            to_u += weighted * b_t;
            to_delta += k.decay[i] * flow;
            const VEC halvings = step * k.rate[i];
            const IVEC small = halvings * halvings < (REAL)(TINY * TINY);
            const VEC kept = carried[i] * before + g_before * beyond;
            gain[i] += step * pick(small, -kept, flow);
            toll[i] += b_t * (to_b * pick(small, halvings * RHO(halvings), one));
        }
        store(f.grad_u.at + t * f.grad_u.step, to_u);
        store(f.grad_delta.at + t * f.grad_delta.step, to_delta);
    }
    for (int i = 0; i < count; i++) {
        REAL *to = grad_decay + i * LANES;
        store(to, load(to) + (gain[i] - toll[i] * k.inverse[i]));
    }
}

/* The adjoint of a whole line. The arguments are those of backward_block; grad_b and grad_c are
 * (states, rows). */
static void backward_line(int rows, int64_t states, int periodic, int mirror, const REAL *table,
                          REAL *grad_decay, const REAL *skip, REAL *grad_d, struct fields f, REAL *grad_b,
                          REAL *grad_c, int add, REAL *workspace) {
    struct steps(*tape)[CHAINS] = (struct steps(*)[CHAINS])workspace;
    const VEC time = line_sum(rows, f.delta);
    VEC to_b[CHAINS][CHUNK], to_c[CHAINS][CHUNK];
    begin(rows, skip, grad_d, f, add);
    EACH_STATE {
        const REAL *coefficients = table + 3 * n * LANES;
        struct starts ends[CHAINS];
        VEC v[CHAINS] = {{0}}, carried[CHAINS] = {{0}};
#define UP(count, periodic)                                                       \
    do {                                                                          \
        walk_up(rows, count, periodic, 1, coefficients, f, tape, ends);           \
        if (periodic) close_line(rows, count, 1, coefficients, time, tape, ends); \
        far_end(count, periodic, mirror, ends, v, carried);                       \
    } while (0)
        WITH_CONSTANTS(UP, count, periodic);
#undef UP
        for (int start = (rows - 1) / CHUNK * CHUNK; start >= 0; start -= CHUNK) {
            const int end = rows - start < CHUNK ? rows : start + CHUNK;
#define DOWN(count, flag)                                                                          \
    walk_down(start, end, count, coefficients, f, (const struct steps(*)[CHAINS])tape, v, carried, \
              grad_decay + n * LANES, to_b, to_c)
            WITH_CONSTANTS(DOWN, count, 0);
#undef DOWN
            for (int i = 0; i < count; i++) {
                sum_lanes(to_b[i], end - start, grad_b + (n + i) * rows + start);
                sum_lanes(to_c[i], end - start, grad_c + (n + i) * rows + start);
            }
        }
    }
}
