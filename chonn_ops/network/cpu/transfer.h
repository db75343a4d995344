/* Between a level and the coarser one: sources down, potentials up. Included once per form. */

/* to += a b */
static void FORM(add_product)(ELEMENT *to, const ELEMENT *a, const ELEMENT *b, int64_t n) {
    ALONG(n) to[x] += a[x] * b[x];
}

/* Nodes of a fine row that are even, or odd, along a halved axis. */
static void FORM(thin)(ELEMENT *to, const ELEMENT *from, int64_t n, int halved) {
    if (halved)
        ALONG(n) to[x] = from[2 * x];
    else
        ALONG(n) to[x] = from[x];
}

/* Sources of n coarse nodes of a row from x on: the transpose of interpolation, gathered. */
APART void FORM(restrict_to)(const struct FORM(solver) * s, const struct FORM(level) * fine,
                             const struct grid *small, const ELEMENT *left, ELEMENT *to, int64_t z,
                             int64_t y, int64_t start, int64_t n) {
    const struct grid *grid = &fine->grid;
    const int64_t row = row_of(small, z, y) + start, fine_n[2] = {grid->n[0], grid->n[1]};
    ELEMENT *even = FORM(buffer)(s, 0), *odd = FORM(buffer)(s, 1), *sum = to + row;
    memset(sum, 0, (size_t)n * sizeof(ELEMENT));
    for (int dz = -grid->halved[0]; dz <= grid->halved[0]; dz++)
        for (int dy = -grid->halved[1]; dy <= grid->halved[1]; dy++) {
            const int64_t at[2] = {(z << grid->halved[0]) + dz, (y << grid->halved[1]) + dy};
            int exists = 1;
            for (int axis = 0; axis < 2; axis++)
                exists &= grid->periodic[axis] || (at[axis] >= 0 && at[axis] < fine_n[axis]);
            if (!exists) continue;
            const ELEMENT *from = left + row_of(grid, at[0], at[1]) + (start << grid->halved[2]);
            const int across = (dy ? 2 : 0) | (dz ? 4 : 0), up = (dy < 0 ? 2 : 0) | (dz < 0 ? 4 : 0);
            const int64_t cell = row_of(small, z - (dz < 0), y - (dy < 0)) + start;
            FORM(thin)(even, from, n, grid->halved[2]);
            if (across)
                FORM(add_product)(sum, fine->weight[weight_index(across, up)] + cell, even, n);
            else
                ALONG(n) sum[x] += even[x];
            if (!grid->halved[2]) continue;
            FORM(thin)(odd - 1, from - 1, n + 1, 1);
            const ELEMENT *low = fine->weight[weight_index(across | 1, up)] + cell;
            const ELEMENT *high = fine->weight[weight_index(across | 1, up | 1)] + cell;
            FORM(add_product)(sum, low, odd, n);
            FORM(add_product)(sum, high - 1, odd - 1, n);
        }
}

/* coarse = the transpose of interpolation of fine nodes; wraps `left`. */
static void FORM(restrict)(const struct FORM(solver) * s, const struct FORM(level) * fine,
                           const struct FORM(level) * coarse, ELEMENT *left, ELEMENT *to) {
    const struct grid *small = &coarse->grid;
    FORM(wrap)(&fine->grid, left);
#pragma omp parallel for schedule(static) num_threads(FORM(num_threads)(s, &fine->grid))
    for (int64_t i = 0; i < rows(small); i++)
        EACH_RUN (coarse, i)
            FORM(restrict_to)(s, fine, small, left, to, i / small->n[1], i % small->n[1], run[0],
                              run[1] - run[0]);
}

/* fine->x of a row from an even node up to an end += potentials of the coarse nodes around. */
APART void FORM(interpolate_to)(const struct FORM(solver) * s, const struct FORM(level) * fine,
                                const struct FORM(level) * coarse, int64_t z, int64_t y, int64_t start,
                                int64_t end) {
    const struct grid *grid = &fine->grid, *small = &coarse->grid;
    int across;
    const int64_t halved = grid->halved[2], odds = (end - start) / 2;
    const int64_t cell = row_of_cells(grid, small, z, y, &across) + (start >> halved);
    const int64_t n = (end - start + halved) >> halved;
    ELEMENT *even = FORM(buffer)(s, 0), *odd = FORM(buffer)(s, 1);
    ELEMENT *to = fine->x + row_of(grid, z, y) + start;
    memset(even, 0, (size_t)n * sizeof(ELEMENT));
    memset(odd, 0, (size_t)n * sizeof(ELEMENT));
    for (int c = 0; c < CORNERS; c++) {
        const ELEMENT *e = coarse->x + cell + corner(small, c);
        if (!across && !c)
            ALONG(n) even[x] = e[x];
        else if (!(c & ~across))
            FORM(add_product)(even, fine->weight[weight_index(across, c)] + cell, e, n);
        if (halved && !(c & ~(across | 1)))
            FORM(add_product)(odd, fine->weight[weight_index(across | 1, c)] + cell, e, n);
    }
    if (!halved) {
        ALONG(n) to[x] += even[x];
        return;
    }
    ALONG(odds) {
        to[2 * x] += even[x];
        to[2 * x + 1] += odd[x];
    }
    if (n > odds) to[2 * odds] += even[odds];
}

static void FORM(interpolate)(const struct FORM(solver) * s, const struct FORM(level) * fine,
                              const struct FORM(level) * coarse) {
    FORM(wrap)(&coarse->grid, coarse->x);
#pragma omp parallel for schedule(static) num_threads(FORM(num_threads)(s, &fine->grid))
    for (int64_t i = 0; i < rows(&fine->grid); i++)
        EACH_RUN (fine, i)
            FORM(interpolate_to)(s, fine, coarse, i / fine->grid.n[1], i % fine->grid.n[1], run[0],
                                 run[1]);
}
