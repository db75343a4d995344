/* Potentials and drops of real networks from their factors.
 *
 * A value is a vector: of one source for every network of the group, or of LANES sources for one
 * network. Two vectors of sources that share what is read of the factors took 0.8 to 1.2 times as long
 * as one after the other (64 x 64 to 512 x 512, 12 x 12 x 12 to 32 x 32 x 32). */

/* Bytes of one value. Where rows fill the vectors, one or two sources are solved one by one, but pairs
 * are not. */
static int64_t MODE(value_bytes)(const struct direct_args *a) {
    return ROWS && a->sources < 3 && a->call != DIRECT_PAIRS ? sizeof(REAL) : sizeof(vec);
}

/* Bytes of one value while substitution goes up, in double precision. */
static int64_t MODE(carried_bytes)(const struct direct_args *a) { return HALVES * MODE(value_bytes)(a); }

/* Bytes of one value for every node. */
static int64_t MODE(values_bytes)(const struct direct_args *a) {
    return aligned(a->nodes * MODE(value_bytes)(a));
}

/* Bytes of one value for every edge of all axes; the same memory has one for every node before. */
static int64_t MODE(edges_bytes)(const struct direct_args *a) {
    const int64_t edges = a->axes * a->entries;
    return aligned((edges > a->nodes ? edges : a->nodes) * MODE(value_bytes)(a));
}

static int64_t MODE(front_values_bytes)(const struct direct_args *a) {
    return aligned((a->largest_front + PAD) * MODE(carried_bytes)(a));
}

static int64_t MODE(sums_bytes)(const struct direct_args *a) {
    return aligned(3 * a->nodes * (int64_t)sizeof(double));
}

/* What substitution in tiles takes; the first part is what `sweep_down_drops` leaves for them. */
static int64_t MODE(tiles_solve_bytes)(const struct direct_args *a) {
#if ROWS
    const int64_t left = a->drop[0] ? tiles_wait(a) : 0;
    return aligned(left * MODE(value_bytes)(a)) + tiles_solve_bytes(a);
#else
    (void)a;
    return 0;
#endif
}

static int64_t MODE(solve_bytes)(const struct direct_args *a) {
    const int64_t swept = a->drop[0] ? 2 : 1;
    const int64_t drops = MODE(edges_bytes)(a) + 2 * MODE(values_bytes)(a) + MODE(sums_bytes)(a) +
                          aligned(3 * a->waiting * MODE(value_bytes)(a));
    const int64_t columns = 1 + (HALVES > 1 ? HALVES * swept : swept + 1);
    return columns * MODE(values_bytes)(a) + swept * MODE(front_values_bytes)(a) +
           (a->drop[0] ? drops : 0) + MODE(tiles_solve_bytes)(a);
}

/* Beside each source s stands s - l V, V being its sum over that of the leaks l: a solution then has
 * the mean 0, weighted with the leaks. */
INLINE void MODE(take_level)(const struct direct_args *a, const element *leak, const element *inverse,
                             wide *x) {
    wide current = {}, ground = {}, level;
    for (int64_t p = 0; p < a->nodes; p++) {
        const vec one = splat(1), own = WIDEN(leak[p]);
        const vec inside = either(WIDEN(inverse[p]), one, (vec){});
        const wide counts = widen(&inside), l = widen(&own);
        UNROLL for (int k = 0; k < HALVES; k++) {
            current.part[k] += counts.part[k] * x[2 * p].part[k];
            ground.part[k] += l.part[k];
        }
    }
    for (int lane = 0; lane < LANES; lane++) {
        const double all = ((const double *)&ground)[lane];
        ((double *)&level)[lane] = all > 0 ? ((const double *)&current)[lane] / all : 0;
    }
    for (int64_t p = 0; p < a->nodes; p++) {
        const vec own = WIDEN(leak[p]);
        const wide l = widen(&own);
        UNROLL for (int k = 0; k < HALVES; k++) x[2 * p + 1].part[k] =
            x[2 * p].part[k] - l.part[k] * level.part[k];
    }
}

/* Shifts a part whose last node's potential is rounding, which is large where leaks are small: the
 * current that this takes to ground is no more than the rounding of sources. Other parts then cost it
 * no digits. */
INLINE vec MODE(without_rounding)(vec value, vec limit) {
    const mask kept = value > limit | value < -limit;
    return (vec)(kept & (mask)value);
}

