/* Gauss-Seidel sweeps: forwards from zero before the coarse correction, backwards after,
 * which makes the whole preconditioner symmetric. What comes from the other side of a periodic axis is
 * taken as it was before the sweep. Backwards also sums up rx = r . x. Included once per precision. */

INLINE void NAME(forward_row)(const int steps, const struct NAME(level) *l, int64_t row) {
    for (int64_t p = row; p < row + l->grid.n[2]; p++) {
        vec sum = l->r[p];
        for (int o = 0; o < steps; o++) {
            const int64_t q = p - l->grid.step[o];
            sum += l->edge[o][q] * l->x[q];
        }
        l->x[p] = sum * l->inverse[p];
    }
}

INLINE void NAME(backward_row)(const int steps, const struct NAME(level) *l, int64_t row, vec *rx) {
    vec part = NAME(splat)(0);
    for (int64_t p = row + l->grid.n[2] - 1; p >= row; p--) {
        vec sum = l->r[p];
        for (int o = 0; o < steps; o++) {
            const int64_t q = p - l->grid.step[o];
            sum += l->edge[o][q] * l->x[q];
        }
        for (int o = 0; o < steps; o++) sum += l->edge[o][p] * l->x[p + l->grid.step[o]];
        l->x[p] = sum * l->inverse[p];
        part += l->r[p] * l->x[p];
    }
    *rx += part;
}

/* to = r - A x, by differences of potentials. */
INLINE void NAME(residual_row)(const int steps, const struct NAME(level) *l, const vec *x, int64_t row,
                               vec *to) {
    for (int64_t p = row; p < row + l->grid.n[2]; p++) {
        vec sum = l->r[p] - l->leak[p] * x[p];
        for (int o = 0; o < steps; o++) {
            const int64_t step = l->grid.step[o];
            sum += l->edge[o][p] * (x[p + step] - x[p]);
            sum += l->edge[o][p - step] * (x[p - step] - x[p]);
        }
        to[p] = sum;
    }
}

/* The same after a forward sweep from zero, where no axis is periodic: what the sweep left out. */
INLINE void NAME(left_row)(const int steps, const struct NAME(level) *l, int64_t row, vec *to) {
    for (int64_t p = row; p < row + l->grid.n[2]; p++) {
        vec sum = NAME(splat)(0);
        for (int o = 0; o < steps; o++) sum += l->edge[o][p] * l->x[p + l->grid.step[o]];
        to[p - row] = sum;
    }
}
