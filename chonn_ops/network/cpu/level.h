/* A solver: the networks of its levels, their margins, and the rows that its passes visit. All
 * threads share a network alone, each solves groups of networks of its own. Nodes without edges and
 * leaks in all networks, as a mask or an insulator leaves them, are visited at the ends of runs only:
 * a row is a list of runs of LANES nodes with other nodes. Included once per form. */

struct FORM(level) {
    struct grid grid;
    ELEMENT *edge[STEPS_MAX]; /* conductance to the neighbour one step on */
    ELEMENT *leak, *inverse; /* inverse: of the sum of the magnitudes of a node's conductances and leak */
    ELEMENT *x, *r, *left; /* solution, source, residual */
    ELEMENT *first; /* what the first of two visits has found */
    ELEMENT *weight[WEIGHTS_MAX]; /* by weight_index, of the coarser level's nodes */
    int32_t *runs; /* (rows, run_width): where runs begin and end; zeros behind them */
};

struct FORM(solver) {
    int count, threads; /* of levels; that share a network */
    struct FORM(level) level[LEVELS_MAX];
    ELEMENT *v, *low, *p, *Ap; /* low: what v + low has beyond v */
    struct FORM(factors) { /* of the coarsest network, see eliminate.h */
        struct order order;
        ELEMENT *mesh; /* (nodes, band): first conductances to later nodes, then their shares of t */
        ELEMENT *inverse, *s; /* 1 / t; source, then potential */
    } bottom;
    double *part; /* (3, chunks, NETWORKS): sums, then twice the most */
    ELEMENT *buffer; /* BUFFERS rows a thread */
    int64_t width; /* of a buffer */
};

/* ---- Margins ---- */

static void FORM(wrap)(const struct grid *grid, ELEMENT *at) {
    const int64_t n = grid->n[2], down = grid->stride[1], back = grid->stride[0];
    if (grid->periodic[2])
        EACH_ROW (grid) {
            ELEMENT *row = at + ROW(grid);
            row[-1] = row[n - 1];
            row[n] = row[0];
        }
    if (grid->periodic[1])
        for (int64_t z = 0; z < grid->n[0]; z++) {
            ELEMENT *start = at + row_of(grid, z, 0) - 1;
            memcpy(start - down, start + (grid->n[1] - 1) * down, (size_t)(n + 2) * sizeof(ELEMENT));
            memcpy(start + grid->n[1] * down, start, (size_t)(n + 2) * sizeof(ELEMENT));
        }
    if (grid->periodic[0]) {
        ELEMENT *start = at + row_of(grid, 0, -1) - 1;
        memcpy(start - back, start + (grid->n[0] - 1) * back, (size_t)back * sizeof(ELEMENT));
        memcpy(start + grid->n[0] * back, start, (size_t)back * sizeof(ELEMENT));
    }
}

/* The adjoint of wrap; leaves the margin as it is, for wrap to overwrite. */
static void FORM(fold)(const struct grid *grid, ELEMENT *at) {
    const int64_t n = grid->n[2], down = grid->stride[1], back = grid->stride[0];
    if (grid->periodic[0]) {
        ELEMENT *low = at + row_of(grid, 0, -1) - 1, *high = low + (grid->n[0] - 1) * back;
        for (int64_t i = 0; i < back; i++) {
            high[i] += low[i - back];
            low[i] += high[i + back];
        }
    }
    if (grid->periodic[1])
        for (int64_t z = 0; z < grid->n[0]; z++) {
            ELEMENT *low = at + row_of(grid, z, 0) - 1, *high = low + (grid->n[1] - 1) * down;
            for (int64_t i = 0; i < n + 2; i++) {
                high[i] += low[i - down];
                low[i] += high[i + down];
            }
        }
    if (grid->periodic[2])
        EACH_ROW (grid) {
            ELEMENT *row = at + ROW(grid);
            row[n - 1] += row[-1];
            row[0] += row[n];
        }
}

/* ---- Rows ---- */

/* Threads for a pass over a grid: waking them takes as long as some thousand nodes. */
static inline int FORM(num_threads)(const struct FORM(solver) * s, const struct grid *grid) {
    return nodes(grid) < NETWORK_PARALLEL ? 1 : s->threads;
}

INLINE ELEMENT *FORM(buffer)(const struct FORM(solver) * s, int index) {
    return s->buffer + (thread_number() * BUFFERS + index) * s->width + LANES;
}

