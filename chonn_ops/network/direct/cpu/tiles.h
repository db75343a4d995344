/* Tiles of one network, see tiles.py: a group of them fills the lanes of vectors, as a group of
 * networks does elsewhere. What follows sets up a call for a group, runs what there is for networks,
 * and moves values between lanes and the network. */

/* A group of tiles: the arguments for lanes, and where its nodes and edges are in the network. */
struct group {
    struct direct_args a;
    struct item item;
    int64_t first;  /* of its tiles */
    int64_t inside; /* nodes that are not of the rim; those of the rim follow */
    const int32_t *position, *edge;
    vec *shares, *inverse, *grounded;
    wide *over_sum;
};

static struct group group_at(const struct direct_args *a, const struct item *item, int64_t index) {
    struct group group = {.a = *a->tile, .first = a->group_first[index]};
    struct direct_args *tile = &group.a;
    group.item.width = (int)(a->group_first[index + 1] - group.first);
    group.inside = tile->nodes - tile->width[tile->regions - 1];
    group.position = a->tile_position + index * tile->nodes * LANES;
    group.edge = a->tile_edge + index * tile->edge_at[tile->regions] * LANES;
    REAL *const groups = (REAL *)a->shares + item->slot * a->item_shares + a->group_at;
    group.shares = (vec *)groups + index * a->group_size;
    group.inverse = group.shares + tile->item_shares;
    group.grounded = group.inverse + tile->nodes;
    group.over_sum = (wide *)(group.grounded + tile->nodes);
    tile->shares = group.shares, tile->inverse = group.inverse, tile->grounded = group.grounded;
    tile->over_sum = group.over_sum;
    return group;
}

/* Values of the lanes' tiles, 0 where there is none. */
INLINE vec collect(const REAL *x, const int32_t *at) {
    vec value = {};
    UNROLL for (int lane = 0; lane < LANES; lane++) value[lane] = at[lane] < 0 ? 0 : x[at[lane]];
    return value;
}

INLINE void spread(REAL *x, const int32_t *at, vec value) {
    UNROLL for (int lane = 0; lane < LANES; lane++) if (at[lane] >= 0) x[at[lane]] = value[lane];
}

/* Likewise of what is carried up: its lanes begin at `value`. */
INLINE void collect_up(const double *x, const int32_t *at, double *value) {
    UNROLL for (int lane = 0; lane < LANES; lane++) value[lane] = at[lane] < 0 ? 0 : x[at[lane]];
}

INLINE void spread_up(double *x, const int32_t *at, const double *value) {
    UNROLL for (int lane = 0; lane < LANES; lane++) if (at[lane] >= 0) x[at[lane]] = value[lane];
}

/* Two tiles may have the same node in their rims. */
INLINE void spread_more(double *x, const int32_t *at, const double *value) {
    UNROLL for (int lane = 0; lane < LANES; lane++) if (at[lane] >= 0) x[at[lane]] += value[lane];
}

static int64_t tile_update(const struct direct_args *a) {
    return aligned((update_row(rim_of(a), rim_of(a)) + PAD) * (int64_t)sizeof(REAL));
}

/* What the elimination of groups takes, a thread's; their entries of the inverse take a part of it. */
static int64_t tiles_bytes(const struct direct_args *a) {
    const struct direct_args *tile = a->tile;
    if (!tile) return 0;
    return front_bytes_lanes(tile) + waiting_bytes_lanes(tile) + values_bytes_lanes(tile) +
           edges_bytes_lanes(tile) + 2 * LANES * tile_update(a);
}

/* The update of one lane for the boundary of its region. */
static void hand_over(const struct direct_args *a, int64_t r, const vec *update, int lane, REAL *to) {
    const int64_t width = a->width[r], rim = rim_of(a);
    const int32_t *at = a->rim + a->boundary_at[r];
    const REAL *from = (const REAL *)update + lane;
    int64_t row[rim];
    for (int64_t i = 0; i < rim; i++) row[i] = update_row(rim, i) - i - 1;
    for (int64_t i = 0; i < width; i++) {
        const int64_t p = at[i];
        for (int64_t j = i + 1; j < width; j++) {
            const int64_t q = at[j];
            *to++ = from[(p < q ? row[p] + q : row[q] + p) * LANES];
        }
        *to++ = from[(row[p] + rim) * LANES];
    }
}