/* Labels of the parts of the item's networks; NULL where none has more than one part or nodes that
 * are no part of it. */
static INTEGER *MODE(parts)(const struct direct_args *a, const struct item *item, const element *shares,
                            const element *inverse, const element *grounded, INTEGER *label) {
    int several = 0;
    for (int lane = 0; lane < item->width; lane++) {
        int64_t last = 0, outside = 0;
        const REAL *part = (const REAL *)inverse + lane, *all = (const REAL *)grounded + lane;
        const int64_t step = ROWS ? 1 : LANES;
        for (int64_t p = 0; p < a->nodes; p++)
            last += all[p * step] == 1, outside += !(part[p * step] > 0);
        several |= last > 1 || outside;
    }
    for (int lane = 0; several && lane < (ROWS ? 1 : LANES); lane++)
        find_parts(a, (const REAL *)shares + lane, (const REAL *)inverse + lane,
                   (const REAL *)grounded + lane, ROWS ? 1 : LANES, label + lane);
#if ROWS
    if (several) parts_of_tiles(a, item, label);
#endif
    return several ? label : NULL;
}

/* Leaves for a half its reference and the pairs of v and u on its boundary, u relative to that. A half
 * without a boundary is a part of its own, which has its own last node. */
INLINE vec *MODE(push_half)(const struct direct_args *a, int64_t half, vec reference, const vec *t,
                            vec *top) {
    const int32_t *place = a->place + a->boundary_at[half];
    const vec change = t[2 * place[0] + 1];
    *top++ = reference + change;
    for (int64_t i = 0; i < a->width[half]; i++, top += 2) {
        top[0] = t[2 * place[i]];
        top[1] = t[2 * place[i] + 1] - change;
    }
    return top;
}

/* `sweep_down` for potentials v of sources, and for those u of `take_level`, which small leaks do not
 * lift all alike, relative to one node r of each region's boundary,
 *     u_p - u_r = z_p - h_p0 u_r + sum over q of h_pq (u_q - u_r),
 * h_p0 being what p hands to ground and z_p what it would have if all others had none. Those of a
 * half follow from its parent's. So differences between neighbours are found with errors relative to
 * what potentials differ by around them. The first reference is the last node of the network, which
 * hands all to ground. What is no part of the network is where the reference is, so that it may be
 * one; see `judge_drops`. `drop`: for each axis and entry. `tiles`: see `tiles_down_drops`. */
INLINE void MODE(sweep_down_drops)(const int step, const struct direct_args *a, const element *shares,
                                   const element *inverse, const element *grounded, vec *x, vec *t,
                                   vec *top, vec *drop, vec *tiles) {
    memset(drop, 0, (size_t)(a->axes * a->entries) * sizeof(vec)); /* for what is no edge */
    vec last = {};
    for (int64_t p = 0; p < a->nodes; p++) last = either(WIDEN(inverse[p * step]), x[2 * p + 1], last);
    for (int64_t r = a->regions - 1; r >= 0; r--) {
        const int64_t n = a->pivots[r], width = a->width[r], first = a->first[r];
        vec reference = last;
        if (width) {
            top -= 2 * width + 1;
            reference = top[0];
            memcpy(t + 2 * n, top + 1, (size_t)(2 * width) * sizeof(vec));
        }
        if (!n) {
            tiles -= 1 + rim_of(a);
            tiles[0] = reference;
            for (int64_t q = 0; q < width; q++) tiles[1 + q] = t[2 * q + 1];
            continue;
        }
        for (int64_t i = 0; i < n; i++) {
            t[2 * i] = x[2 * (first + i)];
            t[2 * i + 1] = x[2 * (first + i) + 1] - WIDEN(grounded[(first + i) * step]) * reference;
        }
        MODE(backward)(2, step, shares + a->share_at[r] * step, n, n + width, t);
        for (int64_t i = 0; i < n; i++) x[2 * (first + i)] = t[2 * i];
        for (int64_t e = a->edge_at[r]; e < a->edge_at[r + 1]; e++)
            drop[a->edge[e]] = t[2 * a->row[e] + 1] - t[2 * a->column[e] + 1];
        for (int side = 0; side < 2; side++) {
            const int64_t half = a->kids[2 * r + side];
            if (half >= 0 && a->width[half]) top = MODE(push_half)(a, half, reference, t, top);
        }
    }
}

