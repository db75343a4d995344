/* From a network to a smaller one of the same kind (black-box multigrid: Dendy, J. Comput. Phys. 48,
 * 1982). Every second node of the halved axes stays; the potential of a node between them is the
 * mean of its neighbours' potentials, weighted by the conductances to them. With that the power
 * sum g (v_p - v_q)^2 of an edge is a sum over pairs of coarse nodes: with weights P_p and P_q and
 * delta = P_p - P_q, which sums to zero,
 *     g (v_p - v_q)^2 = - sum over pairs a < b of g delta_a delta_b (v_a - v_b)^2.
 * So coarse edges are sums over fine ones: resistors in series along an edge become one. A leak is
 * shared out by the weights.
 * Included once per precision. */

INLINE vec NAME(positive)(vec value) { return NAME(where)(value > 0, value); }

/* Conductance from node p in one direction: forwards it is the node's own edge, backwards the other's. */
INLINE vec NAME(edge_at)(const struct NAME(level) *l, int64_t p, int o, int forwards) {
    return forwards ? l->edge[o][p] : l->edge[o][p - l->grid.step[o]];
}

/* Let loose nodes, in the lanes of the mask, take the potential of one corner. */
static void NAME(attach)(const struct grid *grid, const vec *inverse, NAME(mask) loose, int set,
                         const int64_t *cell, int64_t p, vec *weight) {
    vec most = NAME(splat)(-1), picked = most;
    for (int c = 0; c < CORNERS(AXES); c++) {
        int exists = !(c & ~set);
        int64_t q = p;
        for (int axis = 0; axis < AXES; axis++) {
            const int bit = 1 << (AXES - 1 - axis);
            if (!(set & bit)) continue;
            q += c & bit ? grid->stride[axis] : -grid->stride[axis];
            exists &= !(c & bit) || 2 * cell[axis] + 2 < grid->n[axis];
        }
        if (!exists) continue;
        const NAME(mask) insulates = inverse[q] <= 0, better = insulates | (inverse[q] > most);
        most = NAME(where)(~better, most) +
               NAME(where)(better, NAME(where)(~insulates, inverse[q]) +
                                       NAME(where)(insulates, NAME(splat)((REAL)HUGE_VALF)));
        picked = NAME(where)(~better, picked) + NAME(where)(better, NAME(splat)((REAL)c));
    }
    for (int c = 0; c < CORNERS(AXES); c++)
        if (!(c & ~set))
            weight[weight_index(set, c)] +=
                NAME(where)(loose & (picked == NAME(splat)((REAL)c)), NAME(splat)(1));
}

/* Weights of the nodes of one set. Ways out of a node count by their part along the set's axes:
 * the others lead to nodes taken to be at its own potential. Where they are most of its
 * conductances, in a thin conductor or a narrow pore, the mean of the corners would leave small
 * islands of conductors without a coarse node. Such a node takes the potential of one corner: the
 * one with the least conductances, which is the least likely to stand for another conductor. */
