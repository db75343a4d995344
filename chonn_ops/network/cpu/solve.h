/* The cycle over the levels, and the conjugate gradients that it preconditions, each network until
 * it meets the rule of stopping.h; the outermost loops. Included once per form. */

/* x of a level for its r, approximately: symmetric and linear in r. */
APART void FORM(cycle)(const struct FORM(solver) * s, int index) {
    const struct FORM(level) *l = s->level + index, *coarse = l + 1;
    const struct grid *grid = &l->grid, *small = &coarse->grid;
    /* Sweeps of the finest level cost less than what else an iteration does; of coarser levels,
     * more of them gain nothing. */
    const int sweeps = index ? 1 : 2;
    if (index == s->count - 1) {
        FORM(solve_exactly)(s);
        return;
    }
#pragma omp parallel for schedule(static) num_threads(FORM(num_threads)(s, grid))
    for (int64_t i = 0; i < rows(grid); i++)
        EACH_RUN (l, i)
            memset(l->x + row_at(grid, i) + run[0], 0, (size_t)(run[1] - run[0]) * sizeof(ELEMENT));
    for (int i = 0; i < sweeps; i++) FORM(relax)(s, l, 0);
    FORM(residual)(s, l, l->x, l->left);
    FORM(restrict)(s, l, coarse, l->left, coarse->r);
    FORM(cycle)(s, index + 1);
    if (index + 1 < s->count - 1) { /* a second visit for what the first one has left */
        memcpy(coarse->first, coarse->x, (size_t)small->all * sizeof(ELEMENT));
        FORM(residual)(s, coarse, coarse->x, coarse->left);
        memcpy(coarse->r, coarse->left, (size_t)small->all * sizeof(ELEMENT));
        FORM(cycle)(s, index + 1);
        ELEMENT *to = coarse->x;
        const ELEMENT *first = coarse->first;
        ALONG(small->all) to[x] += first[x];
    }
    FORM(interpolate)(s, l, coarse);
    for (int i = 0; i < sweeps; i++) FORM(relax)(s, l, 1);
}

/* `sums` of each network over its nodes of what a block of code adds to `sum` for each vector at p, of
 * which `left` nodes or all count, chunk by chunk in a fixed order. s->part keeps what it makes of
 * `most` there. */
#define SUM_NODES(s, sums, ...)                                                                          \
    {                                                                                                    \
        const struct FORM(level) *finest = (s)->level;                                                   \
        const struct grid *grid = &finest->grid;                                                         \
        const int64_t count = chunks(grid);                                                              \
        const int threads = FORM(num_threads)(s, grid);                                                  \
        _Pragma("omp parallel for schedule(static) num_threads(threads)") for (int64_t chunk = 0;        \
                                                                               chunk < count; chunk++) { \
            double part[NETWORKS] = {0};                                                                 \
            vec most[2] = {};                                                                            \
            for (int64_t i = chunk * chunk_rows(grid); i < chunk_end(grid, chunk); i++) {                \
                const int64_t row = row_at(grid, i);                                                     \
                vec sum = {};                                                                            \
                EACH_RUN (finest, i)                                                                     \
                    for (int64_t k = run[0]; k < run[1]; k += WIDTH) {                                   \
                        const int64_t p = row + k, left = run[1] - k;                                    \
                        __VA_ARGS__                                                                      \
                    }                                                                                    \
                ELEMENT of_row = FORM(total)(sum);                                                       \
                for (int k = 0; k < NETWORKS; k++) part[k] += (double)*FORM(of)(&of_row, k);             \
            }                                                                                            \
            memcpy((s)->part + chunk * NETWORKS, part, sizeof part);                                     \
            for (int m = 0; m < 2; m++) {                                                                \
                ELEMENT of_chunk = FORM(largest)(most[m]);                                               \
                for (int k = 0; k < NETWORKS; k++)                                                       \
                    (s)->part[((m + 1) * count + chunk) * NETWORKS + k] = *FORM(of)(&of_chunk, k);       \
            }                                                                                            \
        }                                                                                                \
        for (int k = 0; k < NETWORKS; k++) {                                                             \
            (sums)[k] = 0;                                                                               \
            for (int64_t chunk = 0; chunk < count; chunk++)                                              \
                (sums)[k] += (s)->part[chunk * NETWORKS + k];                                            \
        }                                                                                                \
    }