/* Eliminates the group; `held`: of its tiles' regions. Updates of the group before it may still wait. */
APART void eliminate_group(const struct direct_args *a, const struct item *item, int64_t index,
                           REAL scale, REAL **held, char *workspace) {
    struct group group = group_at(a, item, index);
    struct direct_args *tile = &group.a;
    const int64_t bytes = values_bytes_lanes(tile), edges = tile->edge_at[tile->regions];
    const REAL *leak = (const REAL *)a->own_leak + item->slot * a->nodes;
    vec *const front = (vec *)workspace;
    workspace += front_bytes_lanes(tile);
    struct waiting_lanes w = {.held = (vec **)workspace};
    w.base = w.top = (vec *)(workspace + aligned(tile->regions * (int64_t)sizeof(void *)));
    vec *const own_leak = (vec *)(workspace + waiting_bytes_lanes(tile));
    vec *const field = (vec *)((char *)own_leak + bytes);
    char *const updates = (char *)field + edges_bytes_lanes(tile) + index % 2 * LANES * tile_update(a);
    for (int64_t p = 0; p < group.inside; p++) own_leak[p] = collect(leak, group.position + p * LANES);
    for (int64_t e = 0; e < edges; e++) {
        const int32_t *at = group.edge + e * LANES;
        vec value = {};
        UNROLL for (int lane = 0; lane < LANES; lane++) {
            const int axis = axis_of(a, at[lane]);
            if (at[lane] >= 0) value[lane] = item->field[1 + axis][at[lane] - axis * a->entries];
        }
        field[e] = value;
    }
    group.item.field[1] = (REAL *)field;
    tile->own_leak = own_leak;
    memset(group.shares + tile->num_shares, 0, PAD * sizeof(vec));
    memset(group.inverse + group.inside, 0, (size_t)(tile->nodes - group.inside) * sizeof(vec));
    for (int64_t r = 0; r < tile->regions; r++)
        eliminate_lanes(tile, &group.item, r, front, &w, splat(scale), 1);
    REAL *inverse = (REAL *)a->inverse + item->slot * a->nodes;
    REAL *grounded = (REAL *)a->grounded + item->slot * a->nodes;
    for (int64_t p = 0; p < group.inside; p++) {
        spread(inverse, group.position + p * LANES, group.inverse[p]);
        spread(grounded, group.position + p * LANES, group.grounded[p]);
    }
    for (int lane = 0; lane < group.item.width; lane++) {
        const int64_t r = a->tile_region[group.first + lane];
        held[r] = (REAL *)(updates + lane * tile_update(a));
        hand_over(a, r, w.held[tile->regions - 1], lane, held[r]);
    }
}

/* Threads that share the groups of one network: those that the elimination has just left. Beside
 * PyTorch's, threads that are woken took longer than they saved: 7 ms for 1.4 with 256 x 256. */
INLINE int sharing(const struct direct_args *a) {
    return a->parts && a->call == DIRECT_FACTORIZE ? a->threads : 1;
}

/* What solving takes of one group, whose nodes have two values that are carried up at most. */
static int64_t group_bytes(const struct direct_args *a) {
    const struct direct_args *tile = a->tile;
    return 2 * HALVES * values_bytes_lanes(tile) + edges_bytes_lanes(tile) +
           2 * front_values_bytes_lanes(tile) +
           aligned((3 * tile->waiting + 1 + 2 * rim_of(a)) * (int64_t)sizeof(vec));
}

static int64_t tiles_solve_bytes(const struct direct_args *a) {
    return a->tile ? sharing(a) * group_bytes(a) : 0;
}

