/* The nodes of one level: a box with a margin of one node on either side of every axis that has
 * more than one node. In the margin conductances and potentials are zero, but for periodic
 * axes: there it repeats the other side. So no sweep asks where an edge ends. */

enum {
    AXES = 3,
    STEPS_MAX = 13, /* half the neighbours of a node of a coarse network in 3-D */
    CHUNK_ROWS = 16,  /* of a plane, that a thread sweeps without a pause */
    CHUNK_PLANES = 4, /* the same of a volume */
};

struct grid {
    int axes; /* that have an edge: the last ones of three */
    int64_t n[AXES], stride[AXES], first, all;
    int64_t pad; /* rows begin and end at multiples of it; 0: anywhere */
    int periodic[AXES], halved[AXES]; /* halved: on the way to the next coarser level */
    int steps;                    /* edges of a node that lead forwards */
    int64_t step[STEPS_MAX];      /* how far along the array */
    int8_t offset[STEPS_MAX][AXES];
};

/* Strides and edges of a box of n nodes. `wide`: edges to all of the 3^axes neighbours, as coarse
 * networks have, instead of along the axes alone. */
static void lay_out(struct grid *grid, int wide) {
    int64_t stride = 1;
    grid->first = 0;
    for (int axis = AXES - 1; axis >= 0; axis--) {
        const int margin = axis >= AXES - grid->axes;
        grid->stride[axis] = stride;
        if (margin) grid->first += stride;
        stride *= grid->n[axis] + 2 * margin;
        if (axis == AXES - 1 && grid->pad) {
            grid->first = grid->pad;
            stride = (stride + grid->pad - 1) / grid->pad * grid->pad;
        }
    }
    grid->all = stride + 2 * grid->pad;
    grid->steps = 0;
    const int planes = grid->axes > 2, rows = grid->axes > 1;
    for (int z = 0; z <= planes; z++)
        for (int y = z ? -rows : 0; y <= rows; y++)
            for (int x = z || y ? -1 : 1; x <= 1; x++) {
                const int8_t offset[AXES] = {(int8_t)z, (int8_t)y, (int8_t)x};
                if (wide || !!z + !!y + !!x == 1) {
                    memcpy(grid->offset[grid->steps], offset, sizeof offset);
                    grid->step[grid->steps++] =
                        z * grid->stride[0] + y * grid->stride[1] + x * grid->stride[2];
                }
            }
}

/* The next coarser level keeps every second node of the halved axes. */
static void halve(const struct grid *fine, struct grid *coarse) {
    *coarse = *fine;
    for (int axis = 0; axis < AXES; axis++) {
        if (fine->halved[axis]) coarse->n[axis] = (fine->n[axis] + 1) / 2;
        coarse->halved[axis] = 0;
    }
    lay_out(coarse, 1);
}

static inline int64_t nodes(const struct grid *grid) { return grid->n[0] * grid->n[1] * grid->n[2]; }

/* Rows in order, as one sequence. */
static inline int64_t rows(const struct grid *grid) { return grid->n[0] * grid->n[1]; }

static inline int64_t row_of(const struct grid *grid, int64_t z, int64_t y) {
    return grid->first + z * grid->stride[0] + y * grid->stride[1];
}

static inline int64_t row_at(const struct grid *grid, int64_t index) {
    return row_of(grid, index / grid->n[1], index % grid->n[1]);
}

/* Passes share out work in chunks of whole planes, or of rows of a plane. */
static inline int64_t chunk_rows(const struct grid *grid) {
    return grid->axes == 3 ? CHUNK_PLANES * grid->n[1] : CHUNK_ROWS;
}

static inline int64_t chunks(const struct grid *grid) {
    return (rows(grid) + chunk_rows(grid) - 1) / chunk_rows(grid);
}

static inline int64_t chunk_end(const struct grid *grid, int64_t chunk) {
    const int64_t end = (chunk + 1) * chunk_rows(grid);
    return end < rows(grid) ? end : rows(grid);
}

#define EACH_ROW(grid)                         \
    for (int64_t z = 0; z < (grid)->n[0]; z++) \
        for (int64_t y = 0; y < (grid)->n[1]; y++)
#define ROW(grid) row_of(grid, z, y)
#define ALONG(n) _Pragma("GCC ivdep") for (int64_t x = 0; x < (n); x++)

/* Sweeps exist once for each number of edges, which is a constant inside; more arguments follow. */
#define FOR_STEPS(steps, sweep, ...)        \
    switch (steps) {                        \
    case 2: sweep(2, __VA_ARGS__); break;   \
    case 3: sweep(3, __VA_ARGS__); break;   \
    case 4: sweep(4, __VA_ARGS__); break;   \
    default: sweep(STEPS_MAX, __VA_ARGS__); \
    }
