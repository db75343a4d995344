/* Conjugate gradients, each network until it meets the rule of stopping.h; the outermost loops.
 * Included once per precision. */

static int64_t NAME(bytes)(const struct plan *plan) {
    struct NAME(solver) solver;
    const int64_t taken = NAME(place_solver)(plan, &solver, NULL);
    return (taken * (int64_t)sizeof(vec) + 63) / 64 * 64;
}

/* NaN for networks that hold any value that is not finite, else 0. */
static vec NAME(poison)(const struct NAME(level) *l) {
    vec sum = NAME(splat)(0);
    for (int o = -2; o < l->grid.steps; o++) {
        const vec *field = o == -2 ? l->leak : o == -1 ? l->r : l->edge[o];
        EACH_ROW (&l->grid) {
            vec row = NAME(splat)(0);
            for (int64_t p = ROW(&l->grid); p < ROW(&l->grid) + l->grid.n[2]; p++) row += field[p] * 0;
            sum += row;
        }
    }
    return sum;
}

/* Scale sources to at most 1 by powers of two: their squares neither overflow nor vanish. A node
 * outside of the network, without edge and leak, has none. */
static vec NAME(normalize)(const struct NAME(level) *l) {
    const struct grid *grid = &l->grid;
    vec most = NAME(splat)(0), scale, inverse;
    EACH_ROW (grid)
        for (int64_t p = ROW(grid); p < ROW(grid) + grid->n[2]; p++) {
            l->r[p] = NAME(where)(l->inverse[p] > 0, l->r[p]);
            most = NAME(larger)(most, l->r[p]);
        }
    for (int lane = 0; lane < LANES; lane++) {
        const int exponent = NAME(exponent)(most[lane]);
        scale[lane] = (REAL)ldexp(1, exponent);
        inverse[lane] = (REAL)ldexp(1, -exponent);
    }
    EACH_ROW (grid)
        for (int64_t p = ROW(grid); p < ROW(grid) + grid->n[2]; p++) l->r[p] *= inverse;
    return scale;
}

/* Rows are summed apart: long sums in one register would lose digits. */
#define SUM(grid, term)                                                                    \
    ({                                                                                     \
        vec sum = {};                                                                      \
        EACH_ROW (grid) {                                                                  \
            vec part = {};                                                                 \
            for (int64_t p = ROW(grid); p < ROW(grid) + (grid)->n[2]; p++) part += (term); \
            sum += part;                                                                   \
        }                                                                                  \
        sum;                                                                               \
    })

/* One row of A v; returns its part of v . A v. */
INLINE vec NAME(apply_row)(const int steps, const struct NAME(level) *l, const vec *v, int64_t row,
                           vec *to) {
    vec vAv = NAME(splat)(0);
    for (int64_t p = row; p < row + l->grid.n[2]; p++) {
        vec sum = l->leak[p] * v[p];
        for (int o = 0; o < steps; o++) {
            const int64_t step = l->grid.step[o];
            sum += l->edge[o][p] * (v[p] - v[p + step]);
            sum += l->edge[o][p - step] * (v[p] - v[p - step]);
        }
        to[p] = sum;
        vAv += sum * v[p];
    }
    return vAv;
}

/* p = z + beta p and Ap = A p, with z the x of the finest level; returns p . Ap. */
APART vec NAME(advance)(const struct NAME(solver) *s, vec beta) {
    const struct NAME(level) *l = s->level;
    const struct grid *grid = &l->grid;
    const int64_t all = rows(grid), behind = lag(grid), n = grid->n[2];
    vec pAp = NAME(splat)(0);
    for (int64_t i = 0; i < all + behind; i++) {
        if (i < all)
            for (int64_t row = row_at(grid, i), p = row; p < row + n; p++)
                s->p[p] = l->x[p] + beta * s->p[p];
        if (i == all && behind == all) NAME(wrap)(grid, s->p, 1);
        if (i < behind) continue;
        const int64_t row = row_at(grid, i - behind);
        pAp += grid->steps == 2 ? NAME(apply_row)(2, l, s->p, row, s->Ap)
                                : NAME(apply_row)(3, l, s->p, row, s->Ap);
    }
    return pAp;
}