#if ROWS
/* Values, of `size` bytes each, of the nodes of a tile between the network and a place of its own, where
 * nodes that the tile lacks are 0. `position`: of the tile's lane. */
INLINE void copy_tile(const int64_t size, const struct direct_args *tile, const int32_t *position,
                      void *x, void *own, int back) {
    for (int64_t p = 0; p < tile->nodes; p++) {
        const int64_t at = position[p * LANES];
        char *const here = (char *)own + p * size, *const there = (char *)x + at * size;
        if (at >= 0)
            memcpy(back ? there : here, back ? here : there, (size_t)size);
        else if (!back)
            memset(here, 0, (size_t)size);
    }
}

/* `tiles_up` for m vectors of sources: these, not the tiles, fill vectors. */
INLINE void tiles_up_some(const int m, const struct direct_args *a, const struct item *item, wide *x,
                          wide *t, void *own) {
    for (int64_t i = 0; i < a->groups; i++) {
        const struct group group = group_at(a, item, i);
        for (int lane = 0; lane < group.item.width; lane++) {
            const int64_t size = m * (int64_t)sizeof(wide);
            copy_tile(size, &group.a, group.position + lane, x, own, 0);
            MODE(sweep_up)(m, LANES, &group.a, (const REAL *)group.shares + lane,
                           (const REAL *)group.inverse + lane, (const double *)group.over_sum + lane, own,
                           t);
            copy_tile(size, &group.a, group.position + lane, x, own, 1);
        }
    }
}

INLINE void tiles_down_some(const int m, const struct direct_args *a, const struct item *item, vec *x,
                            vec *t, void *own) {
    for (int64_t i = 0; i < a->groups; i++) {
        const struct group group = group_at(a, item, i);
        for (int lane = 0; lane < group.item.width; lane++) {
            const int64_t size = m * (int64_t)sizeof(vec);
            copy_tile(size, &group.a, group.position + lane, x, own, 0);
            MODE(sweep_down)(m, LANES, &group.a, (const REAL *)group.shares + lane, own, t);
            copy_tile(size, &group.a, group.position + lane, x, own, 1);
        }
    }
}

/* `tiles_down_drops` likewise. `given`: of a tile the reference, and u of its rim. */
APART void tiles_down_drops_some(const struct direct_args *a, const struct item *item, vec *x,
                                 const vec *given, vec *t, vec *drop, char *workspace) {
    const int64_t rim = rim_of(a);
    for (int64_t i = 0; i < a->groups; i++) {
        const struct group group = group_at(a, item, i);
        const struct direct_args *tile = &group.a;
        vec *const own = (vec *)workspace;
        vec *const found = (vec *)(workspace + 2 * values_bytes_lanes(tile));
        vec *const top = (vec *)((char *)found + edges_bytes_lanes(tile));
        for (int lane = 0; lane < group.item.width; lane++) {
            const int32_t *position = group.position + lane, *edge = group.edge + lane;
            const int64_t region = a->tile_region[group.first + lane];
            const int32_t *at = a->rim + a->boundary_at[region];
            const vec *of_rim = given + (group.first + lane) * (1 + rim);
            copy_tile(2 * (int64_t)sizeof(vec), tile, position, x, own, 0);
            memset(top, 0, (size_t)(1 + 2 * rim) * sizeof(vec));
            top[0] = of_rim[0];
            for (int64_t q = 0; q < a->width[region]; q++) {
                top[1 + 2 * at[q]] = own[2 * (group.inside + at[q])];
                top[2 + 2 * at[q]] = of_rim[1 + q];
            }
            MODE(sweep_down_drops)(
                LANES, tile, (const REAL *)group.shares + lane, (const REAL *)group.inverse + lane,
                (const REAL *)group.grounded + lane, own, t, top + 1 + 2 * rim, found, NULL);
            copy_tile(2 * (int64_t)sizeof(vec), tile, position, x, own, 1);
            for (int64_t e = 0; e < tile->edge_at[tile->regions]; e++)
                if (edge[e * LANES] >= 0) drop[edge[e * LANES]] = found[e];
        }
    }
}

INLINE vec piece(const REAL *at) { return *(const loose *)at; }

INLINE doubles piece_up(const REAL *at) { return __builtin_convertvector(*(const half *)at, doubles); }

/* One source for one network: vectors run along the fronts' rows, and beyond their ends, where `t` has
 * room; what they read there of shares is finite. */