APART void NAME(weigh)(const struct NAME(level) *fine, const struct grid *coarse, int set) {
    const struct grid *grid = &fine->grid;
    const int count = weights(grid), corners = CORNERS(AXES);
    EACH_ROW (coarse)
        for (int64_t x = 0; x < coarse->n[2]; x++) {
            const int64_t cell = ROW(coarse) + x;
            vec *own = fine->weight + cell * count;
            for (int c = 0; c < corners; c++)
                if (!(c & ~set)) own[weight_index(set, c)] = NAME(splat)(0);
            if (!between(grid, set, z, y, x)) continue;
            const int64_t p = origin(grid, z, y, x) + corner(grid, set);
            vec towards[27];
            memset(towards, 0, sizeof towards);
            for (int o = 0; o < grid->steps; o++)
                for (int forwards = 0; forwards < 2; forwards++) {
                    int direction = 0;
                    for (int axis = 0; axis < AXES; axis++) {
                        const int step = set >> (AXES - 1 - axis) & 1 ? grid->offset[o][axis] : 0;
                        direction = 3 * direction + 1 + (forwards ? step : -step);
                    }
                    towards[direction] += NAME(edge_at)(fine, p, o, forwards);
                }
            vec sum = NAME(splat)(0);
            for (int direction = 0; direction < 27; direction++) {
                int moved = 0, up = 0; /* along which axes, and along which of them forwards */
                for (int bit = 0, rest = direction; bit < AXES; bit++, rest /= 3) {
                    moved |= (rest % 3 != 1) << bit;
                    up |= (rest % 3 == 2) << bit;
                }
                if (!moved || moved & ~set) continue;
                const int rest = set & ~moved; /* what the neighbour lies between */
                const vec g = NAME(positive)(towards[direction]);
                sum += g;
                const vec *other = fine->weight + (cell + corner(coarse, up)) * count;
                for (int c = 0; c < corners; c++) {
                    if (c & ~rest) continue;
                    const vec w = rest ? other[weight_index(rest, c)] : NAME(splat)(1);
                    own[weight_index(set, c | up)] += g * w;
                }
            }
            const vec ties = sum + NAME(positive)(towards[13]);
            const NAME(mask) loose = (ties > 0) & (sum <= (REAL)LOOSE * ties);
            const vec inverse = NAME(where)(~loose, NAME(inverse)(sum));
            int any = 0;
            for (int lane = 0; lane < LANES; lane++) any |= loose[lane] != 0;
            for (int c = 0; c < corners; c++)
                if (!(c & ~set)) own[weight_index(set, c)] *= inverse;
            if (any) NAME(attach)(grid, fine->inverse, loose, set, (int64_t[]){z, y, x}, p, own);
        }
}

/* One cell's share of the coarse network. Local nodes count in threes, axis 2 fastest. */
INLINE void NAME(lump_cell)(const int axes, const struct NAME(level) *fine,
                            const struct NAME(level) *coarse, int64_t z, int64_t y, int64_t x) {
    const struct grid *grid = &fine->grid, *small = &coarse->grid;
    const int corners = CORNERS(axes), locals = axes == 1 ? 3 : axes == 2 ? 9 : 27;
    const int64_t cell = small->first + z * small->stride[0] + y * small->stride[1] + x;
    const int64_t i[AXES] = {z, y, x};
    struct places along[AXES];
    for (int axis = 0; axis < AXES; axis++) along[axis] = places_along(grid, small, axis, i[axis]);
    vec share[27][8];
    int64_t at[27];
#pragma GCC unroll 1
    for (int local = 0; local < locals; local++) {
        const int t[AXES] = {local / 9, local / 3 % 3, local % 3};
        int set = 0, up = 0, exists = 1, own = 1;
        at[local] = grid->first;
        for (int axis = AXES - axes; axis < AXES; axis++) {
            const int bit = 1 << (AXES - 1 - axis);
            exists &= along[axis].at[t[axis]] >= 0;
            at[local] += along[axis].at[t[axis]] * grid->stride[axis];
            if (t[axis] == 1) set |= bit;
            if (t[axis] == 2) up |= bit, own = 0;
        }
        if (!exists) at[local] = -1;
        const vec *w = fine->weight + (cell + corner(small, up)) * weights(grid);
        for (int c = 0; c < corners; c++) {
            const int rest = c & ~up;
            share[local][c] = !exists || (c & up) != up || rest & ~set ? NAME(splat)(0)
                              : set                                    ? w[weight_index(set, rest)]
                                                                       : NAME(splat)(1);
        }
        if (exists && own)
            for (int c = 0; c < corners; c++)
                coarse->leak[cell + corner(small, c)] += share[local][c] * fine->leak[at[local]];
    }
    vec pairs[8][8];
    memset(pairs, 0, sizeof pairs);
#pragma GCC unroll 1
    for (int a = 0; a < locals; a++) {
        if (at[a] < 0) continue;
#pragma GCC unroll 1
        for (int o = 0; o < grid->steps; o++) {
            int b = 0, exists = 1, shared = 0;
            for (int axis = AXES - axes; axis < AXES; axis++) {
                const int t = axis == 0 ? a / 9 : axis == 1 ? a / 3 % 3 : a % 3;
                const int step = grid->offset[o][axis];
                int to = t + step;
                if (to == 1 && step && along[axis].at[1] < 0) to += step;
                exists &= to >= 0 && to <= 2;
                shared |= t == 2 && to == 2; /* the next cell's edge */
                b = 3 * b + to;
            }
            if (!exists || shared || at[b] < 0) continue;
            const vec g = fine->edge[o][at[a]];
            vec delta[8];
            for (int c = 0; c < corners; c++) delta[c] = share[a][c] - share[b][c];
            for (int c = 0; c < corners; c++)
                for (int d = c + 1; d < corners; d++) pairs[c][d] -= g * delta[c] * delta[d];
        }
    }
    for (int o = 0; o < small->steps; o++)
        for (int c = 0; c < corners; c++) {
            int to = 0, inside = 1;
            for (int axis = AXES - axes; axis < AXES; axis++) {
                const int bit = AXES - 1 - axis, t = (c >> bit & 1) + small->offset[o][axis];
                inside &= t == 0 || t == 1;
                to |= (t & 1) << bit;
            }
            if (inside) coarse->edge[o][cell + corner(small, c)] += c < to ? pairs[c][to] : pairs[to][c];
        }
}

