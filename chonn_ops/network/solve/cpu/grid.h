/* The nodes of one level: a box with a margin of one node on either side of every axis that has more
 * than one node. In the margin conductances and potentials are zero, but where the other side of the
 * box is behind it. So no sweep asks where an edge ends.
 *
 * A vector holds a node of as many networks as it has lanes, or nodes of one network: then the first
 * axis is cut into `slabs`, a power of two, and each lane holds a slab. The plane behind the last one
 * of a slab is the first one of the next lane. */

enum {
    AXES = 3,
    LEVELS_MAX = 48,
    CHUNK = 8, /* rows, or planes where these have one row, that a thread sweeps at once */
};

struct grid {
    int slabs;                   /* 0: lanes are networks */
    int64_t n[AXES], nodes;      /* of a lane; of a network */
    int64_t stride[AXES], first, all;
    int periodic[AXES], halved[AXES]; /* halved: on the way to the next coarser level */
    int split; /* slabs of two planes: lanes are halved, and each slab becomes a plane */
};

static void lay_out(struct grid *grid) {
    grid->stride[2] = 1;
    grid->stride[1] = grid->n[2] + 2;
    grid->stride[0] = grid->stride[1] * (grid->n[1] > 1 ? grid->n[1] + 2 : 1);
    grid->first = grid->stride[0] + (grid->n[1] > 1 ? grid->stride[1] : 0) + 1;
    grid->all = grid->stride[0] * (grid->n[0] + 2);
    grid->nodes = grid->n[0] * grid->n[1] * grid->n[2] * (grid->slabs ? grid->slabs : 1);
}

static inline int64_t length(const struct grid *grid, int axis) {
    return grid->n[axis] * (axis == 0 && grid->slabs ? grid->slabs : 1);
}

/* Halve the axes whose conductances are not far below the strongest ones: along weak ones a sweep
 * smooths too little to go without the nodes between. 0 where no axis is left. */
static int choose_halved(struct grid *grid, double *strength) {
    double strongest = 0;
    int count = 0;
    for (int axis = 0; axis < AXES; axis++)
        if (length(grid, axis) > 1 && strength[axis] > strongest) strongest = strength[axis];
    for (int axis = 0; axis < AXES; axis++) {
        grid->halved[axis] = length(grid, axis) > 1 && 6 * strength[axis] >= strongest;
        count += grid->halved[axis];
    }
    for (int axis = 0; axis < AXES; axis++) /* half the edges in series, or twice as many abreast */
        for (int other = 0; other < AXES; other++)
            if (grid->halved[axis]) strength[other] *= other == axis ? 0.5 : 2;
    grid->split = grid->halved[0] && grid->slabs > 1 && grid->n[0] == 2;
    return count;
}

/* ---- Elimination of the coarsest level ---- */

/* The place of a node in the order of elimination: the longest axis outermost, periodic axes folded,
 * 0, n - 1, 1, n - 2, ..., so that neighbours are at most `band` apart. */
struct order {
    int64_t nodes, band, stride[AXES];
};

static struct order elimination_order(const struct grid *grid) {
    struct order order = {.nodes = 1};
    int sorted[AXES] = {0, 1, 2};
    for (int i = 0; i < AXES; i++)
        for (int j = i + 1; j < AXES; j++)
            if (length(grid, sorted[j]) < length(grid, sorted[i])) {
                const int other = sorted[i];
                sorted[i] = sorted[j];
                sorted[j] = other;
            }
    for (int i = 0; i < AXES; i++) {
        const int axis = sorted[i];
        const int64_t n = length(grid, axis), reach = n < 2 ? 0 : grid->periodic[axis] && n > 2 ? 2 : 1;
        order.stride[axis] = order.nodes;
        if (reach * order.nodes > order.band) order.band = reach * order.nodes;
        order.nodes *= n;
    }
    if (order.band >= order.nodes) order.band = order.nodes - 1;
    return order;
}

static double elimination_work(const struct grid *grid) {
    const struct order order = elimination_order(grid);
    return 0.5 * (double)order.nodes * (double)order.band * (double)order.band;
}

static inline int64_t place(const struct grid *grid, const struct order *order, const int64_t *at) {
    int64_t place = 0;
    for (int axis = 0; axis < AXES; axis++) {
        const int64_t n = length(grid, axis), i = at[axis];
        place += order->stride[axis] * (!grid->periodic[axis] ? i : 2 * i < n ? 2 * i : 2 * (n - i) - 1);
    }
    return place;
}