static void forward_one(const REAL *shares, const double *over_sum, int64_t n, int64_t f, double *t) {
    enum { EACH = VECTOR_BYTES / 8 };
    int64_t k = 0;
    for (; k < n; k += 4) {
        const int pivots = (int)least(4, n - k);
        const REAL *h[4];
        doubles x[4];
        for (int i = 0; i < pivots; i++) {
            h[i] = shares + share_index(f, k + i, 0);
            const double own = HALVES > 1 ? t[k + i] * over_sum[k + i] : t[k + i];
            x[i] = own - (doubles){};
            for (int q = i + 1; q < pivots; q++) t[k + q] += (double)h[i][k + q] * own;
        }
        if (pivots < 4) {
            for (int i = 0; i < pivots; i++)
                for (int64_t q = k + pivots; q < f; q++) t[q] += (double)h[i][q] * x[i][0];
            return;
        }
        for (int64_t q = k + 4; q < f; q += EACH) {
            doubles sum = *(const loose_doubles *)(t + q);
            UNROLL for (int i = 0; i < 4; i++) sum += piece_up(h[i] + q) * x[i];
            *(loose_doubles *)(t + q) = sum;
        }
    }
}

static void backward_one(const REAL *shares, int64_t n, int64_t f, REAL *t) {
    int64_t k = n;
    *(loose *)(t + f) = (vec){};
    for (; k % 4; k--) {
        const REAL *h = shares + share_index(f, k - 1, 0);
        vec sum = {};
        for (int64_t q = k; q < f; q += LANES) sum += piece(h + q) * piece(t + q);
        t[k - 1] += sum_of(sum);
    }
    for (k -= 4; k >= 0; k -= 4) {
        const REAL *h[4];
        vec sum[4] = {};
        for (int i = 0; i < 4; i++) h[i] = shares + share_index(f, k + i, 0);
        for (int64_t q = k + 4; q < f; q += LANES) {
            const vec x = piece(t + q);
            UNROLL for (int i = 0; i < 4; i++) sum[i] += piece(h[i] + q) * x;
        }
        for (int i = 3; i >= 0; i--) {
            REAL all = sum_of(sum[i]);
            for (int j = i + 1; j < 4; j++) all += h[i][k + j] * t[k + j];
            t[k + i] += all;
        }
    }
}

/* `count` sources in turn, so that a front's shares are read from memory once. */
static void sweep_up_one(const struct direct_args *a, const REAL *shares, const REAL *inverse,
                         const double *over_sum, int count, double *x, double *t) {
    for (int64_t r = 0; r < a->regions; r++) {
        const int64_t n = a->pivots[r], width = a->width[r], first = a->first[r];
        const int32_t *boundary = a->boundary + a->boundary_at[r];
        for (int j = 0; n && j < count; j++) {
            double *own = x + j * a->nodes;
            MODE(gather)(sizeof(double), a, r, own, t);
            forward_one(shares + a->share_at[r], over_sum + first, n, n + width, t);
            for (int64_t i = 0; i < n; i++) own[first + i] = t[i] * (double)inverse[first + i];
            for (int64_t q = 0; q < width; q++) own[boundary[q]] = t[n + q];
        }
    }
}

static void sweep_down_one(const struct direct_args *a, const REAL *shares, REAL *x, REAL *t) {
    for (int64_t r = a->regions - 1; r >= 0; r--) {
        const int64_t n = a->pivots[r];
        if (!n) continue;
        MODE(gather)(sizeof(REAL), a, r, x, t);
        backward_one(shares + a->share_at[r], n, n + a->width[r], t);
        memcpy(x + a->first[r], t, (size_t)n * sizeof(REAL));
    }
}

/* `take_level` and `sweep_down_drops` for one source; `x`: of v, then of u. */
static void take_level_one(const struct direct_args *a, const REAL *leak, const REAL *inverse,
                           double *x) {
    double current = 0, ground = 0;
    for (int64_t p = 0; p < a->nodes; p++) {
        if (inverse[p] > 0) current += x[p];
        ground += (double)leak[p];
    }
    const double level = ground > 0 ? current / ground : 0;
    for (int64_t p = 0; p < a->nodes; p++) x[a->nodes + p] = x[p] - (double)leak[p] * level;
}

