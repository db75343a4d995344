/* One chunk of one block of channels: the forward scan and its adjoint. State arrays are
 * (states, LANES). `table` is the block's, see `rates` of vectors.h. */

/* Advances `count` states by a chunk, each step towards the equilibrium b u / decay, and reads them
 * out. The `first` states set y = skip u + c v; later ones add c v to it. */
INLINE void read_out(int rows, int count, const REAL *table, REAL *state, VEC skip, struct fields f,
                     int first) {
    const struct rates k = rates_of(count, table);
    VEC v[CHAINS];
    for (int i = 0; i < count; i++) v[i] = load(state + i * LANES);
    for (int t = 0; t < rows; t++) {
        const VEC input = ROW(u), step = ROW(delta);
        VEC sum = skip * input;
        if (!first) sum = ROW(y);
        for (int i = 0; i < count; i++) {
            const VEC equilibrium = k.inverse[i] * (OF_STATE(b) * input);
            v[i] = relax(zoh(step * k.rate[i]), v[i], equilibrium);
            sum += OF_STATE(c) * v[i];
        }
        store(f.y.at + t * f.y.step, sum);
    }
    for (int i = 0; i < count; i++) store(state + i * LANES, v[i]);
}

/* Advances all states by a chunk and reads them out: y = skip u + sum_n c v, or y += sum_n c v
 * where `add`. */
static void forward_block(int rows, int64_t states, const REAL *table, REAL *state, const REAL *skip,
                          struct fields f, int add) {
    const VEC weight = load(skip);
    EACH_STATE {
        const int first = n == 0 && !add;
#define READ_OUT(count, first) \
    read_out(rows, count, table + 3 * n * LANES, state + n * LANES, weight, f, first)
        WITH_CONSTANTS(READ_OUT, count, first);
#undef READ_OUT
    }
}

/* The adjoint of one chunk of one block of channels.
 *
 * With g_k the gradient of v_k, e = exp(-delta decay), w the injection weight, x = b u / decay and
 * the pull r_k = x - v_{k-1}:
 *   g_k = c_k grad_y_k + e_{k+1} g_{k+1}     grad_u += w b g              grad_b += w u g
 *   q = e g r                                grad_delta += decay q        grad_c += grad_y v_k
 *   grad_decay += delta q - w x g
 * The two terms of grad_decay cancel where z = delta decay is below TINY. There the kernel computes
 *   grad_decay -= e g delta v_{k-1} + rho w x g,   rho = 1 - z / (exp(z) - 1) = z/2 - z^2/12 + ...
 * so that both cases read delta e g p - share w x g, with (p, share) = (r, 1) or (-v_{k-1}, rho). */

/* What `retrace` needs from one step of one state. One struct per step keeps its fields adjacent:
 * separate arrays would map to the same sets of the L1 cache. */
struct step {
    VEC retention, loss, pull, p, share;
};

struct tape {
    struct step steps[CHUNK][CHAINS];
    VEC grad_b[CHAINS][CHUNK], grad_c[CHAINS][CHUNK];
};

/* Walks the chunk forwards from the states `start`, records each step on the tape, and computes the
 * summands of grad_c. */
INLINE void record(int rows, int count, const REAL *table, const REAL *start, struct fields f,
                   struct tape *tape) {
    const VEC one = (VEC){0} + (REAL)1;
    const struct rates k = rates_of(count, table);
    VEC v[CHAINS];
    for (int i = 0; i < count; i++) v[i] = load(start + i * LANES);
    for (int t = 0; t < rows; t++) {
        const VEC input = ROW(u), step = ROW(delta), out = ROW(grad_y);
        for (int i = 0; i < count; i++) {
            const VEC halvings = step * k.rate[i];
            const IVEC small = halvings * halvings < (REAL)(TINY * TINY);
            const struct coefficients z = zoh(halvings);
            const VEC x = k.inverse[i] * (OF_STATE(b) * input), pull = x - v[i];
            struct step *to = &tape->steps[t][i];
            to->retention = retention(z);
            to->loss = loss(z);
            to->pull = pull;
            to->p = pick(small, -v[i], pull);
            to->share = pick(small, halvings * RHO(halvings), one);
            v[i] = relax(z, v[i], x);
            tape->grad_c[i][t] = out * v[i];
        }
    }
}

