/* Sweeps. Gauss-Seidel visits chunks of rows in two colours, the even chunks first, so that threads
 * share a sweep; in a chunk it goes from row to row, and in a row it visits the even nodes first.
 * Backwards is the reverse order, which makes the preconditioner symmetric. Neighbours within a row
 * of one colour and the other side of a periodic axis are taken as they were before: with an
 * inverse of the sum of magnitudes that converges by dominance. No result depends on the number of
 * threads. Included once per form. */

/* r - A x of the nodes of a vector. */
INLINE vec FORM(left_of)(const int steps, const struct FORM(level) * l, const ELEMENT *x, vec r,
                         int64_t p) {
    const vec own = FORM(load)(x + p);
    vec sum = r - FORM(load)(l->leak + p) * own;
    for (int o = 0; o < steps; o++) {
        const int64_t step = l->grid.step[o];
        sum += FORM(load)(l->edge[o] + p) * (FORM(load)(x + p + step) - own);
        sum += FORM(load)(l->edge[o] + p - step) * (FORM(load)(x + p - step) - own);
    }
    return sum;
}

/* What the other rows give to the nodes of a vector of a sweep, and their own part where edges may be
 * negative: there the inverse is not that of the diagonal. */
INLINE vec FORM(from_other_rows)(const int steps, const struct FORM(level) * l, int64_t p) {
    vec sum = FORM(load)(l->r + p);
    const vec own = FORM(load)(l->x + p);
    if (steps > AXES) sum -= FORM(load)(l->leak + p) * own;
    for (int o = 1; o < steps; o++) { /* edge 0 stays in the row */
        const int64_t step = l->grid.step[o];
        const vec after = FORM(load)(l->x + p + step), before = FORM(load)(l->x + p - step);
        sum += FORM(load)(l->edge[o] + p) * (steps > AXES ? after - own : after);
        sum += FORM(load)(l->edge[o] + p - step) * (steps > AXES ? before - own : before);
    }
    return sum;
}

/* The even, then the odd nodes of one run of a sweep, or the reverse. Vectors of several nodes are
 * visited twice, each time for half of their nodes: what other rows give is the same for both and
 * kept in `given`. A vector is written when the next one has been read, which would wait for it
 * otherwise. */
INLINE void FORM(relax_run)(const int steps, const struct FORM(level) * l, int64_t row, int64_t n,
                            int odd_first, ELEMENT *given) {
    for (int pass = 0; pass < 2; pass++) {
        const int odd = pass ^ odd_first;
        NAME(mask) chosen;
        for (int lane = 0; lane < LANES; lane++) chosen[lane] = WIDTH == 1 || lane % 2 == odd ? -1 : 0;
        vec held = {};
        int64_t last = -1;
        for (int64_t i = WIDTH == 1 ? odd : 0; i < n; i += WIDTH == 1 ? 2 : WIDTH) {
            const int64_t p = row + i;
            const vec own = FORM(load)(l->x + p), inverse = FORM(load)(l->inverse + p);
            const vec after = FORM(load)(l->x + p + 1), before = FORM(load)(l->x + p - 1);
            const vec right = FORM(load)(l->edge[0] + p), left = FORM(load)(l->edge[0] + p - 1);
            vec sum, x;
            if (pass && WIDTH > 1)
                sum = FORM(load)(given + i);
            else
                sum = FORM(from_other_rows)(steps, l, p);
            if (!pass && WIDTH > 1) FORM(store)(given + i, sum, WIDTH);
            if (steps > AXES)
                x = own + (sum + right * (after - own) + left * (before - own)) * inverse;
            else
                x = (sum + right * after + left * before) * inverse;
            if (last >= 0) FORM(store)(l->x + row + last, held, WIDTH);
            held = NAME(select)(chosen, x, own);
            last = i;
        }
        if (last >= 0) FORM(store)(l->x + row + last, held, n - last);
    }
}

APART void FORM(relax_chunk)(const struct FORM(level) * l, int64_t chunk, int backwards, ELEMENT *given) {
    const struct grid *grid = &l->grid;
    const int64_t start = chunk * chunk_rows(grid), end = chunk_end(grid, chunk);
    for (int64_t i = start; i < end; i++) {
        const int64_t index = backwards ? start + end - 1 - i : i, row = row_at(grid, index);
        EACH_RUN (l, index)
            FOR_STEPS(grid->steps, FORM(relax_run), l, row + run[0], run[1] - run[0], backwards, given)
    }
}

static void FORM(relax)(const struct FORM(solver) * s, const struct FORM(level) * l, int backwards) {
    const int64_t count = chunks(&l->grid);
    FORM(wrap)(&l->grid, l->x);
#pragma omp parallel num_threads(FORM(num_threads)(s, &l->grid))
    for (int pass = 0; pass < 2; pass++) {
#pragma omp for schedule(static)
        for (int64_t chunk = backwards ? !pass : pass; chunk < count; chunk += 2)
            FORM(relax_chunk)(l, chunk, backwards, FORM(buffer)(s, 0));
    }
}

INLINE void FORM(residual_of_run)(const int steps, const struct FORM(level) * l, const ELEMENT *x,
                                  int64_t row, int64_t n, ELEMENT *to) {
    for (int64_t i = 0; i < n; i += WIDTH) {
        const int64_t p = row + i;
        FORM(store)(to + p, FORM(left_of)(steps, l, x, FORM(load)(l->r + p), p), n - i);
    }
}

APART void FORM(residual_chunk)(const struct FORM(level) * l, const ELEMENT *x, ELEMENT *to,
                                int64_t chunk) {
    const struct grid *grid = &l->grid;
    for (int64_t i = chunk * chunk_rows(grid); i < chunk_end(grid, chunk); i++)
        EACH_RUN (l, i)
            FOR_STEPS(grid->steps, FORM(residual_of_run), l, x, row_at(grid, i) + run[0], run[1] - run[0],
                      to)
}

static void FORM(residual)(const struct FORM(solver) * s, const struct FORM(level) * l, ELEMENT *x,
                           ELEMENT *to) {
    FORM(wrap)(&l->grid, x);
#pragma omp parallel for schedule(static) num_threads(FORM(num_threads)(s, &l->grid))
    for (int64_t chunk = 0; chunk < chunks(&l->grid); chunk++) FORM(residual_chunk)(l, x, to, chunk);
}