static void sweep_down_drops_one(const struct direct_args *a, const REAL *shares, const REAL *inverse,
                                 const REAL *grounded, const REAL *x, REAL *t, REAL *top, REAL *drop,
                                 REAL *tiles) {
    int64_t last = a->nodes - 1;
    while (last > 0 && !(inverse[last] > 0)) last--;
    for (int64_t r = a->regions - 1; r >= 0; r--) {
        const int64_t n = a->pivots[r], width = a->width[r], first = a->first[r];
        REAL reference = x[last];
        if (width) {
            top -= width + 1;
            reference = top[0];
            memcpy(t + n, top + 1, (size_t)width * sizeof(REAL));
        }
        if (!n) {
            tiles -= 1 + rim_of(a);
            memcpy(tiles, top, (size_t)(1 + width) * sizeof(REAL));
            continue;
        }
        for (int64_t i = 0; i < n; i++) t[i] = x[first + i] - grounded[first + i] * reference;
        backward_one(shares + a->share_at[r], n, n + width, t);
        for (int64_t e = a->edge_at[r]; e < a->edge_at[r + 1]; e++)
            drop[a->edge[e]] = t[a->row[e]] - t[a->column[e]];
        for (int side = 0; side < 2; side++) {
            const int64_t half = a->kids[2 * r + side];
            if (half < 0 || !a->width[half]) continue;
            const int32_t *place = a->place + a->boundary_at[half];
            const REAL change = t[place[0]];
            *top++ = reference + change;
            for (int64_t i = 0; i < a->width[half]; i++) *top++ = t[place[i]] - change;
        }
    }
}

static void solve_one(const struct direct_args *a, const struct item *item, int64_t source, REAL factor,
                      REAL wrong, char *workspace) {
    const int64_t nodes = a->nodes;
    const REAL *shares = (const REAL *)a->shares + item->slot * a->item_shares;
    const REAL *inverse = (const REAL *)a->inverse + item->slot * nodes;
    const REAL *leak = (const REAL *)a->own_leak + item->slot * nodes;
    const REAL *grounded = (const REAL *)a->grounded + item->slot * nodes;
    const double *over_sum = (const double *)a->over_sum + item->slot * nodes;
    const int64_t offset = item->of[0] + source * nodes * a->channels;
    const int64_t edges = item->edges_of[0] + source * a->entries * a->channels;
    const REAL *from = (const REAL *)a->source + offset;
    const int columns = a->drop[0] ? 2 : 1;
    double *const up = (double *)workspace, *const front = up + columns * nodes;
    double *const column[2] = {up, up + nodes};
    REAL *to = (REAL *)a->potential + offset, *x = (REAL *)up, *t = (REAL *)front;
    REAL *drop = (REAL *)(front + a->largest_front + PAD);
    REAL *const waiting = (REAL *)((char *)drop + MODE(edges_bytes)(a));
    char *const end = workspace + MODE(solve_bytes)(a);
    char *const tiles = end - tiles_solve_bytes(a);
    REAL *const left = (REAL *)(end - MODE(tiles_solve_bytes)(a));
    char *const behind = (char *)left - MODE(sums_bytes)(a);
    double *const scratch = (double *)behind;
    INTEGER *label = (INTEGER *)(behind - MODE(values_bytes)(a));
    REAL *const limit = (REAL *)(behind - 2 * MODE(values_bytes)(a)), *const size = limit;
    label = a->drop[0] ? MODE(parts)(a, item, shares, inverse, grounded, label) : NULL;
    for (int64_t p = 0; p < nodes; p++) {
        REAL s = from[a->node[p] * a->channels];
        wrong += s - s;
        up[p] = (double)(a->call == DIRECT_SAMPLE ? s * (REAL)sqrt(inverse[p]) : s);
    }
    if (label)
        take_levels(a, leak, label, 1, up, up + nodes, 1, limit, 1, scratch);
    else if (a->drop[0])
        take_level_one(a, leak, inverse, up);
    if (a->call != DIRECT_SAMPLE) {
        tiles_up(a, item, column, columns, tiles);
        sweep_up_one(a, shares, inverse, over_sum, columns, up, front);
    }
    narrow(up, columns * nodes);
    if (a->drop[0]) {
        for (int64_t p = 0; label && p < nodes; p++) /* see `without_rounding` */
            if (x[nodes + p] <= limit[p] && x[nodes + p] >= -limit[p]) x[nodes + p] = 0;
        if (label) { /* see `solve_vector` */
            memcpy(drop, x + nodes, (size_t)nodes * sizeof(REAL));
            sweep_down_one(a, shares, drop, t);
            tiles_down(a, item, drop, tiles);
            part_sizes(a, label, 1, drop, 1, size, 1);
            for (int64_t p = 0; p < nodes; p++) x[nodes + p] /= size[p];
        }
        memset(drop, 0, (size_t)(a->axes * a->entries) * sizeof(REAL));
        sweep_down_drops_one(a, shares, inverse, grounded, x + nodes, t, waiting, drop,
                             left + tiles_wait(a));
    }
    sweep_down_one(a, shares, x, t);
    if (a->drop[0]) {
        tiles_down_drops(a, item, x, x + nodes, left, drop, tiles);
        for (const struct direct_run *run = a->runs; label && run < a->runs + a->num_runs; run++)
            for (int64_t i = 0; i < run->count; i++)
                drop[run->axis * a->entries + run->entry + i] *= size[a->position[run->node + i]];
        for (int64_t e = 0; e < a->axes * a->entries; e++) drop[e] = drop[e] * factor + wrong;
        REAL *const v = x + nodes;
        for (int64_t p = 0; p < nodes; p++) v[a->node[p]] = x[p] * factor + wrong;
        judge_drops(a, 1, v, drop);
        for (int axis = 0; axis < a->axes; axis++, drop += a->entries)
            for (int64_t e = 0; e < a->entries; e++)
                ((REAL *)a->drop[axis])[edges + e * a->channels] = drop[e];
    } else
        tiles_down(a, item, x, tiles);
    for (int64_t p = 0; p < nodes; p++) to[a->node[p] * a->channels] = x[p] * factor + wrong;
}