/* Forward substitution of the tiles for a source, and for what `take_level` adds where `columns` is 2. */
static void tiles_up(const struct direct_args *a, const struct item *item, double *const *column,
                     int columns, char *workspace) {
    const int threads = sharing(a);
    const int64_t rim = rim_of(a);
    /* Rims in turn, so that sums do not depend on threads. */
#pragma omp parallel for ordered schedule(static, 1) num_threads(threads) if (threads > 1)
    for (int64_t i = 0; i < a->groups; i++) {
        const struct group group = group_at(a, item, i);
        const struct direct_args *tile = &group.a;
        wide *x = (wide *)(workspace + thread_number() * group_bytes(a));
        wide *t = (wide *)((char *)x + HALVES * values_bytes_lanes(tile));
        wide *const rims = (wide *)((char *)t + front_values_bytes_lanes(tile));
        for (int c = 0; c < columns; c++) {
            for (int64_t p = 0; p < group.inside; p++)
                collect_up(column[c], group.position + p * LANES, (double *)(x + p));
            memset(x + group.inside, 0, (size_t)rim * sizeof(wide));
            sweep_up_lanes(1, 1, tile, group.shares, group.inverse, group.over_sum, x, t);
            for (int64_t p = 0; p < group.inside; p++)
                spread_up(column[c], group.position + p * LANES, (const double *)(x + p));
            memcpy(rims + c * rim, x + group.inside, (size_t)rim * sizeof(wide));
        }
#pragma omp ordered
        for (int c = 0; c < columns; c++)
            for (int64_t p = 0; p < rim; p++)
                spread_more(column[c], group.position + (group.inside + p) * LANES,
                            (const double *)(rims + c * rim + p));
    }
}

static void tiles_down(const struct direct_args *a, const struct item *item, REAL *all, char *workspace) {
    const int threads = sharing(a);
#pragma omp parallel for schedule(static, 1) num_threads(threads) if (threads > 1)
    for (int64_t i = 0; i < a->groups; i++) {
        const struct group group = group_at(a, item, i);
        const struct direct_args *tile = &group.a;
        vec *x = (vec *)(workspace + thread_number() * group_bytes(a));
        vec *t = (vec *)((char *)x + values_bytes_lanes(tile));
        for (int64_t p = 0; p < tile->nodes; p++) x[p] = collect(all, group.position + p * LANES);
        sweep_down_lanes(1, 1, tile, group.shares, x, t);
        for (int64_t p = 0; p < group.inside; p++) spread(all, group.position + p * LANES, x[p]);
    }
}

/* Numbers that `sweep_down_drops` leaves for the tiles, per source: of each the reference, and u of its
 * rim relative to it. */
static int64_t tiles_wait(const struct direct_args *a) {
    return a->groups ? a->group_first[a->groups] * (1 + rim_of(a)) : 0;
}

/* `sweep_down_drops` of the tiles, for one source's v and u. `given`: see above. `drop`: by axis and
 * entry. */
static void tiles_down_drops(const struct direct_args *a, const struct item *item, REAL *v, const REAL *u,
                             const REAL *given, REAL *drop, char *workspace) {
    const int64_t rim = rim_of(a);
    const int threads = sharing(a);
#pragma omp parallel for schedule(static, 1) num_threads(threads) if (threads > 1)
    for (int64_t i = 0; i < a->groups; i++) {
        const struct group group = group_at(a, item, i);
        const struct direct_args *tile = &group.a;
        const int64_t bytes = values_bytes_lanes(tile), edges = tile->edge_at[tile->regions];
        vec *const x = (vec *)(workspace + thread_number() * group_bytes(a));
        vec *const found = (vec *)((char *)x + 2 * bytes);
        vec *const t = (vec *)((char *)found + edges_bytes_lanes(tile));
        vec *const top = (vec *)((char *)t + 2 * front_values_bytes_lanes(tile));
        for (int64_t p = 0; p < group.inside; p++) {
            x[2 * p] = collect(v, group.position + p * LANES);
            x[2 * p + 1] = collect(u, group.position + p * LANES);
        }
        memset(x + 2 * group.inside, 0, (size_t)(2 * rim) * sizeof(vec));
        memset(top, 0, (size_t)(1 + 2 * rim) * sizeof(vec));
        for (int lane = 0; lane < group.item.width; lane++) {
            const REAL *from = given + (group.first + lane) * (1 + rim);
            const int64_t r = a->tile_region[group.first + lane];
            const int32_t *at = a->rim + a->boundary_at[r];
            top[0][lane] = from[0];
            for (int64_t q = 0; q < a->width[r]; q++) top[2 + 2 * at[q]][lane] = from[1 + q];
        }
        for (int64_t q = 0; q < rim; q++)
            top[1 + 2 * q] = collect(v, group.position + (group.inside + q) * LANES);
        sweep_down_drops_lanes(1, tile, group.shares, group.inverse, group.grounded, x, t,
                               top + 1 + 2 * rim, found, NULL);
        for (int64_t p = 0; p < group.inside; p++) spread(v, group.position + p * LANES, x[2 * p]);
        for (int64_t e = 0; e < edges; e++) spread(drop, group.edge + e * LANES, found[e]);
    }
}