/* Walks the chunk backwards along the tape with the adjoint g and adds to all other gradients. */
INLINE void retrace(int rows, int count, const REAL *table, REAL *adjoint, REAL *grad_decay,
                    struct fields f, struct tape *tape) {
    const struct rates k = rates_of(count, table);
    VEC carried[CHAINS], gain[CHAINS], toll[CHAINS];
    const VEC zero = {0};
    for (int i = 0; i < count; i++) {
        carried[i] = load(adjoint + i * LANES);
        gain[i] = toll[i] = zero;
    }
    for (int t = rows - 1; t >= 0; t--) {
        const VEC input = ROW(u), step = ROW(delta), out = ROW(grad_y);
        VEC to_u = ROW(grad_u), to_delta = ROW(grad_delta);
        for (int i = 0; i < count; i++) {
            const struct step *from = &tape->steps[t][i];
            const REAL b_t = OF_STATE(b);
            const VEC g = OF_STATE(c) * out + carried[i];
            const VEC weighted = g * from->loss * k.inverse[i];
            const VEC to_b = weighted * input;
            carried[i] = g * from->retention;
            tape->grad_b[i][t] = to_b;
            to_u += weighted * b_t;
            to_delta += k.decay[i] * (carried[i] * from->pull);
            gain[i] += step * (carried[i] * from->p);
            toll[i] += b_t * (to_b * from->share);
        }
        store(f.grad_u.at + t * f.grad_u.step, to_u);
        store(f.grad_delta.at + t * f.grad_delta.step, to_delta);
    }
    for (int i = 0; i < count; i++) {
        REAL *to_decay = grad_decay + i * LANES;
        store(adjoint + i * LANES, carried[i]);
        store(to_decay, load(to_decay) + (gain[i] - toll[i] * k.inverse[i]));
    }
}

/* The part of the gradients without states: grad_d += sum grad_y u, grad_u = skip grad_y and
 * grad_delta = 0. With `add`, an earlier walk has set them. */
static void begin(int rows, const REAL *skip, REAL *grad_d, struct fields f, int add) {
    const VEC zero = {0}, weight = load(skip);
    VEC to_d = zero;
    for (int t = 0; t < rows && !add; t++) {
        const VEC out = ROW(grad_y);
        to_d += out * ROW(u);
        store(f.grad_u.at + t * f.grad_u.step, weight * out);
        store(f.grad_delta.at + t * f.grad_delta.step, zero);
    }
    store(grad_d, load(grad_d) + to_d);
}

/* The adjoint of a chunk. `start` holds the states before the chunk. `adjoint` enters as the adjoint
 * after the chunk and leaves as the one before it. The function adds to grad_decay, grad_d, and to
 * the sums over channels grad_b and grad_c, (states, CHUNK). It sets grad_u and grad_delta, or adds
 * to them where `add`. All state arrays are (states, LANES). */
static void backward_block(int rows, int64_t states, const REAL *table, const REAL *start, REAL *adjoint,
                           REAL *grad_decay, const REAL *skip, REAL *grad_d, struct fields f,
                           REAL *grad_b, REAL *grad_c, int add) {
    struct tape tape;
    begin(rows, skip, grad_d, f, add);
    EACH_STATE {
        const REAL *coefficients = table + 3 * n * LANES;
#define WALK(count, flag)                                                                          \
    do {                                                                                           \
        record(rows, count, coefficients, start + n * LANES, f, &tape);                            \
        retrace(rows, count, coefficients, adjoint + n * LANES, grad_decay + n * LANES, f, &tape); \
    } while (0)
        WITH_CONSTANTS(WALK, count, 0);
#undef WALK
        for (int i = 0; i < count; i++) {
            sum_lanes(tape.grad_b[i], rows, grad_b + (n + i) * CHUNK);
            sum_lanes(tape.grad_c[i], rows, grad_c + (n + i) * CHUNK);
        }
    }
}