/* Residuals of sources one by one, from `source` and `potential`. */
static void residuals_of(const struct direct_args *a, const struct item *item, int64_t source,
                         int64_t last, char *workspace) {
    const REAL *inverse = (const REAL *)a->inverse + item->slot * a->nodes;
    REAL *r = (REAL *)workspace, *v = r + a->nodes, *z = v + a->nodes;
    for (; source < last; source++) {
        const int64_t offset = item->of[0] + source * a->nodes * a->channels;
        for (int64_t p = 0; p < a->nodes; p++) {
            r[p] = ((const REAL *)a->source)[offset + p * a->channels];
            v[p] = ((const REAL *)a->potential)[offset + p * a->channels];
        }
        const int64_t batch = item->index / a->channels, channel = item->index % a->channels;
        residuals(a, item, 1, inverse, r, v, z,
                  a->residual + (batch * a->sources + source) * a->channels + channel);
    }
}
#endif

/* Solves for one vector of sources, with drops or without. */
INLINE void MODE(solve_vector)(const int drops, const struct direct_args *a, const struct item *item,
                               int64_t source, vec factor, vec wrong, char *workspace) {
    const int swept = 1 + drops, width = ROWS ? (int)least(LANES, a->sources - source) : item->width;
    const int64_t nodes = a->nodes, bytes = MODE(values_bytes)(a);
    const element *shares = (const element *)a->shares + item->slot * a->item_shares;
    const element *inverse = (const element *)a->inverse + item->slot * nodes;
    const element *grounded = (const element *)a->grounded + item->slot * nodes;
    const portion *over_sum = (const portion *)a->over_sum + item->slot * nodes;
    /* Sources and potentials in the order of nodes. Potentials lie where doubles were. */
    vec *const s = (vec *)workspace, *const v = (vec *)(workspace + (1 + swept) * bytes);
    wide *const up = (wide *)(workspace + bytes);
    wide *const up_front =
        (wide *)(HALVES > 1 ? workspace + (1 + HALVES * swept) * bytes : (char *)v + bytes);
    vec *x = (vec *)up, *t = (vec *)up_front, bad = wrong;
    int64_t at[LANES], edges[LANES];
    for (int lane = 0; lane < LANES; lane++) {
        const int64_t network = ROWS ? 0 : lane, own = source + (ROWS ? lane : 0);
        at[lane] = item->of[network] + own * nodes * a->channels;
        edges[lane] = item->edges_of[network] + own * a->entries * a->channels;
    }
    pack(a->source, at, width, a->channels, nodes, s);
    for (int64_t p = 0; p < nodes; p++) {
        vec value = s[a->node[p]];
        bad += value - value;
        if (a->call == DIRECT_SAMPLE) {
            const vec i = WIDEN(inverse[p]);
            for (int lane = 0; lane < LANES; lane++) value[lane] *= (REAL)sqrt(i[lane]);
        }
        up[p * swept] = widen(&value);
    }
    vec *const drop = (vec *)((char *)up_front + swept * MODE(front_values_bytes)(a));
#if ROWS
    char *const end = workspace + MODE(solve_bytes)(a);
    char *const tiles = end - tiles_solve_bytes(a);
    vec *const left = (vec *)(end - MODE(tiles_solve_bytes)(a)) + tiles_wait(a);
#else
    vec *const left = NULL;
#endif
    if (drops) {
        const element *leak = (const element *)a->own_leak + item->slot * nodes;
        char *const behind = (char *)drop + MODE(edges_bytes)(a);
        vec *const size = (vec *)(behind + bytes); /* first what `take_levels` finds */
        double *const scratch = (double *)(size + nodes);
        INTEGER *const label = MODE(parts)(a, item, shares, inverse, grounded, (INTEGER *)behind);
        if (label) {
            for (int lane = 0; lane < LANES; lane++)
                take_levels(a, (const REAL *)leak + (ROWS ? 0 : lane), label + (ROWS ? 0 : lane),
                            ROWS ? 1 : LANES, (const double *)up + lane, (double *)(up + 1) + lane,
                            2 * LANES, (REAL *)size + lane, LANES, scratch);
        } else
            MODE(take_level)(a, leak, inverse, up);
#if ROWS
        tiles_up_some(2, a, item, up, up_front, tiles);
#endif
        MODE(sweep_up)(2, 1, a, shares, inverse, over_sum, up, up_front);
        narrow((double *)up, 2 * nodes * LANES);
        if (label) {
            /* References may be nodes of other parts: the largest u of each part becomes about 1, so that
             * drops are right to the rounding of it at worst. */
            for (int64_t p = 0; p < nodes; p++)
                drop[p] = x[2 * p + 1] = MODE(without_rounding)(x[2 * p + 1], size[p]);
            MODE(sweep_down)(1, 1, a, shares, drop, t);
#if ROWS
            tiles_down_some(1, a, item, drop, t, tiles);
#endif
            for (int lane = 0; lane < LANES; lane++)
                part_sizes(a, label + (ROWS ? 0 : lane), ROWS ? 1 : LANES, (const REAL *)drop + lane,
                           LANES, (REAL *)size + lane, LANES);
            for (int64_t p = 0; p < nodes; p++) x[2 * p + 1] /= size[p];
        }
        MODE(sweep_down_drops)(1, a, shares, inverse, grounded, x, t,
                               (vec *)((char *)scratch + MODE(sums_bytes)(a)), drop, left);
#if ROWS
        tiles_down_drops_some(a, item, x, left - tiles_wait(a), t, drop, tiles);
#endif
        for (const struct direct_run *run = a->runs; label && run < a->runs + a->num_runs; run++)
            for (int64_t i = 0; i < run->count; i++)
                drop[run->axis * a->entries + run->entry + i] *= size[a->position[run->node + i]];
        for (int64_t e = 0; e < a->axes * a->entries; e++) drop[e] = drop[e] * factor + bad;
    } else {
        if (a->call != DIRECT_SAMPLE) {
#if ROWS
            tiles_up_some(1, a, item, up, up_front, tiles);
#endif
            MODE(sweep_up)(1, 1, a, shares, inverse, over_sum, up, up_front);
        }
        narrow((double *)up, nodes * LANES);
        MODE(sweep_down)(1, 1, a, shares, x, t);
#if ROWS
        tiles_down_some(1, a, item, x, t, tiles);
#endif
    }
    for (int64_t p = 0; p < nodes; p++) v[a->node[p]] = x[p * swept] * factor + bad;
    unpack(v, at, width, a->channels, nodes, a->potential);
    if (drops) {
        judge_drops(a, LANES, (const REAL *)v, (REAL *)drop);
        for (int axis = 0; axis < a->axes; axis++)
            unpack(drop + axis * a->entries, edges, width, a->channels, a->entries, a->drop[axis]);
    }
#if !ROWS
    if (!a->residual) return;
    double residual[LANES];
    residuals(a, item, LANES, (const REAL *)inverse, (REAL *)s, (const REAL *)v, (REAL *)x, residual);
    for (int lane = 0; lane < item->width; lane++) {
        const int64_t network = item->index * LANES + lane;
        const int64_t batch = network / a->channels, channel = network % a->channels;
        a->residual[(batch * a->sources + source) * a->channels + channel] = residual[lane];
    }
#endif
}

