/* From a network to a smaller one of the same kind (black-box multigrid: Dendy, J. Comput. Phys. 48,
 * 1982). Every second node of the halved axes stays; the potential of a node between them is the
 * mean of its neighbours' potentials, weighted by the conductances to them. With that the power
 * sum g (v_p - v_q)^2 of an edge is a sum over pairs of coarse nodes: with weights P_p and P_q and
 * delta = P_p - P_q, which sums to zero,
 *     g (v_p - v_q)^2 = - sum over pairs a < b of g delta_a delta_b (v_a - v_b)^2.
 * So coarse edges are sums over fine ones: resistors in series along an edge become one. A leak is
 * shared out by the weights.
 * Included once per form. */

/* Let the nodes of n cells where `loose` is 1 take the potential of one corner. */
APART void FORM(attach_run)(const struct FORM(solver) * s, const struct FORM(level) * fine, int set,
                            const ELEMENT *loose, const int64_t *at, int64_t p, int64_t cell,
                            int64_t start, int64_t n) {
    const struct grid *grid = &fine->grid;
    ELEMENT *most = FORM(buffer)(s, 0), *picked = FORM(buffer)(s, 1);
    ALONG(n) most[x] = picked[x] = FORM(splat)(-1);
    for (int c = 0; c < CORNERS; c++) {
        int exists = !(c & ~set);
        const ELEMENT *inverse = fine->inverse + p;
        for (int axis = 0; axis < AXES; axis++) {
            const int bit = 1 << (AXES - 1 - axis);
            if (!(set & bit)) continue;
            inverse += c & bit ? grid->stride[axis] : -grid->stride[axis];
            exists &= !(c & bit) || axis == 2 || at[axis] + 1 < grid->n[axis];
        }
        if (!exists) continue;
        const int64_t beyond = c & 1 && 2 * (start + n) == grid->n[2];
        for (int64_t x = 0; x < n - beyond; x++) {
            const ELEMENT here = inverse[x << grid->halved[2]];
            /* An insulator stands for nothing. */
            const ELEMENT value = SELECT(here > 0, here, FORM(splat)((REAL)HUGE_VALF));
            const MASK better = value > most[x];
            most[x] = SELECT(better, value, most[x]);
            picked[x] = SELECT(better, FORM(splat)((REAL)c), picked[x]);
        }
    }
    for (int c = 0; c < CORNERS; c++) {
        if (c & ~set) continue;
        ELEMENT *weight = fine->weight[weight_index(set, c)] + cell;
        ALONG(n) weight[x] += FORM(where)(picked[x] == FORM(splat)((REAL)c), loose[x]);
    }
}

/* Weights of the nodes of a set in n cells of a row from `start` on. Ways out of a node count by their
 * part along the set's axes: the others lead to nodes taken to be at its own potential. Where they
 * are most of its conductances, in a thin conductor or a narrow pore, the mean of the corners would
 * leave small islands of conductors without a coarse node. Such a node takes the potential of one
 * corner: the one with the least conductances, which is the least likely to stand for another
 * conductor. */