/* Fill the levels of a call; returns how many. */
static int make_levels(const struct network_args *a, struct grid *grid, int lanes) {
    double strength[AXES];
    int count = 1;
    *grid = (struct grid){0};
    for (int axis = 0; axis < AXES; axis++) {
        grid->n[axis] = a->grid[axis];
        grid->periodic[axis] = a->periodic[axis] && a->grid[axis] > 1;
        strength[axis] = a->strength[axis];
    }
    if (a->alone) {
        grid->slabs = 1;
        while (grid->slabs < lanes && 4 * grid->slabs <= a->grid[0]) grid->slabs *= 2;
        grid->n[0] = (a->grid[0] + grid->slabs - 1) / grid->slabs;
    }
    lay_out(grid);
    /* The elimination may take as much work as one cycle over everything above. Without it, down to one
     * node, planes of squares of 8 x 8 nodes with a contrast of 1e4 took 32 iterations instead of 7. */
    const double enough = 64.0 * (double)grid->nodes;
    for (; count < LEVELS_MAX && elimination_work(grid) > enough; count++, grid++) {
        if (!choose_halved(grid, strength)) break;
        grid[1] = *grid;
        for (int axis = 0; axis < AXES; axis++)
            if (grid->halved[axis]) grid[1].n[axis] = (grid->n[axis] + 1) / 2;
        if (grid->split) grid[1].n[0] = 2, grid[1].slabs = grid->slabs / 2;
        for (int axis = 0; axis < AXES; axis++) grid[1].periodic[axis] &= length(grid + 1, axis) > 1;
        lay_out(grid + 1);
    }
    return count;
}

/* The rows of a chunk: of all planes, or of some where planes have one row. Chunks begin at even rows.
 * The chunks of a network have two colours, so that threads share a sweep: even ones are visited first.
 * The first and the last chunk differ in colour, or are the same. */
struct box {
    int64_t start[2], end[2];
};

static inline int chunk_axis(const struct grid *grid) { return grid->n[1] > 1; }

static inline int64_t chunks(const struct grid *grid) {
    const int64_t n = grid->n[chunk_axis(grid)];
    return grid->slabs && n > CHUNK ? (n + 2 * CHUNK - 1) / (2 * CHUNK) * 2 : 1;
}

static inline struct box box_of(const struct grid *grid, int64_t chunk) {
    const int axis = chunk_axis(grid);
    const int64_t count = chunks(grid), pairs = (grid->n[axis] + 1) / 2;
    struct box box = {{0, 0}, {grid->n[0], grid->n[1]}};
    box.start[axis] = 2 * (chunk * pairs / count);
    if (chunk + 1 < count) box.end[axis] = 2 * ((chunk + 1) * pairs / count);
    return box;
}

/* The rows beside a row: bit 2 axis for the one before it, bit 2 axis + 1 for the one behind. None is
 * behind the seam of a periodic axis. */
static inline int rows_beside(const struct grid *grid, int64_t z, int64_t y) {
    const int slabs = grid->slabs > 1;
    return (slabs || z > 0) | (slabs || z + 1 < grid->n[0]) << 1 | (y > 0) << 2 |
           (y + 1 < grid->n[1]) << 3;
}

/* The `rows_beside` that are visited earlier: the first plane of a slab comes before the last one of the
 * lane before. */
static inline int earlier_rows(const struct grid *grid, int64_t z, int64_t y) {
    const int axis = chunk_axis(grid);
    const int64_t at = axis ? y : z, n = grid->n[axis], count = chunks(grid);
    const int64_t chunk = ((at / 2 + 1) * count - 1) / ((n + 1) / 2);
    const struct box box = box_of(grid, chunk);
    int found = (z > 0) | (grid->slabs > 1 && z + 1 == grid->n[0]) << 1 | (y > 0) << 2;
    if (at == box.start[axis] && at > 0 && chunk % 2 == 0) found &= ~(1 << 2 * axis);
    if (at + 1 == box.end[axis] && at + 1 < n && chunk % 2) found |= 2 << 2 * axis;
    return found;
}

/* The first lane whose slab has a plane less than the others, on a periodic axis. */
static inline int first_short(const struct network_args *a, const struct grid *grid) {
    return grid->slabs - (grid->periodic[0] ? (int)(length(grid, 0) - a->grid[0]) : 0);
}

static inline struct box whole(const struct grid *grid) {
    return (struct box){{0, 0}, {grid->n[0], grid->n[1]}};
}

static inline int64_t row_of(const struct grid *grid, int64_t z, int64_t y) {
    return grid->first + z * grid->stride[0] + y * grid->stride[1];
}

/* The first of the coarse nodes of a row. */
static inline int64_t coarse_row(const struct grid *fine, const struct grid *coarse, int64_t z,
                                 int64_t y) {
    return row_of(coarse, fine->split ? 0 : z >> fine->halved[0], y >> fine->halved[1]);
}

#define PRAGMA(words) _Pragma(#words)
#define EACH_ROW(of)                                          \
    for (struct box box = (of), *one = &box; one; one = NULL) \
        for (int64_t z = box.start[0]; z < box.end[0]; z++)   \
            for (int64_t y = box.start[1]; y < box.end[1]; y++)
#define ALONG(n) _Pragma("GCC ivdep") for (int64_t x = 0; x < (n); x++)