/* The same for the finest level of a plane, whose edges run along the axes: weights first, then
 * shares, written out. A node between four has the power sum g (v_i - v)^2 over its edges, which
 * with v = sum g v_i / t is sum g v_i^2 - t v^2. */
APART void NAME(weigh_plane)(const struct NAME(level) *fine, const struct grid *coarse) {
    const struct grid *grid = &fine->grid;
    const vec zero = NAME(splat)(0);
    const int64_t down = grid->stride[1];
    EACH_ROW (coarse) {
        const int has_lower = 2 * y + 1 < grid->n[1];
        for (int64_t x = 0; x < coarse->n[2]; x++) {
            const int64_t p = origin(grid, z, y, x);
            vec *w = fine->weight + 8 * (ROW(coarse) + x);
            w[0] = w[1] = w[2] = w[3] = zero;
            if (2 * x + 1 < grid->n[2]) {
                const vec left = fine->edge[0][p], right = fine->edge[0][p + 1];
                const vec inverse = NAME(inverse)(left + right);
                w[0] = left * inverse, w[1] = right * inverse;
            }
            if (has_lower) {
                const vec above = fine->edge[1][p], below = fine->edge[1][p + down];
                const vec inverse = NAME(inverse)(above + below);
                w[2] = above * inverse, w[3] = below * inverse;
            }
        }
    }
}