/* p = z + beta p and Ap = A p, with z the x of the finest level; pAp = p . Ap. */
APART void FORM(advance)(const struct FORM(solver) * s, const double *betas, double *pAp) {
    const struct FORM(level) *l = s->level;
    const vec beta = FORM(repeat)(FORM(from_doubles)(betas));
    SUM_NODES(s, pAp, {
        FORM(store)(s->p + p, FORM(load)(l->x + p) + beta * FORM(load)(s->p + p), left);
        (void)sum;
    })
    FORM(wrap)(&l->grid, s->p);
#define APPLY(steps)                                                      \
    SUM_NODES(s, pAp, {                                                   \
        const vec Ap = -FORM(left_of)(steps, l, s->p, NAME(splat)(0), p); \
        FORM(store)(s->Ap + p, Ap, left);                                 \
        sum += FORM(keep)(Ap * FORM(load)(s->p + p), left);               \
    })
    if (l->grid.steps == 2)
        APPLY(2)
    else
        APPLY(3)
#undef APPLY
}

/* v += alpha p and r -= alpha Ap, where alpha is not 0: p of a network that has stopped may be no
 * number. squares = r . r; largest: max |alpha p|, then max |v|. What rounding takes from v is kept
 * in `low`. */
APART void FORM(move)(const struct FORM(solver) * s, const double *alphas, double *squares,
                      double *largest) {
    const struct FORM(level) *l = s->level;
    const vec alpha = FORM(repeat)(FORM(from_doubles)(alphas));
    const NAME(mask) moves = alpha != 0;
    SUM_NODES(s, squares, {
        const vec v = FORM(load)(s->v + p), step = NAME(where)(moves, alpha * FORM(load)(s->p + p));
        const vec next = v + step, added = next - v;
        const vec low = FORM(load)(s->low + p) + ((v - (next - added)) + (step - added));
        const vec r = FORM(load)(l->r + p) - NAME(where)(moves, alpha * FORM(load)(s->Ap + p));
        FORM(store)(s->v + p, next, left);
        FORM(store)(s->low + p, low, left);
        FORM(store)(l->r + p, r, left);
        sum += FORM(keep)(r * r, left);
        most[0] = NAME(larger)(most[0], FORM(keep)(step, left));
        most[1] = NAME(larger)(most[1], FORM(keep)(next, left));
    })
    const int64_t count = chunks(&l->grid);
    memset(largest, 0, 2 * NETWORKS * sizeof *largest);
    for (int64_t i = 0; i < 2 * count * NETWORKS; i++) {
        double *to = largest + i / (count * NETWORKS) * NETWORKS + i % NETWORKS;
        const double of_chunk = s->part[count * NETWORKS + i];
        if (of_chunk > *to) *to = of_chunk;
    }
}

APART void FORM(dot)(const struct FORM(solver) * s, const ELEMENT *a, const ELEMENT *b, double *sums) {
    SUM_NODES(s, sums, { sum += FORM(keep)(FORM(load)(a + p) * FORM(load)(b + p), left); })
}

/* Leaves the deviations of stopping.h; networks whose poison is not 0 stay as they are. */
static void FORM(iterate)(const struct FORM(solver) * s, const struct network_args *a,
                          const double *poison, int32_t *iterations, double *deviations) {
    const struct FORM(level) *l = s->level;
    double sources[NETWORKS], squares[NETWORKS], largest[2 * NETWORKS], rz[NETWORKS], pAp[NETWORKS];
    struct progress progress[NETWORKS];
    int active[NETWORKS], running = 0;
    FORM(dot)(s, l->r, l->r, sources);
    for (int k = 0; k < NETWORKS; k++) {
        progress[k] = (struct progress){INFINITY, 0};
        active[k] = sources[k] > 0 && poison[k] == 0;
        deviations[k] = sources[k] > 0;
        iterations[k] = 0;
        rz[k] = 1;
        running += active[k];
    }
    for (int count = 0; running && count < a->iterations_max; count++) {
        double rz_next[NETWORKS], beta[NETWORKS] = {0}, alpha[NETWORKS] = {0};
        FORM(cycle)(s, 0);
        FORM(dot)(s, l->r, l->x, rz_next);
        for (int k = 0; k < NETWORKS; k++)
            if (active[k] && count) beta[k] = rz_next[k] / rz[k];
        memcpy(rz, rz_next, sizeof rz);
        FORM(advance)(s, beta, pAp);
        for (int k = 0; k < NETWORKS; k++) {
            if (!active[k]) continue;
            iterations[k]++;
            if (pAp[k] > 0 && isfinite(rz[k])) {
                alpha[k] = rz[k] / pAp[k];
            } else { /* no further: rounding, or a part of the network without leak */
                active[k] = 0;
                running--;
            }
        }
        if (!running) break;
        FORM(move)(s, alpha, squares, largest);
        for (int k = 0; k < NETWORKS; k++) {
            if (!active[k]) continue;
            deviations[k] =
                deviation(progress + k, squares[k], sources[k], largest[k], largest[NETWORKS + k]);
            if (!(deviations[k] > a->tolerance)) {
                active[k] = 0;
                running--;
            }
        }
    }
}