/* Leaves the deviations of stopping.h. */
APART void NAME(iterate)(struct NAME(solver) *s, const struct network_args *a, vec poison,
                         int32_t *iterations, double *deviations) {
    struct NAME(level) *l = s->level;
    const struct grid *grid = &l->grid;
    const vec sources = SUM(grid, l->r[p] * l->r[p]);
    vec rz = NAME(splat)(1);
    struct progress progress[LANES];
    int active[LANES], running = 0;
    for (int lane = 0; lane < LANES; lane++) {
        progress[lane] = (struct progress){INFINITY, 0};
        active[lane] = sources[lane] > 0 && poison[lane] == 0;
        deviations[lane] = sources[lane] > 0;
        iterations[lane] = 0;
        running += active[lane];
    }
    memset(s->v, 0, (size_t)grid->all * sizeof(vec));
    memset(s->low, 0, (size_t)grid->all * sizeof(vec));
    memset(s->p, 0, (size_t)grid->all * sizeof(vec));
    for (int count = 0; running && count < a->iterations_max; count++) {
        const vec rz_next = NAME(cycle)(s, 0);
        vec beta = NAME(splat)(0), alpha = beta;
        for (int lane = 0; lane < LANES; lane++)
            if (active[lane] && count) beta[lane] = rz_next[lane] / rz[lane];
        rz = rz_next;
        const vec pAp = NAME(advance)(s, beta);
        for (int lane = 0; lane < LANES; lane++) {
            if (!active[lane]) continue;
            iterations[lane]++;
            if (pAp[lane] > 0 && isfinite(rz[lane])) {
                alpha[lane] = rz[lane] / pAp[lane];
            } else { /* no further: rounding, or a part of the network without leak */
                active[lane] = 0;
                running--;
            }
        }
        vec squares = NAME(splat)(0), term = squares, largest = squares;
        const NAME(mask) moving = alpha != 0; /* where a network has stopped, p may be no number */
        EACH_ROW (grid) {
            vec part = NAME(splat)(0);
            for (int64_t p = ROW(grid); p < ROW(grid) + grid->n[2]; p++) {
                /* What rounding takes from v is kept apart: the residual is that of the sum. */
                const vec v = s->v[p], step = NAME(where)(moving, alpha * s->p[p]), sum = v + step,
                          added = sum - v;
                s->low[p] += (v - (sum - added)) + (step - added);
                s->v[p] = sum;
                l->r[p] -= NAME(where)(moving, alpha * s->Ap[p]);
                part += l->r[p] * l->r[p];
                term = NAME(larger)(term, step);
                largest = NAME(larger)(largest, sum);
            }
            squares += part;
        }
        for (int lane = 0; lane < LANES; lane++) {
            if (!active[lane]) continue;
            deviations[lane] = deviation(progress + lane, (double)squares[lane], (double)sources[lane],
                                         (double)term[lane], (double)largest[lane]);
            if (!(deviations[lane] > a->tolerance)) {
                active[lane] = 0;
                running--;
            }
        }
    }
    EACH_ROW (grid)
        for (int64_t p = ROW(grid); p < ROW(grid) + grid->n[2]; p++) s->v[p] += s->low[p];
}

/* Elimination alone; leaves relative residuals, which are what rounding leaves. */
APART void NAME(eliminate)(struct NAME(solver) *s, double *relative) {
    struct NAME(level) *l = s->level;
    const struct grid *grid = &l->grid;
    const vec sources = SUM(grid, l->r[p] * l->r[p]);
    NAME(factorize)(l, &s->bottom);
    NAME(clear_margin)(grid, l->x, 1);
    NAME(solve_exactly)(l, &s->bottom);
    NAME(wrap)(grid, l->x, 1);
    EACH_ROW (grid) FOR_STEPS(grid->steps, NAME(residual_row), l, l->x, ROW(grid), l->r)
    const vec residuals = SUM(grid, l->r[p] * l->r[p]);
    for (int lane = 0; lane < LANES; lane++)
        relative[lane] = sources[lane] > 0 ? sqrt((double)residuals[lane] / (double)sources[lane]) : 0;
}

APART void NAME(solve_group)(const struct network_args *a, struct NAME(solver) *s,
                             struct NAME(group) group) {
    struct NAME(level) *l = s->level;
    const struct grid *grid = &l->grid;
    int32_t iterations[LANES];
    for (int o = 0; o < grid->steps; o++) NAME(pack_edges)(a, AXES - 1 - o, group, grid, l->edge[o]);
    NAME(pack)(a, &a->leak, group, grid, l->leak);
    NAME(pack)(a, &a->source, group, grid, l->r);
    const vec poison = NAME(poison)(l);
    NAME(invert)(l);
    const vec scale = NAME(normalize)(l);
    double deviations[LANES];
    if (s->count == 1) {
        NAME(eliminate)(s, deviations);
        memset(iterations, 0, sizeof iterations);
    } else {
        for (int i = 0; i < s->count; i++) {
            NAME(clear_margin)(&s->level[i].grid, s->level[i].x, 1);
            if (s->level[i].first) NAME(clear_margin)(&s->level[i].grid, s->level[i].first, 1);
        }
        for (int i = 0; i + 1 < s->count; i++) NAME(coarsen)(s->level + i, s->level + i + 1);
        NAME(factorize)(s->level + s->count - 1, &s->bottom);
        NAME(iterate)(s, a, poison, iterations, deviations);
    }
    NAME(unpack)(a, group, grid, s->count == 1 ? l->x : s->v, scale + poison);
    for (int lane = 0; lane < group.width; lane++) {
        a->iterations[group.first + lane] = iterations[lane];
        a->deviation[group.first + lane] = deviations[lane] + (double)poison[lane];
    }
}

static int64_t NAME(run_workspace)(const struct network_args *a) {
    struct plan plan;
    if (is_line(a)) return (NAME(line_vectors)(a) * (int64_t)sizeof(vec) + 63) / 64 * 64;
    make_plan(a, &plan, a->alone ? LANES : 0);
    if (a->alone) {
        struct NAME(alone) alone;
        return NAME(place_alone)(a, &plan, &alone, NULL);
    }
    return NAME(bytes)(&plan);
}

static void NAME(run_solve)(const struct network_args *a) {
    struct plan plan;
    make_plan(a, &plan, a->alone ? LANES : 0);
    if (a->alone) {
        NAME(run_alone)(a, &plan);
        return;
    }
    const int64_t all = a->batches * a->channels, groups = (all + LANES - 1) / LANES;
    const int64_t bytes = NAME(run_workspace)(a);
#pragma omp parallel num_threads(a->threads)
    {
        struct NAME(solver) solver = {0};
        vec *workspace = (vec *)((char *)a->workspace + thread_number() * bytes);
        if (!is_line(a)) NAME(place_solver)(&plan, &solver, workspace);
#pragma omp for schedule(dynamic, 1)
        for (int64_t i = 0; i < groups; i++) {
            const int64_t first = i * LANES, left = all - first;
            const struct NAME(group) group = {first, left < LANES ? (int)left : LANES};
            if (is_line(a))
                NAME(solve_line)(a, workspace, group);
            else
                NAME(solve_group)(a, &solver, group);
        }
    }
}
