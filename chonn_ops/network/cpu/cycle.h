/* A solver's fields in its workspace, and the cycle over its levels that preconditions conjugate
 * gradients. Included once per precision. */

struct NAME(solver) {
    int count;
    struct NAME(level) level[LEVELS_MAX];
    struct NAME(factors) bottom;
    vec *v, *low, *p, *Ap, *row; /* low: what v + low has beyond v */
};

/* `taken` vectors from the workspace at `at`, which is NULL while they are only counted. */
INLINE vec *NAME(take)(vec *at, int64_t *taken, int64_t count) {
    vec *start = at ? at + *taken : NULL;
    *taken += count;
    return start;
}

/* Lay a solver out in a workspace; returns the vectors that it takes. */
static int64_t NAME(place_solver)(const struct plan *plan, struct NAME(solver) *s, vec *at) {
    int64_t taken = 0;
    s->count = plan->count;
    for (int i = 0; i < plan->count; i++) {
        struct NAME(level) *l = s->level + i;
        const struct grid *grid = plan->grid + i;
        const int coarsest = i == plan->count - 1;
        l->grid = *grid;
        for (int o = 0; o < grid->steps; o++) l->edge[o] = NAME(take)(at, &taken, grid->all);
        l->leak = NAME(take)(at, &taken, grid->all);
        l->x = NAME(take)(at, &taken, grid->all);
        l->r = NAME(take)(at, &taken, grid->all);
        l->inverse = NAME(take)(at, &taken, grid->all);
        if (i > 0 && !coarsest) l->first = NAME(take)(at, &taken, grid->all);
        if (!coarsest) l->weight = NAME(take)(at, &taken, plan->grid[i + 1].all * weights(grid));
    }
    if (plan->count > 1) {
        s->v = NAME(take)(at, &taken, plan->grid->all);
        s->low = NAME(take)(at, &taken, plan->grid->all);
        s->p = NAME(take)(at, &taken, plan->grid->all);
        s->Ap = NAME(take)(at, &taken, plan->grid->all);
        s->row = NAME(take)(at, &taken, plan->grid->n[2]);
    }
    s->bottom.order = elimination_order(plan->grid + plan->count - 1);
    const int64_t all = s->bottom.order.nodes;
    s->bottom.mesh = NAME(take)(at, &taken, all * s->bottom.order.band);
    s->bottom.inverse = NAME(take)(at, &taken, all);
    s->bottom.s = NAME(take)(at, &taken, all);
    return taken;
}

/* x of a level for its r, approximately: symmetric and linear in r. Returns r . x (of all levels but
 * the last). */
APART vec NAME(cycle)(struct NAME(solver) *s, int index) {
    struct NAME(level) *l = s->level + index, *coarse = l + 1;
    if (index == s->count - 1) {
        NAME(solve_exactly)(l, &s->bottom);
        return NAME(splat)(0);
    }
    NAME(descend)(l, coarse, s->row);
    NAME(cycle)(s, index + 1);
    if (index + 1 < s->count - 1) { /* a second visit for what the first one has left */
        vec *swap = coarse->x;
        coarse->x = coarse->first;
        coarse->first = swap;
        const struct grid *grid = &coarse->grid;
        NAME(wrap)(grid, coarse->first, 1);
        EACH_ROW (grid)
            FOR_STEPS(grid->steps, NAME(residual_row), coarse, coarse->first, ROW(grid), coarse->r)
        NAME(cycle)(s, index + 1);
        for (int64_t p = 0; p < grid->all; p++) coarse->x[p] += coarse->first[p];
    }
    return NAME(ascend)(l, coarse);
}