APART void NAME(lump_plane)(const struct NAME(level) *fine, const struct NAME(level) *coarse) {
    const struct grid *grid = &fine->grid, *small = &coarse->grid;
    const vec zero = NAME(splat)(0);
    const int64_t down = grid->stride[1], next = small->stride[1];
    /* The directions of a coarse network's edges: across, down and back, down, both. */
    vec *const *edge = coarse->edge;
    EACH_ROW (small)
        for (int64_t x = 0; x < small->n[2]; x++) {
            const int64_t cell = ROW(small) + x, p = origin(grid, z, y, x);
            const int beside = 2 * x + 1 < grid->n[2], lower = 2 * y + 1 < grid->n[1];
            vec *w = fine->weight + 8 * cell;
            coarse->leak[cell] += fine->leak[p];
            w[4] = w[5] = w[6] = w[7] = zero;
            if (beside) { /* two edges in series */
                const vec l = fine->leak[p + 1];
                edge[0][cell] += fine->edge[0][p] * w[1];
                coarse->leak[cell] += w[0] * l;
                coarse->leak[cell + 1] += w[1] * l;
            } else { /* an odd periodic axis closes; else zero */
                edge[0][cell] += fine->edge[0][p];
            }
            if (lower) {
                const vec l = fine->leak[p + down];
                edge[2][cell] += fine->edge[1][p] * w[3];
                coarse->leak[cell] += w[2] * l;
                coarse->leak[cell + next] += w[3] * l;
            } else {
                edge[2][cell] += fine->edge[1][p];
            }
            if (beside && lower) {
                const int64_t q = p + down + 1;
                const vec top = fine->edge[1][q - down], bottom = fine->edge[1][q];
                const vec left = fine->edge[0][q - 1], right = fine->edge[0][q];
                const vec *upper = w, *under = w + 8 * next, *before = w, *after = w + 8;
                const vec t = top + bottom + left + right, inverse = NAME(inverse)(t);
                const vec a = top * upper[0] + left * before[2], b = top * upper[1] + right * after[2];
                const vec c = bottom * under[0] + left * before[3];
                const vec d = bottom * under[1] + right * after[3], l = fine->leak[q];
                w[4] = a * inverse, w[5] = b * inverse, w[6] = c * inverse, w[7] = d * inverse;
                edge[0][cell] += a * w[5] - top * upper[0] * upper[1];
                edge[0][cell + next] += c * w[7] - bottom * under[0] * under[1];
                edge[2][cell] += a * w[6] - left * before[2] * before[3];
                edge[2][cell + 1] += b * w[7] - right * after[2] * after[3];
                edge[3][cell] += a * w[7];
                edge[1][cell + 1] += b * w[6];
                coarse->leak[cell] += w[4] * l;
                coarse->leak[cell + 1] += w[5] * l;
                coarse->leak[cell + next] += w[6] * l;
                coarse->leak[cell + next + 1] += w[7] * l;
            } else if (beside || lower) { /* an edge that closes an odd periodic axis; else zero */
                const vec g = fine->edge[lower ? 0 : 1][p + (lower ? down : 1)];
                const vec *own = lower ? w + 2 : w, *other = lower ? w + 8 + 2 : w + 8 * next;
                const int64_t one = lower ? 1 : next, two = lower ? next : 1;
                edge[lower ? 0 : 2][cell] += g * own[0] * other[0];
                edge[lower ? 0 : 2][cell + two] += g * own[1] * other[1];
                edge[lower ? 2 : 0][cell] -= g * own[0] * own[1];
                edge[lower ? 2 : 0][cell + one] -= g * other[0] * other[1];
                edge[3][cell] += g * own[0] * other[1];
                edge[1][cell + 1] += g * (lower ? other[0] * own[1] : own[1] * other[0]);
            }
        }
}

/* Weights between two levels, and the coarser level's network. */
APART void NAME(coarsen)(const struct NAME(level) *fine, const struct NAME(level) *coarse) {
    const struct grid *grid = &coarse->grid;
    const int count = weights(grid);
    const int plane = fine->grid.steps == 2 && fine->grid.halved[1] && fine->grid.halved[2];
    memset(fine->weight, 0, (size_t)(grid->all * count) * sizeof(vec));
    if (plane) {
        NAME(weigh_plane)(fine, grid);
        NAME(wrap)(grid, fine->weight, count);
    }
    for (int size = 1; size <= grid->axes && !plane; size++)
        for (int set = 1; set < CORNERS(grid->axes); set++)
            if (__builtin_popcount((unsigned)set) == size) {
                NAME(weigh)(fine, grid, set);
                NAME(wrap)(grid, fine->weight, count);
            }
    memset(coarse->leak, 0, (size_t)grid->all * sizeof(vec));
    for (int o = 0; o < grid->steps; o++) memset(coarse->edge[o], 0, (size_t)grid->all * sizeof(vec));
    if (plane) NAME(lump_plane)(fine, coarse);
    EACH_ROW (grid)
        for (int64_t x = 0; x < grid->n[2] && !plane; x++)
            if (grid->axes == 2)
                NAME(lump_cell)(2, fine, coarse, z, y, x);
            else
                NAME(lump_cell)(3, fine, coarse, z, y, x);
    NAME(fold)(grid, coarse->leak);
    for (int o = 0; o < grid->steps; o++) {
        NAME(fold)(grid, coarse->edge[o]);
        NAME(wrap)(grid, coarse->edge[o], 1);
    }
    NAME(invert)(coarse);
}