#define SOLVE(name, drops)                                                                      \
    APART void MODE(name)(const struct direct_args *a, const struct item *item, int64_t source, \
                          vec factor, vec wrong, char *workspace) {                             \
        MODE(solve_vector)(drops, a, item, source, factor, wrong, workspace);                   \
    }
SOLVE(solve_plain, 0)
SOLVE(solve_drops, 1)
#undef SOLVE

/* Effective resistances of a vector of pairs: what a unit current from one node to the other
 * dissipates, the sum over all pivots of t^2 / pivot, t being what forward substitution brings to each.
 * Nothing is subtracted from anything. */
APART void MODE(solve_pairs)(const struct direct_args *a, const struct item *item, int64_t source,
                             vec factor, vec wrong, char *workspace) {
    const element *shares = (const element *)a->shares + item->slot * a->item_shares;
    const element *inverse = (const element *)a->inverse + item->slot * a->nodes;
    const int64_t *pair = (const int64_t *)a->source;
    const portion *over_sum = (const portion *)a->over_sum + item->slot * a->nodes;
    wide *x = (wide *)workspace, *t = (wide *)(workspace + HALVES * MODE(values_bytes)(a));
    const int width = ROWS ? (int)least(LANES, a->sources - source) : item->width;
    memset(x, 0, (size_t)a->nodes * sizeof(wide));
    for (int lane = 0; lane < width; lane++) {
        const int64_t at = source + (ROWS ? lane : 0);
        ((double *)(x + pair[2 * at]))[lane] += 1;
        ((double *)(x + pair[2 * at + 1]))[lane] -= 1;
    }
#if ROWS
    tiles_up_some(1, a, item, x, t, workspace + MODE(solve_bytes)(a) - tiles_solve_bytes(a));
#endif
    MODE(sweep_up)(1, 1, a, shares, inverse, over_sum, x, t);
    wide found = {};
    for (int64_t p = 0; p < a->nodes; p++) {
        /* Where there is none, x is 0. */
        const vec i = either(WIDEN(inverse[p]), WIDEN(inverse[p]), splat(1));
        const wide pivot = widen(&i);
        UNROLL for (int k = 0; k < HALVES; k++) found.part[k] +=
            x[p].part[k] * x[p].part[k] / pivot.part[k];
    }
    for (int lane = 0; lane < width; lane++) {
        const int64_t network = ROWS ? item->index : item->index * LANES + lane;
        const int64_t batch = network / a->channels, channel = network % a->channels;
        const int64_t at = source + (ROWS ? lane : 0);
        ((REAL *)a->potential)[(batch * a->sources + at) * a->channels + channel] =
            (REAL)((const double *)&found)[lane] * factor[lane] + wrong[lane];
    }
}