/* `find_parts` of the tiles, when that of the other regions is done. */
static void parts_of_tiles(const struct direct_args *a, const struct item *item, INTEGER *label) {
    for (int64_t i = 0; i < a->groups; i++) {
        const struct group group = group_at(a, item, i);
        const int64_t nodes = group.a.nodes;
        INTEGER own[nodes * LANES];
        for (int lane = 0; lane < group.item.width; lane++) {
            const int32_t *position = group.position + lane;
            /* Labels of the rim are above those of the tile. */
            for (int64_t p = group.inside; p < nodes; p++) {
                const INTEGER at = position[p * LANES];
                own[p * LANES + lane] = at < 0 || label[at] < 0 ? -1 : label[at] + (INTEGER)nodes;
            }
            find_parts(&group.a, (const REAL *)group.shares + lane, (const REAL *)group.inverse + lane,
                       (const REAL *)group.grounded + lane, LANES, own + lane);
            for (int64_t p = 0; p < group.inside; p++) {
                const INTEGER found = own[p * LANES + lane];
                if (position[p * LANES] < 0) continue;
                label[position[p * LANES]] = found < 0       ? -1
                                             : found < nodes ? position[found * LANES]
                                                             : found - (INTEGER)nodes;
            }
        }
    }
}

/* Takes what is given of a tile's boundary; the last of a group to come is the first of it, and then the
 * group's entries are found. The lane that counts of `scale` is the first. */
static void invert_tile(const struct direct_args *a, const struct item *item, int64_t index, int64_t r,
                        const REAL *given, vec scale, char *workspace) {
    struct group group = group_at(a, item, index);
    struct direct_args *tile = &group.a;
    const int64_t rim = rim_of(a), bytes = values_bytes_lanes(tile), count = group.item.width;
    vec *const front = (vec *)workspace;
    vec *const top = (vec *)(workspace + front_bytes_lanes(tile));
    vec *const diagonal = (vec *)((char *)top + waiting_bytes_lanes(tile));
    vec *const entry = (vec *)((char *)diagonal + bytes);
    const int32_t *at = a->rim + a->boundary_at[r];
    int64_t lane = 0;
    while (a->tile_region[group.first + lane] != r) lane++;
    if (lane == count - 1) memset(top, 0, (size_t)(rim * (rim + 1) / 2) * sizeof(vec));
    for (int64_t i = 0; i < a->width[r]; i++)
        for (int64_t j = i; j < a->width[r]; j++) {
            const int64_t p = least(at[i], at[j]), q = at[i] + at[j] - p;
            top[update_row(rim, p) + q - p][lane] = *given++;
        }
    if (lane) return;
    for (int i = 0; i < LANES; i++) group.item.at[i] = group.item.edges_at[i] = i;
    tile->channels = LANES, tile->diagonal = diagonal;
    tile->entry[0] = a->entry[0] ? entry : NULL;
    invert_regions_lanes(tile, &group.item, group.shares, group.inverse, splat(scale[0]), front,
                         top + rim * (rim + 1) / 2, NULL);
    for (int i = 0; i < count; i++) {
        for (int64_t p = 0; p < group.inside; p++) {
            const int32_t position = group.position[p * LANES + i];
            if (position >= 0)
                ((REAL *)a->diagonal)[item->at[0] + a->node[position] * a->channels] = diagonal[p][i];
        }
        for (int64_t e = 0; a->entry[0] && e < tile->edge_at[tile->regions]; e++) {
            const int32_t edge = group.edge[e * LANES + i];
            const int axis = axis_of(a, edge);
            if (edge >= 0)
                ((REAL *)a->entry[axis])[item->edges_at[0] + (edge - axis * a->entries) * a->channels] =
                    entry[e][i];
        }
    }
}
