/* A network on a grid and the fields of its equations. Included once per precision. */

struct NAME(level) {
    struct grid grid;
    vec *edge[STEPS_MAX]; /* conductance to the neighbour one step on */
    vec *leak, *inverse;  /* inverse: of the sum of a node's conductances and leak */
    vec *x, *r, *first;   /* solution, source, what the first of two visits has found */
    vec *weight;          /* of the coarser network's nodes in this one's, see coarsen.h */
};

/* Arrays of `width` vectors a node. */

static void NAME(clear_margin)(const struct grid *grid, vec *at, int64_t width) {
    for (int axis = AXES - grid->axes; axis < AXES; axis++) {
        const int64_t stride = grid->stride[axis], extent = (grid->n[axis] + 2) * stride;
        for (int64_t start = 0; start < grid->all; start += extent) {
            memset(at + start * width, 0, (size_t)(stride * width) * sizeof(vec));
            memset(at + (start + extent - stride) * width, 0, (size_t)(stride * width) * sizeof(vec));
        }
    }
}

/* Repeat the other side of each periodic axis in the margin. */
static void NAME(wrap)(const struct grid *grid, vec *at, int64_t width) {
    for (int axis = AXES - 1; axis >= AXES - grid->axes; axis--) {
        if (!grid->periodic[axis]) continue;
        const int64_t stride = grid->stride[axis] * width, period = grid->n[axis] * stride;
        for (int64_t start = 0; start < grid->all * width; start += period + 2 * stride) {
            vec *low = at + start;
            memcpy(low, low + period, (size_t)stride * sizeof(vec));
            memcpy(low + period + stride, low + stride, (size_t)stride * sizeof(vec));
        }
    }
}

/* The adjoint: add what the margin of each periodic axis holds to the other side. */
static void NAME(fold)(const struct grid *grid, vec *at) {
    for (int axis = AXES - grid->axes; axis < AXES; axis++) {
        if (!grid->periodic[axis]) continue;
        const int64_t stride = grid->stride[axis], period = grid->n[axis] * stride;
        for (int64_t start = 0; start < grid->all; start += period + 2 * stride)
            for (int64_t i = start; i < start + stride; i++) {
                at[i + period] += at[i];
                at[i + stride] += at[i + period + stride];
                at[i] = at[i + period + stride] = NAME(splat)(0);
            }
    }
}

INLINE void NAME(invert_row)(const int steps, const struct NAME(level) *l, int64_t row) {
    for (int64_t p = row; p < row + l->grid.n[2]; p++) {
        vec sum = l->leak[p];
        for (int o = 0; o < steps; o++) sum += l->edge[o][p] + l->edge[o][p - l->grid.step[o]];
        l->inverse[p] = NAME(inverse)(sum);
    }
}

static void NAME(invert)(const struct NAME(level) *l) {
    EACH_ROW (&l->grid) FOR_STEPS(l->grid.steps, NAME(invert_row), l, ROW(&l->grid))
}