/* Sources that one thread solves for together. */
static int64_t MODE(chunk_of)(const struct direct_args *a) {
    (void)a;
    return ROWS ? LANES : 1;
}

/* Sources from `source` to `last`. */
static void MODE(solve_item)(const struct direct_args *a, const struct item *item, int64_t source,
                             int64_t last, char *workspace) {
    vec factor = {}, wrong = {};
    for (int lane = 0; lane < LANES; lane++) {
        const int64_t network = item->index * (ROWS ? 1 : LANES) + (lane < item->width ? lane : 0);
        const REAL scale = ((const REAL *)a->scale)[network];
        factor[lane] = a->call == DIRECT_SAMPLE ? (REAL)sqrt(scale) : scale;
        wrong[lane] = a->status[network] == DIRECT_NOT_FINITE ? (REAL)NAN : 0;
    }
#if ROWS
    const int64_t first = source;
    for (; a->call != DIRECT_PAIRS && last - source < 3 && source < last; source++)
        solve_one(a, item, source, factor[0], wrong[0], workspace); /* see `value_bytes` */
#endif
    for (; source < last; source += MODE(chunk_of)(a)) {
        if (a->call == DIRECT_PAIRS)
            MODE(solve_pairs)(a, item, source, factor, wrong, workspace);
        else if (a->drop[0])
            MODE(solve_drops)(a, item, source, factor, wrong, workspace);
        else
            MODE(solve_plain)(a, item, source, factor, wrong, workspace);
    }
#if ROWS
    if (a->residual) residuals_of(a, item, first, last, workspace);
#endif
}