APART void FORM(weigh_run)(const struct FORM(solver) * s, const struct FORM(level) * fine,
                           const struct grid *small, int set, int64_t z, int64_t y, int64_t start,
                           int64_t n) {
    const struct grid *grid = &fine->grid;
    const int64_t cell = row_of(small, z, y) + start;
    const int64_t at[2] = {(z << grid->halved[0]) + (set >> 2 & 1),
                           (y << grid->halved[1]) + (set >> 1 & 1)};
    const int64_t count = count_in(grid, set, start, n);
    if (at[0] >= grid->n[0] || at[1] >= grid->n[1]) return;
    ELEMENT *sum = FORM(buffer)(s, 27), *ties = FORM(buffer)(s, 28), *towards[27];
    int moved_in[27], up_in[27]; /* along which axes, and along which of them forwards */
    for (int direction = 0; direction < 27; direction++) {
        moved_in[direction] = up_in[direction] = 0;
        for (int bit = 0, rest = direction; bit < AXES; bit++, rest /= 3) {
            moved_in[direction] |= (rest % 3 != 1) << bit;
            up_in[direction] |= (rest % 3 == 2) << bit;
        }
        towards[direction] = FORM(buffer)(s, direction);
        if (!(moved_in[direction] & ~set)) memset(towards[direction], 0, (size_t)n * sizeof(ELEMENT));
    }
    memset(sum, 0, (size_t)n * sizeof(ELEMENT));
    memset(ties, 0, (size_t)n * sizeof(ELEMENT));
    const int64_t p = row_of(grid, at[0], at[1]) + (start << grid->halved[2]) + (set & 1);
    for (int o = 0; o < grid->steps; o++)
        for (int forwards = 0; forwards < 2; forwards++) {
            int direction = 0;
            for (int axis = 0; axis < AXES; axis++) {
                const int step = set >> (AXES - 1 - axis) & 1 ? grid->offset[o][axis] : 0;
                direction = 3 * direction + 1 + (forwards ? step : -step);
            }
            const ELEMENT *g = fine->edge[o] + p - (forwards ? 0 : grid->step[o]);
            ELEMENT *to = towards[direction];
            if (grid->halved[2])
                ALONG(count) to[x] += g[2 * x];
            else
                ALONG(count) to[x] += g[x];
        }
    for (int direction = 0; direction < 27; direction++) {
        const ELEMENT *g = towards[direction];
        if (moved_in[direction] & ~set) continue;
        ALONG(count) ties[x] += FORM(where)(g[x] > 0, g[x]);
    }
    for (int c = 0; c < CORNERS; c++)
        if (!(c & ~set))
            memset(fine->weight[weight_index(set, c)] + cell, 0, (size_t)n * sizeof(ELEMENT));
    for (int direction = 0; direction < 27; direction++) {
        const int moved = moved_in[direction], up = up_in[direction];
        if (!moved || moved & ~set) continue;
        const int rest = set & ~moved; /* what the neighbour lies between */
        ELEMENT *g = towards[direction];
        ALONG(count) {
            g[x] = FORM(where)(g[x] > 0, g[x]);
            sum[x] += g[x];
        }
        for (int c = 0; c < CORNERS; c++) {
            if (c & ~rest) continue;
            ELEMENT *own = fine->weight[weight_index(set, c | up)] + cell;
            if (rest)
                FORM(add_product)(own, g, fine->weight[weight_index(rest, c)] + cell + corner(small, up),
                                  count);
            else
                ALONG(count) own[x] += g[x];
        }
    }
    int any = 0;
    for (int64_t x = 0; x < count; x++) {
        const MASK loose = (ties[x] > 0) & (sum[x] <= (REAL)LOOSE * ties[x]);
        ties[x] = FORM(where)(loose, FORM(splat)(1));
        sum[x] = FORM(inverse)(SELECT(loose, FORM(splat)(0), sum[x]));
        any |= FORM(any)(ties[x]);
    }
    for (int c = 0; c < CORNERS; c++) {
        if (c & ~set) continue;
        ELEMENT *own = fine->weight[weight_index(set, c)] + cell;
        ALONG(count) own[x] *= sum[x];
    }
    if (any) FORM(attach_run)(s, fine, set, ties, at, p, cell, start, count);
}

/* The margin of a set's weights. On an odd periodic axis the last coarse node's neighbour is the
 * first one, in the place of a node between. */
static void FORM(wrap_weights)(const struct FORM(level) * fine, const struct grid *small, int set) {
    const struct grid *grid = &fine->grid;
    for (int c = 0; c < CORNERS; c++)
        if (!(c & ~set)) FORM(wrap)(small, fine->weight[weight_index(set, c)]);
    for (int axis = 0; axis < AXES; axis++) {
        const int bit = 1 << (AXES - 1 - axis), even = set & ~bit;
        if (!(set & bit) || !grid->periodic[axis] || grid->n[axis] % 2 == 0) continue;
        const int64_t last = small->n[axis] - 1;
        for (int c = 0; c < CORNERS; c++) {
            if (c & ~set) continue;
            for (int side = 0; side < 2; side++) {
                const int64_t here = side ? last : -1, there = side ? 0 : last;
                int64_t from[AXES], to[AXES];
                for (int other = 0; other < AXES; other++) {
                    const int margin = other >= AXES - small->axes;
                    from[other] = other == axis ? here : -margin;
                    to[other] = other == axis ? here : small->n[other] - 1 + margin;
                }
                const int64_t shift = (there - here) * small->stride[axis];
                ELEMENT *face = fine->weight[weight_index(set, c)];
                const ELEMENT *known = even ? fine->weight[weight_index(even, c & ~bit)] : NULL;
                for (int64_t z = from[0]; z <= to[0]; z++)
                    for (int64_t y = from[1]; y <= to[1]; y++)
                        for (int64_t x = from[2]; x <= to[2]; x++) {
                            const int64_t p = row_of(small, z, y) + x;
                            face[p] = !(c & bit) != !side ? FORM(splat)(0)
                                      : known             ? known[p + shift]
                                                          : FORM(splat)(1);
                        }
            }
        }
    }
}

/* The share of the nodes of a set in n cells of a row from `start` on, and of their edges one way,
 * in the coarse network. */
