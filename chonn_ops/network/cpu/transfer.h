/* Between a level and the coarser one: sources down, potentials up. Included once per precision. */

/* Add to the coarse sources what one row of cells has left, `left` one row of fine nodes; the rows
 * of a cell differ by the part of the set that is not axis 2. */
INLINE void NAME(restrict_row)(const int axes, const struct NAME(level) *fine, const vec *left,
                               const struct grid *coarse, int64_t row, int across, vec *to) {
    const int count = axes == 1 ? 2 : axes == 2 ? 8 : WEIGHTS_MAX;
    const int halved = fine->grid.halved[2];
    const int64_t n = fine->grid.n[2];
    for (int64_t x = 0; x < coarse->n[2]; x++) {
        const int64_t cell = row + x;
        const vec *w = fine->weight + cell * count;
        for (int odd = 0; odd <= halved; odd++) {
            const int set = across | odd;
            if ((x << halved) + odd >= n) continue;
            const vec r = left[(x << halved) + odd];
            for (int c = 0; c < CORNERS(axes); c++)
                if (!(c & ~set)) to[cell + corner(coarse, c)] += set ? w[weight_index(set, c)] * r : r;
        }
    }
}

INLINE void NAME(interpolate_row)(const int axes, const struct NAME(level) *fine,
                                  const struct NAME(level) *coarse, int64_t row, int64_t cells,
                                  int across) {
    const int count = axes == 1 ? 2 : axes == 2 ? 8 : WEIGHTS_MAX;
    const int halved = fine->grid.halved[2];
    const int64_t n = fine->grid.n[2];
    for (int64_t x = 0; x < coarse->grid.n[2]; x++) {
        const int64_t cell = cells + x;
        const vec *w = fine->weight + cell * count;
        for (int odd = 0; odd <= halved; odd++) {
            const int set = across | odd;
            if ((x << halved) + odd >= n) continue;
            vec v = NAME(splat)(0);
            for (int c = 0; c < CORNERS(axes); c++)
                if (!(c & ~set)) {
                    const vec e = coarse->x[cell + corner(&coarse->grid, c)];
                    v += set ? w[weight_index(set, c)] * e : e;
                }
            fine->x[row + (x << halved) + odd] += v;
        }
    }
}

INLINE void NAME(restrict_one)(const struct NAME(level) *fine, const struct NAME(level) *coarse,
                               const vec *left, int64_t index) {
    const struct grid *grid = &fine->grid, *small = &coarse->grid;
    int across;
    const int64_t z = index / grid->n[1], y = index % grid->n[1];
    const int64_t cells = row_of_cells(grid, small, z, y, &across);
    if (grid->axes == 3)
        NAME(restrict_row)(3, fine, left, small, cells, across, coarse->r);
    else if (across)
        NAME(restrict_row)(2, fine, left, small, cells, 2, coarse->r);
    else
        NAME(restrict_row)(2, fine, left, small, cells, 0, coarse->r);
}

INLINE void NAME(interpolate_one)(const struct NAME(level) *fine, const struct NAME(level) *coarse,
                                  int64_t index) {
    const struct grid *grid = &fine->grid, *small = &coarse->grid;
    int across;
    const int64_t z = index / grid->n[1], y = index % grid->n[1], row = row_at(grid, index);
    const int64_t cells = row_of_cells(grid, small, z, y, &across);
    if (grid->axes == 3)
        NAME(interpolate_row)(3, fine, coarse, row, cells, across);
    else if (across)
        NAME(interpolate_row)(2, fine, coarse, row, cells, 2);
    else
        NAME(interpolate_row)(2, fine, coarse, row, cells, 0);
}

/* A forward sweep over fine->x; coarse->r = what it leaves of fine->r. `left` has room for a row. */
APART void NAME(descend)(const struct NAME(level) *fine, const struct NAME(level) *coarse, vec *left) {
    const struct grid *grid = &fine->grid;
    const int periodic = is_periodic(grid);
    const int64_t all = rows(grid), behind = lag(grid);
    memset(coarse->r, 0, (size_t)coarse->grid.all * sizeof(vec));
    if (periodic) NAME(clear_margin)(grid, fine->x, 1);
    for (int64_t i = 0; i < all + behind; i++) {
        if (i < all) FOR_STEPS(grid->steps, NAME(forward_row), fine, row_at(grid, i))
        if (i == all && periodic) NAME(wrap)(grid, fine->x, 1);
        if (i < behind) continue;
        const int64_t row = row_at(grid, i - behind);
        if (periodic)
            FOR_STEPS(grid->steps, NAME(residual_row), fine, fine->x, row, left - row)
        else
            FOR_STEPS(grid->steps, NAME(left_row), fine, row, left)
        NAME(restrict_one)(fine, coarse, left, i - behind);
    }
    NAME(fold)(&coarse->grid, coarse->r);
}

/* fine->x += the coarse potentials between which its nodes lie, and a backward sweep; returns rx = r . x. */
APART vec NAME(ascend)(const struct NAME(level) *fine, const struct NAME(level) *coarse) {
    const struct grid *grid = &fine->grid;
    const int64_t all = rows(grid), behind = lag(grid);
    vec rx = NAME(splat)(0);
    NAME(wrap)(&coarse->grid, coarse->x, 1);
    for (int64_t i = all - 1; i >= -behind; i--) {
        if (i >= 0) NAME(interpolate_one)(fine, coarse, i);
        if (i == -1 && behind == all) NAME(wrap)(grid, fine->x, 1);
        if (i + behind < all)
            FOR_STEPS(grid->steps, NAME(backward_row), fine, row_at(grid, i + behind), &rx)
    }
    return rx;
}
