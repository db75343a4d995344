/* The order in which nodes are eliminated, and the levels of a grid. */

/* The order of the nodes, longest axis outermost, periodic axes folded: 0, n-1, 1, n-2, ... */
struct order {
    int64_t nodes, band;
    int64_t stride[AXES];
};

static inline int64_t folded(const struct grid *grid, int axis, int64_t i) {
    if (!grid->periodic[axis]) return i;
    return 2 * i < grid->n[axis] ? 2 * i : 2 * (grid->n[axis] - 1 - i) + 1;
}

/* How far apart in the order two neighbours along an axis are at most. */
static inline int64_t farthest(const struct grid *grid, int axis) {
    return grid->n[axis] < 2 ? 0 : grid->periodic[axis] && grid->n[axis] > 2 ? 2 : 1;
}

static struct order elimination_order(const struct grid *grid) {
    struct order order = {.nodes = nodes(grid)};
    int sorted[AXES] = {0, 1, 2};
    for (int i = 0; i < AXES; i++)
        for (int j = i + 1; j < AXES; j++)
            if (grid->n[sorted[j]] < grid->n[sorted[i]]) {
                const int other = sorted[i];
                sorted[i] = sorted[j];
                sorted[j] = other;
            }
    int64_t stride = 1;
    for (int i = 0; i < AXES; i++) {
        order.stride[sorted[i]] = stride;
        stride *= grid->n[sorted[i]];
    }
    for (int o = 0; o < grid->steps; o++) {
        int64_t reach = 0;
        for (int axis = 0; axis < AXES; axis++)
            if (grid->offset[o][axis]) reach += farthest(grid, axis) * order.stride[axis];
        if (reach > order.band) order.band = reach;
    }
    if (order.band >= order.nodes) order.band = order.nodes - 1;
    return order;
}

static inline int64_t place(const struct grid *grid, const struct order *order, const int64_t *at) {
    int64_t place = 0;
    for (int axis = 0; axis < AXES; axis++) place += folded(grid, axis, at[axis]) * order->stride[axis];
    return place;
}

/* Where edge o of a node is in the mesh of an elimination, which holds the conductances of each node
 * to the `band` nodes after it in the order; -1 where the grid ends before the edge does. */
static inline int64_t mesh_entry(const struct grid *grid, const struct order *order, const int64_t *at,
                                 int o) {
    int64_t to[AXES];
    for (int axis = 0; axis < AXES; axis++) {
        const int64_t n = grid->n[axis], i = at[axis] + grid->offset[o][axis];
        if (!grid->periodic[axis] && (i < 0 || i >= n)) return -1;
        to[axis] = (i + n) % n;
    }
    const int64_t here = place(grid, order, at), there = place(grid, order, to);
    if (here == there) return -1;
    return here < there ? here * order->band + there - here - 1 : there * order->band + here - there - 1;
}

enum {
    LEVELS_MAX = 48,
    LINE_CHUNK = 256, /* nodes of a line that are read at once: they stay in the L1 cache */
};

struct plan {
    int count; /* of levels; the last one is eliminated */
    struct grid grid[LEVELS_MAX];
};

static inline int is_line(const struct network_args *a) { return a->grid[0] == 1 && a->grid[1] == 1; }

static double elimination_cost(const struct grid *grid) {
    const struct order order = elimination_order(grid);
    return 0.5 * (double)order.nodes * (double)order.band * (double)order.band;
}

/* Halve the axes whose conductances are not far below the strongest ones: along weak ones a sweep
 * smooths too little to go without the nodes between. 0 where no axis is left. */
static int choose_halved(struct grid *grid, double *strength) {
    double strongest = 0;
    int any = 0;
    for (int axis = 0; axis < AXES; axis++)
        if (grid->n[axis] >= 4 && strength[axis] > strongest) strongest = strength[axis];
    for (int axis = 0; axis < AXES; axis++) {
        grid->halved[axis] = grid->n[axis] >= 4 && 6 * strength[axis] >= strongest;
        any |= grid->halved[axis];
    }
    for (int axis = 0; axis < AXES; axis++) /* half the edges in series, or twice as many abreast */
        for (int other = 0; other < AXES; other++)
            if (grid->halved[axis]) strength[other] *= other == axis ? 0.5 : 2;
    return any;
}

static void make_plan(const struct network_args *a, struct plan *plan, int64_t pad) {
    struct grid *grid = plan->grid;
    double strength[AXES];
    memset(grid, 0, sizeof *grid);
    grid->pad = pad;
    for (int axis = 0; axis < AXES; axis++) {
        grid->n[axis] = a->grid[axis];
        grid->periodic[axis] = a->periodic[axis] && a->grid[axis] > 1;
        strength[axis] = a->strength[axis];
        if (a->grid[axis] > 1 && !grid->axes) grid->axes = AXES - axis;
    }
    if (!grid->axes) grid->axes = 1;
    lay_out(grid, 0);
    plan->count = 1;
    if (elimination_order(grid).band <= a->eliminate) return;
    /* The bottom may take as much work as one cycle over everything above. */
    const double enough = 64.0 * (double)nodes(grid);
    while (plan->count < LEVELS_MAX && elimination_cost(grid) > enough && choose_halved(grid, strength)) {
        halve(grid, grid + 1);
        grid++;
        plan->count++;
    }
}