APART void FORM(lump_run)(const struct FORM(solver) * s, const struct FORM(level) * fine,
                          const struct FORM(level) * coarse, int set, int o, int64_t z, int64_t y,
                          int64_t start, int64_t n) {
    const struct grid *grid = &fine->grid, *small = &coarse->grid;
    const int64_t cell = row_of(small, z, y) + start;
    const int64_t at[2] = {(z << grid->halved[0]) + (set >> 2 & 1),
                           (y << grid->halved[1]) + (set >> 1 & 1)};
    if (at[0] >= grid->n[0] || at[1] >= grid->n[1]) return;
    const int64_t count = count_in(grid, set, start, n);
    const int64_t p = row_of(grid, at[0], at[1]) + (start << grid->halved[2]) + (set & 1);
    ELEMENT *g = FORM(buffer)(s, 8);
    FORM(thin)(g, fine->edge[o] + p, count, grid->halved[2]);
    /* The neighbour: which cell it is in, and what it lies between there. */
    int64_t shift = 0;
    int other = 0, lowest = 0, ahead = 0;
    for (int axis = 0; axis < AXES; axis++) {
        const int bit = 1 << (AXES - 1 - axis), halved = grid->halved[axis];
        const int reached = !!(set & bit) + grid->offset[o][axis];
        const int cells = halved ? (reached + 2) / 2 - 1 : reached;
        if (halved && reached & 1) other |= bit;
        if (cells < 0) lowest |= bit;
        if (cells > 0) ahead |= bit;
        shift += cells * small->stride[axis];
    }
    /* Differences of weights at the eight corners from `lowest` on. */
    const int64_t base = cell - corner(small, lowest);
    ELEMENT *delta[8];
    int used[8] = {0};
    for (int c = 0; c < CORNERS; c++) delta[c] = FORM(buffer)(s, c);
    for (int c = 0; c < CORNERS; c++) {
        if (c & ~set) continue;
        const int k = c ^ lowest; /* an axis with `lowest` is none of the set's */
        const ELEMENT *w = set ? fine->weight[weight_index(set, c)] + cell : NULL;
        used[k] = 1;
        if (w)
            memcpy(delta[k], w, (size_t)count * sizeof(ELEMENT));
        else
            ALONG(count) delta[k][x] = FORM(splat)(1);
    }
    for (int c = 0; c < CORNERS; c++) {
        if (c & ~other) continue;
        const int k = c | ahead;
        const ELEMENT *w = other ? fine->weight[weight_index(other, c)] + cell + shift : NULL;
        ELEMENT *to = delta[k];
        if (!used[k]) memset(to, 0, (size_t)count * sizeof(ELEMENT));
        used[k] = 1;
        if (w)
            ALONG(count) to[x] -= w[x];
        else
            ALONG(count) to[x] -= 1;
    }
    for (int a = 0; a < 8; a++) {
        if (!used[a]) continue;
        ELEMENT *share = FORM(buffer)(s, 9);
        ALONG(count) share[x] = g[x] * delta[a][x];
        for (int b = a + 1; b < 8; b++) {
            if (!used[b]) continue;
            /* lay_out() numbers the edges in this order. */
            const int direction = 9 * ((b >> 2 & 1) - (a >> 2 & 1)) + 3 * ((b >> 1 & 1) - (a >> 1 & 1)) +
                                  (b & 1) - (a & 1) - 1;
            ELEMENT *to = coarse->edge[direction] + base + corner(small, a);
            const ELEMENT *d = delta[b];
            ALONG(count) to[x] -= share[x] * d[x];
        }
    }
}

static void FORM(coarsen)(const struct FORM(solver) * s, const struct FORM(level) * fine,
                          const struct FORM(level) * coarse) {
    const struct grid *grid = &fine->grid, *small = &coarse->grid;
    const int halved = halved_set(grid), threads = FORM(num_threads)(s, grid);
    FORM(halve_runs)(fine, coarse, (uint8_t *)s->buffer);
    for (int size = 1; size <= AXES; size++)
        for (int set = 1; set < CORNERS; set++) {
            if (__builtin_popcount((unsigned)set) != size || set & ~halved) continue;
#pragma omp parallel for schedule(static) num_threads(threads)
            for (int64_t i = 0; i < rows(small); i++)
                EACH_RUN (coarse, i)
                    FORM(weigh_run)(s, fine, small, set, i / small->n[1], i % small->n[1], run[0],
                                    run[1] - run[0]);
            FORM(wrap_weights)(fine, small, set);
        }
    FORM(restrict)(s, fine, coarse, fine->leak, coarse->leak);
    /* A slice writes into itself and the next one. */
    const int64_t slices = small->axes == 3 ? small->n[0] : small->n[1];
#pragma omp parallel num_threads(threads)
    for (int pass = 0; pass < 2; pass++) {
#pragma omp for schedule(static)
        for (int64_t slice = pass; slice < slices; slice += 2)
            for (int64_t across = 0; across < (small->axes == 3 ? small->n[1] : 1); across++) {
                const int64_t z = small->axes == 3 ? slice : 0, y = small->axes == 3 ? across : slice;
                for (int set = 0; set < CORNERS; set++)
                    for (int o = 0; o < grid->steps && !(set & ~halved); o++)
                        EACH_RUN (coarse, z * small->n[1] + y)
                            FORM(lump_run)(s, fine, coarse, set, o, z, y, run[0], run[1] - run[0]);
            }
    }
    for (int o = 0; o < small->steps; o++) {
        FORM(fold)(small, coarse->edge[o]);
        FORM(wrap)(small, coarse->edge[o]);
    }
    FORM(invert)(s, coarse);
}