/* Elimination alone; leaves relative residuals, which are what rounding leaves. */
static void FORM(eliminate)(const struct FORM(solver) * s, int32_t *iterations, double *relative) {
    const struct FORM(level) *l = s->level;
    double sources[NETWORKS], squares[NETWORKS];
    FORM(solve_exactly)(s);
    FORM(residual)(s, l, l->x, l->left);
    FORM(dot)(s, l->r, l->r, sources);
    FORM(dot)(s, l->left, l->left, squares);
    memcpy(s->v, l->x, (size_t)l->grid.all * sizeof(ELEMENT));
    for (int k = 0; k < NETWORKS; k++) {
        relative[k] = sources[k] > 0 ? sqrt(squares[k] / sources[k]) : 0;
        iterations[k] = 0;
    }
}

/* Largest magnitudes of a field; poison += 0, or NaN where any value is not finite. */
static void FORM(survey)(const struct grid *grid, const ELEMENT *field, double *poison, double *largest) {
    vec most = {}, bad = {};
    EACH_ROW (grid)
        for (int64_t x = 0; x < grid->n[2]; x += WIDTH) {
            const vec value = FORM(keep)(FORM(load)(field + ROW(grid) + x), grid->n[2] - x);
            most = NAME(larger)(most, value);
            bad += value * 0;
        }
    ELEMENT size = FORM(largest)(most), unfit = FORM(total)(bad);
    for (int k = 0; k < NETWORKS; k++) {
        largest[k] = (double)*FORM(of)(&size, k);
        poison[k] += (double)*FORM(of)(&unfit, k);
    }
}

static void FORM(solve_group)(const struct network_args *a, const struct FORM(solver) * s,
                              struct FORM(group) group) {
    const struct FORM(level) *l = s->level;
    const struct grid *grid = &l->grid;
    double poison[NETWORKS] = {0}, largest[NETWORKS], scales[NETWORKS], inverses[NETWORKS];
    double deviations[NETWORKS];
    int32_t iterations[NETWORKS];
    for (int o = 0; o < grid->steps; o++) {
        FORM(pack_edges)(a, s, AXES - 1 - o, group, l->edge[o]);
        FORM(survey)(grid, l->edge[o], poison, largest);
        FORM(wrap)(grid, l->edge[o]);
    }
    FORM(pack)(a, s, &a->leak, group, l->leak);
    FORM(survey)(grid, l->leak, poison, largest);
    FORM(pack)(a, s, &a->source, group, l->r);
    FORM(invert)(s, l);
    FORM(find_runs)(s, l);
    EACH_ROW (grid) { /* a node without edge and leak is none of the network's */
        ELEMENT *r = l->r + ROW(grid);
        const ELEMENT *inverse = l->inverse + ROW(grid);
        ALONG(grid->n[2]) r[x] = FORM(where)(inverse[x] > 0, r[x]);
    }
    FORM(survey)(grid, l->r, poison, largest);
    /* Sources are at most 1, by powers of two: their squares neither overflow nor vanish. */
    for (int k = 0; k < NETWORKS; k++) {
        const int exponent = NAME(exponent)((REAL)largest[k]);
        scales[k] = ldexp(1, exponent) + poison[k];
        inverses[k] = ldexp(1, -exponent);
    }
    const ELEMENT down = FORM(from_doubles)(inverses);
    EACH_ROW (grid) {
        ELEMENT *r = l->r + ROW(grid);
        ALONG(grid->n[2]) r[x] *= down;
    }
    for (int i = 0; i + 1 < s->count; i++) FORM(coarsen)(s, l + i, l + i + 1);
    FORM(factorize)(s);
    if (s->count == 1)
        FORM(eliminate)(s, iterations, deviations);
    else
        FORM(iterate)(s, a, poison, iterations, deviations);
    FORM(unpack)(a, s, group, FORM(from_doubles)(scales));
    for (int k = 0; k < group.width; k++) {
        a->iterations[group.first + k] = iterations[k];
        a->deviation[group.first + k] = deviations[k] + poison[k];
    }
}