/* Entries of the list of runs of a row: begins and ends, and zeros behind. */
INLINE int64_t FORM(run_width)(const struct grid *grid) {
    return 2 * ((grid->n[2] + LANES - 1) / LANES / 2 + 2);
}

/* The runs of nodes of row `index` that may have edges or leaks: from run[0] up to run[1]. */
#define EACH_RUN(l, index) \
    for (const int32_t *run = (l)->runs + (index) * FORM(run_width)(&(l)->grid); run[1]; run += 2)

/* A list of runs from marks of LANES nodes each. */
static void FORM(list_runs)(const struct grid *grid, const uint8_t *marks, int32_t *run) {
    const int64_t n = grid->n[2];
    for (int64_t i = 0; i * LANES < n; i++) {
        if (!marks[i]) continue;
        const int64_t end = (i + 1) * LANES;
        if (!i || !marks[i - 1]) *run++ = (int32_t)(i * LANES);
        *run = (int32_t)(end < n ? end : n);
        if (end >= n || !marks[i + 1]) run++;
    }
    run[0] = run[1] = 0;
}

/* The runs of a network: LANES nodes are in one if any of them has an edge or a leak. */
static void FORM(find_runs)(const struct FORM(solver) * s, const struct FORM(level) * l) {
    const struct grid *grid = &l->grid;
#pragma omp parallel for schedule(static) num_threads(FORM(num_threads)(s, grid))
    for (int64_t i = 0; i < rows(grid); i++) {
        uint8_t *marks = (uint8_t *)FORM(buffer)(s, 0);
        const ELEMENT *inverse = l->inverse + row_at(grid, i);
        memset(marks, 0, (size_t)((grid->n[2] + LANES - 1) / LANES));
        for (int64_t x = 0; x < grid->n[2]; x++) marks[x / LANES] |= (uint8_t)FORM(any)(inverse[x]);
        FORM(list_runs)(grid, marks, l->runs + i * FORM(run_width)(grid));
    }
}

/* The runs of a coarser network: LANES nodes are in one if any of them is next to a finer run. */
static void FORM(halve_runs)(const struct FORM(level) * fine, const struct FORM(level) * coarse,
                             uint8_t *marks) {
    const struct grid *grid = &fine->grid, *small = &coarse->grid;
    const int halved = grid->halved[2];
    const int64_t last = (small->n[2] - 1) / LANES;
    EACH_ROW (small) {
        memset(marks, 0, (size_t)last + 1);
        for (int dz = -grid->halved[0]; dz <= grid->halved[0]; dz++)
            for (int dy = -grid->halved[1]; dy <= grid->halved[1]; dy++) {
                const int64_t at[2] = {((z << grid->halved[0]) + dz + grid->n[0]) % grid->n[0],
                                       ((y << grid->halved[1]) + dy + grid->n[1]) % grid->n[1]};
                EACH_RUN (fine, at[0] * grid->n[1] + at[1]) {
                    const int64_t begin = run[0] >> halved, end = (run[1] >> halved) + halved;
                    for (int64_t i = begin / LANES; i <= last && i * LANES < end; i++) marks[i] = 1;
                    if (grid->periodic[2] && run[1] == grid->n[2]) marks[0] = 1;
                    if (grid->periodic[2] && !run[0]) marks[last] = 1;
                }
            }
        FORM(list_runs)(small, marks, coarse->runs + (z * small->n[1] + y) * FORM(run_width)(small));
    }
}

static void FORM(invert)(const struct FORM(solver) * s, const struct FORM(level) * l) {
    const struct grid *grid = &l->grid;
#pragma omp parallel for schedule(static) num_threads(FORM(num_threads)(s, grid))
    for (int64_t i = 0; i < rows(grid); i++) {
        const int64_t row = row_at(grid, i), n = grid->n[2];
        ELEMENT *sum = l->inverse + row;
        const ELEMENT *leak = l->leak + row;
        ALONG(n) sum[x] = leak[x];
        for (int o = 0; o < grid->steps; o++) {
            const ELEMENT *after = l->edge[o] + row, *before = after - grid->step[o];
            ALONG(n) sum[x] += FORM(magnitude)(after[x]) + FORM(magnitude)(before[x]);
        }
        ALONG(n) sum[x] = FORM(inverse)(sum[x]);
    }
}