/* `size` bytes of the workspace at `at`, which is NULL while they are only counted. */
INLINE void *FORM(claim)(char *at, int64_t *taken, int64_t size) {
    char *start = at ? at + *taken : NULL;
    *taken += (size + 63) / 64 * 64;
    return start;
}

/* Lay a solver out in a workspace; returns its bytes. */
static int64_t FORM(place_solver)(const struct network_args *a, const struct plan *plan,
                                  struct FORM(solver) * s, char *at) {
    const int64_t element = (int64_t)sizeof(ELEMENT), bottom = plan->count - 1;
    int64_t taken = 0;
    s->count = plan->count;
    s->threads = NETWORKS == 1 ? a->threads : 1;
    for (int i = 0; i < plan->count; i++) {
        struct FORM(level) *l = s->level + i;
        const struct grid *grid = plan->grid + i;
        l->grid = *grid;
        for (int o = 0; o < grid->steps; o++) l->edge[o] = FORM(claim)(at, &taken, grid->all * element);
        ELEMENT **fields[] = {&l->leak, &l->inverse, &l->x, &l->r, &l->left, &l->first};
        for (int f = 0; f < (i ? 6 : 5); f++) *fields[f] = FORM(claim)(at, &taken, grid->all * element);
        for (int w = 0; w < weights(grid) && i < bottom; w++)
            l->weight[w] = FORM(claim)(at, &taken, plan->grid[i + 1].all * element);
        l->runs = FORM(claim)(at, &taken, rows(grid) * FORM(run_width)(grid) * 4);
    }
    ELEMENT **fields[] = {&s->v, &s->low, &s->p};
    for (int f = 0; f < 3; f++) *fields[f] = FORM(claim)(at, &taken, plan->grid->all * element);
    s->Ap = s->level->left; /* not needed at the same time */
    s->bottom.order = elimination_order(plan->grid + bottom);
    const int64_t all = s->bottom.order.nodes;
    s->bottom.mesh = FORM(claim)(at, &taken, all * s->bottom.order.band * element);
    s->bottom.inverse = FORM(claim)(at, &taken, all * element);
    s->bottom.s = FORM(claim)(at, &taken, all * element);
    s->width = plan->grid->stride[1] + 2 * LANES;
    s->buffer = FORM(claim)(at, &taken, s->threads * BUFFERS * s->width * element);
    s->part = FORM(claim)(at, &taken, 3 * chunks(plan->grid) * NETWORKS * 8);
    return taken;
}

static int64_t FORM(workspace)(const struct network_args *a) {
    struct FORM(solver) solver;
    struct plan plan;
    make_plan(a, &plan, NETWORKS == 1 ? LANES : 0);
    return FORM(place_solver)(a, &plan, &solver, NULL);
}

/* Solve groups until none is left. */
static void FORM(work)(const struct network_args *a, const struct plan *plan, char *workspace,
                       int64_t *next) {
    const int64_t all = a->batches * a->channels;
    struct FORM(solver) solver = {0};
    const int64_t bytes = FORM(place_solver)(a, plan, &solver, workspace);
    for (int used = 0;; used = 1) {
        int64_t first;
#pragma omp atomic capture
        {
            first = *next;
            *next += NETWORKS;
        }
        if (first >= all) return;
        /* Margins stay zero but for periodic axes, and so does what no run visits. */
        if (used) memset(workspace, 0, (size_t)bytes);
        const int64_t left = all - first;
        FORM(solve_group)(a, &solver,
                          (struct FORM(group)){first, left < NETWORKS ? (int)left : NETWORKS});
    }
}

static void FORM(solve)(const struct network_args *a) {
    const int64_t bytes = FORM(workspace)(a);
    int64_t next = 0;
    struct plan plan;
    make_plan(a, &plan, NETWORKS == 1 ? LANES : 0);
    if (NETWORKS == 1) {
        FORM(work)(a, &plan, a->workspace, &next);
        return;
    }
#pragma omp parallel num_threads(a->threads)
    FORM(work)(a, &plan, (char *)a->workspace + thread_number() * bytes, &next);
}

#undef SUM_NODES
#undef EACH_RUN
