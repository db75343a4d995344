/* One network at a time: the lanes of a vector are neighbouring nodes of a row, and all threads
 * share the rows of the grid. Levels, transfers and bottom are those of the groups (coarsen.h,
 * eliminate.h), written row by row. Nodes without edges and leaks, as a mask or an insulator leaves
 * them, are visited at the ends of runs only: a row is a list of runs of vectors with other nodes.
 *
 * Gauss-Seidel sweeps visit chunks of rows in two colours, the even chunks first, so that threads
 * share a sweep; in a chunk they go from row to row, and in a row they visit the even nodes first.
 * Backwards is the reverse order, which makes the preconditioner symmetric. Neighbours within a row
 * of one colour and the other side of a periodic axis are taken as they were before: with an
 * inverse of the sum of magnitudes that converges by dominance. No result depends on the number of
 * threads. Included once per precision. */

typedef REAL NAME(unaligned) __attribute__((vector_size(VECTOR_BYTES), aligned(sizeof(REAL)), may_alias));

INLINE vec NAME(load)(const REAL *at) { return (vec) * (const NAME(unaligned) *)at; }

/* The first `count` lanes, the others zero. */
INLINE vec NAME(lanes)(vec value, int64_t count) {
    vec kept = {};
    if (count >= LANES) return value;
    for (int lane = 0; lane < LANES; lane++)
        if (lane < count) kept[lane] = value[lane];
    return kept;
}

/* Write the first `count` lanes: what lies behind a row stays as it is. */
INLINE void NAME(store)(REAL *at, vec value, int64_t count) {
    if (count >= LANES)
        *(NAME(unaligned) *)at = (NAME(unaligned))value;
    else
        for (int lane = 0; lane < LANES; lane++)
            if (lane < count) at[lane] = value[lane];
}

INLINE REAL NAME(total)(vec value) {
    REAL sum = 0;
    for (int lane = 0; lane < LANES; lane++) sum += value[lane];
    return sum;
}

INLINE REAL NAME(largest_lane)(vec value) {
    REAL most = 0;
    for (int lane = 0; lane < LANES; lane++)
        if (value[lane] > most) most = value[lane];
    return most;
}

struct NAME(rows) {
    struct grid grid;
    REAL *edge[STEPS_MAX], *leak, *inverse, *x, *r;
    REAL *left;  /* residual */
    REAL *first; /* what the first of two visits has found */
    REAL *weight[WEIGHTS_MAX]; /* by weight_index, of the coarser level's nodes */
    int32_t *runs;             /* (rows, run_width): where runs begin and end; zeros behind them */
};

struct NAME(alone) {
    int count, threads;
    struct NAME(rows) level[LEVELS_MAX];
    REAL *v, *low, *p, *Ap;
    struct order order; /* of the elimination at the bottom */
    REAL *mesh, *inverse, *s;
    double *part;  /* of chunks: sums, then twice the most */
    REAL *buffer;  /* BUFFERS rows a thread */
    int64_t width; /* of a buffer */
};

/* ---- Margins ---- */

INLINE int64_t NAME(row)(const struct grid *grid, int64_t z, int64_t y) {
    return grid->first + z * grid->stride[0] + y * grid->stride[1];
}

static void NAME(wrap_rows)(const struct grid *grid, REAL *at) {
    const int64_t n = grid->n[2], down = grid->stride[1], back = grid->stride[0];
    if (grid->periodic[2])
        EACH_ROW (grid) {
            REAL *row = at + ROW(grid);
            row[-1] = row[n - 1];
            row[n] = row[0];
        }
    if (grid->periodic[1])
        for (int64_t z = 0; z < grid->n[0]; z++) {
            REAL *start = at + NAME(row)(grid, z, 0) - 1;
            memcpy(start - down, start + (grid->n[1] - 1) * down, (size_t)(n + 2) * sizeof(REAL));
            memcpy(start + grid->n[1] * down, start, (size_t)(n + 2) * sizeof(REAL));
        }
    if (grid->periodic[0]) {
        REAL *start = at + NAME(row)(grid, 0, -1) - 1;
        memcpy(start - back, start + (grid->n[0] - 1) * back, (size_t)(back - 1) * sizeof(REAL));
        memcpy(start + grid->n[0] * back, start, (size_t)(back - 1) * sizeof(REAL));
    }
}

/* The adjoint of wrap_rows; leaves the margin as it is, for wrap_rows to overwrite. */
static void NAME(fold_rows)(const struct grid *grid, REAL *at) {
    const int64_t n = grid->n[2], down = grid->stride[1], back = grid->stride[0];
    if (grid->periodic[0]) {
        REAL *low = at + NAME(row)(grid, 0, -1) - 1, *high = low + (grid->n[0] - 1) * back;
        for (int64_t i = 0; i < back - 1; i++) {
            high[i] += low[i - back];
            low[i] += high[i + back];
        }
    }
    if (grid->periodic[1])
        for (int64_t z = 0; z < grid->n[0]; z++) {
            REAL *low = at + NAME(row)(grid, z, 0) - 1, *high = low + (grid->n[1] - 1) * down;
            for (int64_t i = 0; i < n + 2; i++) {
                high[i] += low[i - down];
                low[i] += high[i + down];
            }
        }
    if (grid->periodic[2])
        EACH_ROW (grid) {
            REAL *row = at + ROW(grid);
            row[n - 1] += row[-1];
            row[0] += row[n];
        }
}

/* ---- Sweeps ---- */

/* Work is shared out in chunks of whole planes, or rows of a plane. */
static inline int64_t NAME(chunk)(const struct grid *grid) {
    return grid->axes == 3 ? CHUNK_PLANES * grid->n[1] : CHUNK_ROWS;
}

static inline int64_t NAME(chunks)(const struct grid *grid) {
    const int64_t chunk = NAME(chunk)(grid);
    return (rows(grid) + chunk - 1) / chunk;
}

/* Entries of the list of runs of a row: begins and ends, and zeros behind. */
INLINE int64_t NAME(run_width)(const struct grid *grid) {
    return 2 * ((grid->n[2] + LANES - 1) / LANES / 2 + 2);
}

/* The runs of nodes of row `index` that may have edges or leaks: from run[0] up to run[1]. */
#define EACH_RUN(l, index) \
    for (const int32_t *run = (l)->runs + (index) * NAME(run_width)(&(l)->grid); run[1]; run += 2)

static inline int64_t NAME(chunk_end)(const struct grid *grid, int64_t chunk) {
    const int64_t end = (chunk + 1) * NAME(chunk)(grid);
    return end < rows(grid) ? end : rows(grid);
}

/* Threads for a pass over a grid: waking them takes as long as some thousand nodes. */
static inline int NAME(num_threads)(const struct NAME(alone) *s, const struct grid *grid) {
    return nodes(grid) < NETWORK_PARALLEL ? 1 : s->threads;
}

INLINE REAL *NAME(buffer)(const struct NAME(alone) *s, int index) {
    return s->buffer + (thread_number() * BUFFERS + index) * s->width + LANES;
}

/* r - A x of LANES nodes. */
INLINE vec NAME(left_of)(const int steps, const struct NAME(rows) *l, const REAL *x, vec r, int64_t p) {
    const vec own = NAME(load)(x + p);
    vec sum = r - NAME(load)(l->leak + p) * own;
    for (int o = 0; o < steps; o++) {
        const int64_t step = l->grid.step[o];
        sum += NAME(load)(l->edge[o] + p) * (NAME(load)(x + p + step) - own);
        sum += NAME(load)(l->edge[o] + p - step) * (NAME(load)(x + p - step) - own);
    }
    return sum;
}

/* What the other rows give to LANES nodes of a sweep, and their own part where edges may be
 * negative: there the inverse is not that of the diagonal. */
INLINE vec NAME(from_other_rows)(const int steps, const struct NAME(rows) *l, int64_t p) {
    vec sum = NAME(load)(l->r + p);
    const vec own = NAME(load)(l->x + p);
    if (steps > AXES) sum -= NAME(load)(l->leak + p) * own;
    for (int o = 1; o < steps; o++) { /* edge 0 stays in the row */
        const int64_t step = l->grid.step[o];
        const vec after = NAME(load)(l->x + p + step), before = NAME(load)(l->x + p - step);
        sum += NAME(load)(l->edge[o] + p) * (steps > AXES ? after - own : after);
        sum += NAME(load)(l->edge[o] + p - step) * (steps > AXES ? before - own : before);
    }
    return sum;
}

/* The even, then the odd nodes of one run of a sweep, or the reverse. What other rows give is the
 * same for both and kept in `given`. A vector is written when the next one has been read, which
 * would wait for it otherwise. */
INLINE void NAME(relax_run)(const int steps, const struct NAME(rows) *l, int64_t row, int64_t n,
                            int odd_first, REAL *given) {
    for (int pass = 0; pass < 2; pass++) {
        const int odd = pass ^ odd_first;
        NAME(mask) chosen;
        for (int lane = 0; lane < LANES; lane++) chosen[lane] = lane % 2 == odd ? -1 : 0;
        vec held = {};
        for (int64_t i = 0; i < n; i += LANES) {
            const int64_t p = row + i;
            const vec own = NAME(load)(l->x + p), inverse = NAME(load)(l->inverse + p);
            const vec after = NAME(load)(l->x + p + 1), before = NAME(load)(l->x + p - 1);
            const vec right = NAME(load)(l->edge[0] + p), left = NAME(load)(l->edge[0] + p - 1);
            vec sum, x;
            if (pass)
                sum = NAME(load)(given + i);
            else
                NAME(store)(given + i, sum = NAME(from_other_rows)(steps, l, p), LANES);
            if (steps > AXES)
                x = own + (sum + right * (after - own) + left * (before - own)) * inverse;
            else
                x = (sum + right * after + left * before) * inverse;
            if (i) NAME(store)(l->x + p - LANES, held, LANES);
            held = (vec)((chosen & (NAME(mask))x) | (~chosen & (NAME(mask))own));
        }
        const int64_t last = (n - 1) / LANES * LANES;
        NAME(store)(l->x + row + last, held, n - last);
    }
}

APART void NAME(relax_chunk)(const struct NAME(rows) *l, int64_t chunk, int backwards, REAL *given) {
    const struct grid *grid = &l->grid;
    const int64_t start = chunk * NAME(chunk)(grid), end = NAME(chunk_end)(grid, chunk);
    for (int64_t i = start; i < end; i++) {
        const int64_t index = backwards ? start + end - 1 - i : i, row = row_at(grid, index);
        EACH_RUN (l, index)
            FOR_STEPS(grid->steps, NAME(relax_run), l, row + run[0], run[1] - run[0], backwards, given)
    }
}

static void NAME(relax)(const struct NAME(alone) *s, const struct NAME(rows) *l, int backwards) {
    const int64_t chunks = NAME(chunks)(&l->grid);
    NAME(wrap_rows)(&l->grid, l->x);
#pragma omp parallel num_threads(NAME(num_threads)(s, &l->grid))
    for (int pass = 0; pass < 2; pass++) {
#pragma omp for schedule(static)
        for (int64_t chunk = backwards ? !pass : pass; chunk < chunks; chunk += 2)
            NAME(relax_chunk)(l, chunk, backwards, NAME(buffer)(s, 0));
    }
}

INLINE void NAME(residual_of_run)(const int steps, const struct NAME(rows) *l, const REAL *x, int64_t row,
                                  int64_t n, REAL *to) {
    for (int64_t i = 0; i < n; i += LANES) {
        const int64_t p = row + i;
        NAME(store)(to + p, NAME(left_of)(steps, l, x, NAME(load)(l->r + p), p), n - i);
    }
}

APART void NAME(residual_chunk)(const struct NAME(rows) *l, const REAL *x, REAL *to, int64_t chunk) {
    const struct grid *grid = &l->grid;
    for (int64_t i = chunk * NAME(chunk)(grid); i < NAME(chunk_end)(grid, chunk); i++)
        EACH_RUN (l, i)
            FOR_STEPS(grid->steps, NAME(residual_of_run), l, x, row_at(grid, i) + run[0], run[1] - run[0],
                      to)
}

static void NAME(residual)(const struct NAME(alone) *s, const struct NAME(rows) *l, REAL *x, REAL *to) {
    NAME(wrap_rows)(&l->grid, x);
#pragma omp parallel for schedule(static) num_threads(NAME(num_threads)(s, &l->grid))
    for (int64_t chunk = 0; chunk < NAME(chunks)(&l->grid); chunk++)
        NAME(residual_chunk)(l, x, to, chunk);
}

/* ---- Between two levels ---- */

#define ALONG(n) _Pragma("GCC ivdep") for (int64_t x = 0; x < (n); x++)

/* to += a b */
static void NAME(add_product)(REAL *to, const REAL *a, const REAL *b, int64_t n) {
    ALONG(n) to[x] += a[x] * b[x];
}

/* Nodes of a fine row that are even, or odd, along a halved axis. */
static void NAME(thin)(REAL *to, const REAL *from, int64_t n, int halved) {
    if (halved)
        ALONG(n) to[x] = from[2 * x];
    else
        ALONG(n) to[x] = from[x];
}

/* Sources of n coarse nodes of a row from x on: the transpose of interpolation, gathered. */
APART void NAME(restrict_to)(const struct NAME(alone) *s, const struct NAME(rows) *fine,
                             const struct grid *small, const REAL *left, REAL *to, int64_t z, int64_t y,
                             int64_t start, int64_t n) {
    const struct grid *grid = &fine->grid;
    const int64_t row = NAME(row)(small, z, y) + start, fine_n[2] = {grid->n[0], grid->n[1]};
    REAL *even = NAME(buffer)(s, 0), *odd = NAME(buffer)(s, 1), *sum = to + row;
    memset(sum, 0, (size_t)n * sizeof(REAL));
    for (int dz = -grid->halved[0]; dz <= grid->halved[0]; dz++)
        for (int dy = -grid->halved[1]; dy <= grid->halved[1]; dy++) {
            const int64_t at[2] = {(z << grid->halved[0]) + dz, (y << grid->halved[1]) + dy};
            int exists = 1;
            for (int axis = 0; axis < 2; axis++)
                exists &= grid->periodic[axis] || (at[axis] >= 0 && at[axis] < fine_n[axis]);
            if (!exists) continue;
            const REAL *from = left + NAME(row)(grid, at[0], at[1]) + (start << grid->halved[2]);
            const int across = (dy ? 2 : 0) | (dz ? 4 : 0), up = (dy < 0 ? 2 : 0) | (dz < 0 ? 4 : 0);
            const int64_t cell = NAME(row)(small, z - (dz < 0), y - (dy < 0)) + start;
            NAME(thin)(even, from, n, grid->halved[2]);
            if (across)
                NAME(add_product)(sum, fine->weight[weight_index(across, up)] + cell, even, n);
            else
                ALONG(n) sum[x] += even[x];
            if (!grid->halved[2]) continue;
            NAME(thin)(odd - 1, from - 1, n + 1, 1);
            const REAL *low = fine->weight[weight_index(across | 1, up)] + cell;
            const REAL *high = fine->weight[weight_index(across | 1, up | 1)] + cell;
            NAME(add_product)(sum, low, odd, n);
            NAME(add_product)(sum, high - 1, odd - 1, n);
        }
}

/* coarse = the transpose of interpolation of fine nodes; wraps `left`. */
static void NAME(restrict_rows)(const struct NAME(alone) *s, const struct NAME(rows) *fine,
                                const struct NAME(rows) *coarse, REAL *left, REAL *to) {
    const struct grid *small = &coarse->grid;
    NAME(wrap_rows)(&fine->grid, left);
#pragma omp parallel for schedule(static) num_threads(NAME(num_threads)(s, &fine->grid))
    for (int64_t i = 0; i < rows(small); i++)
        EACH_RUN (coarse, i)
            NAME(restrict_to)(s, fine, small, left, to, i / small->n[1], i % small->n[1], run[0],
                              run[1] - run[0]);
}

/* fine->x of a row from an even node up to an end += potentials of the coarse nodes around. */
APART void NAME(interpolate_to)(const struct NAME(alone) *s, const struct NAME(rows) *fine,
                                const struct NAME(rows) *coarse, int64_t z, int64_t y, int64_t start,
                                int64_t end) {
    const struct grid *grid = &fine->grid, *small = &coarse->grid;
    int across;
    const int64_t halved = grid->halved[2], odds = (end - start) / 2;
    const int64_t cell = row_of_cells(grid, small, z, y, &across) + (start >> halved);
    const int64_t n = (end - start + halved) >> halved;
    REAL *even = NAME(buffer)(s, 0), *odd = NAME(buffer)(s, 1);
    REAL *to = fine->x + NAME(row)(grid, z, y) + start;
    memset(even, 0, (size_t)n * sizeof(REAL));
    memset(odd, 0, (size_t)n * sizeof(REAL));
    for (int c = 0; c < CORNERS(AXES); c++) {
        const REAL *e = coarse->x + cell + corner(small, c);
        if (!across && !c)
            ALONG(n) even[x] = e[x];
        else if (!(c & ~across))
            NAME(add_product)(even, fine->weight[weight_index(across, c)] + cell, e, n);
        if (halved && !(c & ~(across | 1)))
            NAME(add_product)(odd, fine->weight[weight_index(across | 1, c)] + cell, e, n);
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

static void NAME(interpolate_rows)(const struct NAME(alone) *s, const struct NAME(rows) *fine,
                                   const struct NAME(rows) *coarse) {
    NAME(wrap_rows)(&coarse->grid, coarse->x);
#pragma omp parallel for schedule(static) num_threads(NAME(num_threads)(s, &fine->grid))
    for (int64_t i = 0; i < rows(&fine->grid); i++)
        EACH_RUN (fine, i)
            NAME(interpolate_to)(s, fine, coarse, i / fine->grid.n[1], i % fine->grid.n[1], run[0],
                                 run[1]);
}

/* ---- The coarser network ---- */

/* How many of n cells of a row from `start` on have a node of the set. */
INLINE int64_t NAME(count_in)(const struct grid *grid, int set, int64_t start, int64_t n) {
    const int64_t most = grid->n[2] / 2 - start;
    return set & 1 && most < n ? most : n;
}

/* A list of runs from marks of a row's vectors. */
static void NAME(list_runs)(const struct grid *grid, const uint8_t *marks, int32_t *run) {
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

/* The runs of a network: of vectors with a node that has an edge or a leak. */
static void NAME(find_runs)(const struct NAME(alone) *s, const struct NAME(rows) *l) {
    const struct grid *grid = &l->grid;
#pragma omp parallel for schedule(static) num_threads(NAME(num_threads)(s, grid))
    for (int64_t i = 0; i < rows(grid); i++) {
        uint8_t *marks = (uint8_t *)NAME(buffer)(s, 0);
        for (int64_t x = 0; x < grid->n[2]; x += LANES) {
            const vec inverse = NAME(load)(l->inverse + row_at(grid, i) + x);
            marks[x / LANES] = NAME(total)(NAME(lanes)(inverse, grid->n[2] - x)) != 0;
        }
        NAME(list_runs)(grid, marks, l->runs + i * NAME(run_width)(grid));
    }
}

/* The runs of a coarser network: of vectors with a node that is next to one of the finer runs. */
static void NAME(halve_runs)(const struct NAME(rows) *fine, const struct NAME(rows) *coarse,
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
        NAME(list_runs)(small, marks, coarse->runs + (z * small->n[1] + y) * NAME(run_width)(small));
    }
}

/* attach() of coarsen.h for the nodes of n cells where `loose` is 1. */
APART void NAME(attach_run)(const struct NAME(alone) *s, const struct NAME(rows) *fine, int set,
                            const REAL *loose, const int64_t *at, int64_t p, int64_t cell, int64_t start,
                            int64_t n) {
    const struct grid *grid = &fine->grid;
    REAL *most = NAME(buffer)(s, 0), *picked = NAME(buffer)(s, 1);
    ALONG(n) most[x] = picked[x] = -1;
    for (int c = 0; c < CORNERS(AXES); c++) {
        int exists = !(c & ~set);
        const REAL *inverse = fine->inverse + p;
        for (int axis = 0; axis < AXES; axis++) {
            const int bit = 1 << (AXES - 1 - axis);
            if (!(set & bit)) continue;
            inverse += c & bit ? grid->stride[axis] : -grid->stride[axis];
            exists &= !(c & bit) || axis == 2 || at[axis] + 1 < grid->n[axis];
        }
        if (!exists) continue;
        const int64_t beyond = c & 1 && 2 * (start + n) == grid->n[2];
        for (int64_t x = 0; x < n - beyond; x++) {
            const REAL here = inverse[x << grid->halved[2]];
            const REAL value = here > 0 ? here : (REAL)HUGE_VALF; /* an insulator stands for nothing */
            if (value > most[x]) most[x] = value, picked[x] = (REAL)c;
        }
    }
    for (int c = 0; c < CORNERS(AXES); c++) {
        if (c & ~set) continue;
        REAL *weight = fine->weight[weight_index(set, c)] + cell;
        ALONG(n) weight[x] += picked[x] == (REAL)c ? loose[x] : 0;
    }
}

/* Weights of the nodes of a set in n cells of a row from `start` on, see weigh() in coarsen.h. */
APART void NAME(weigh_run)(const struct NAME(alone) *s, const struct NAME(rows) *fine,
                           const struct grid *small, int set, int64_t z, int64_t y, int64_t start,
                           int64_t n) {
    const struct grid *grid = &fine->grid;
    const int64_t cell = NAME(row)(small, z, y) + start;
    const int64_t at[2] = {(z << grid->halved[0]) + (set >> 2 & 1),
                           (y << grid->halved[1]) + (set >> 1 & 1)};
    const int64_t count = NAME(count_in)(grid, set, start, n);
    if (at[0] >= grid->n[0] || at[1] >= grid->n[1]) return;
    REAL *sum = NAME(buffer)(s, 27), *ties = NAME(buffer)(s, 28), *towards[27];
    int moved_in[27], up_in[27]; /* along which axes, and along which of them forwards */
    for (int direction = 0; direction < 27; direction++) {
        moved_in[direction] = up_in[direction] = 0;
        for (int bit = 0, rest = direction; bit < AXES; bit++, rest /= 3) {
            moved_in[direction] |= (rest % 3 != 1) << bit;
            up_in[direction] |= (rest % 3 == 2) << bit;
        }
        towards[direction] = NAME(buffer)(s, direction);
        if (!(moved_in[direction] & ~set)) memset(towards[direction], 0, (size_t)n * sizeof(REAL));
    }
    memset(sum, 0, (size_t)n * sizeof(REAL));
    memset(ties, 0, (size_t)n * sizeof(REAL));
    const int64_t p = NAME(row)(grid, at[0], at[1]) + (start << grid->halved[2]) + (set & 1);
    for (int o = 0; o < grid->steps; o++)
        for (int forwards = 0; forwards < 2; forwards++) {
            int direction = 0;
            for (int axis = 0; axis < AXES; axis++) {
                const int step = set >> (AXES - 1 - axis) & 1 ? grid->offset[o][axis] : 0;
                direction = 3 * direction + 1 + (forwards ? step : -step);
            }
            const REAL *g = fine->edge[o] + p - (forwards ? 0 : grid->step[o]);
            REAL *to = towards[direction];
            if (grid->halved[2])
                ALONG(count) to[x] += g[2 * x];
            else
                ALONG(count) to[x] += g[x];
        }
    for (int direction = 0; direction < 27; direction++) {
        const REAL *g = towards[direction];
        if (moved_in[direction] & ~set) continue;
        ALONG(count) ties[x] += g[x] > 0 ? g[x] : 0;
    }
    for (int c = 0; c < CORNERS(AXES); c++)
        if (!(c & ~set)) memset(fine->weight[weight_index(set, c)] + cell, 0, (size_t)n * sizeof(REAL));
    for (int direction = 0; direction < 27; direction++) {
        const int moved = moved_in[direction], up = up_in[direction];
        if (!moved || moved & ~set) continue;
        const int rest = set & ~moved; /* what the neighbour lies between */
        REAL *g = towards[direction];
        ALONG(count) {
            g[x] = g[x] > 0 ? g[x] : 0;
            sum[x] += g[x];
        }
        for (int c = 0; c < CORNERS(AXES); c++) {
            if (c & ~rest) continue;
            REAL *own = fine->weight[weight_index(set, c | up)] + cell;
            if (rest)
                NAME(add_product)(own, g, fine->weight[weight_index(rest, c)] + cell + corner(small, up),
                                  count);
            else
                ALONG(count) own[x] += g[x];
        }
    }
    int any = 0;
    for (int64_t x = 0; x < count; x++) {
        const int loose = ties[x] > 0 && sum[x] <= (REAL)LOOSE * ties[x];
        any |= loose;
        ties[x] = (REAL)loose;
        sum[x] = !loose && sum[x] > 0 ? 1 / sum[x] : 0;
    }
    for (int c = 0; c < CORNERS(AXES); c++) {
        if (c & ~set) continue;
        REAL *own = fine->weight[weight_index(set, c)] + cell;
        ALONG(count) own[x] *= sum[x];
    }
    if (any) NAME(attach_run)(s, fine, set, ties, at, p, cell, start, count);
}

/* The margin of a set's weights. On an odd periodic axis the last coarse node's neighbour is the
 * first one, in the place of a node between. */
static void NAME(wrap_weights)(const struct NAME(rows) *fine, const struct grid *small, int set) {
    const struct grid *grid = &fine->grid;
    for (int c = 0; c < CORNERS(AXES); c++)
        if (!(c & ~set)) NAME(wrap_rows)(small, fine->weight[weight_index(set, c)]);
    for (int axis = 0; axis < AXES; axis++) {
        const int bit = 1 << (AXES - 1 - axis), even = set & ~bit;
        if (!(set & bit) || !grid->periodic[axis] || grid->n[axis] % 2 == 0) continue;
        const int64_t last = small->n[axis] - 1;
        for (int c = 0; c < CORNERS(AXES); c++) {
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
                REAL *face = fine->weight[weight_index(set, c)];
                const REAL *known = even ? fine->weight[weight_index(even, c & ~bit)] : NULL;
                for (int64_t z = from[0]; z <= to[0]; z++)
                    for (int64_t y = from[1]; y <= to[1]; y++)
                        for (int64_t x = from[2]; x <= to[2]; x++) {
                            const int64_t p = NAME(row)(small, z, y) + x;
                            face[p] = !(c & bit) != !side ? 0 : known ? known[p + shift] : 1;
                        }
            }
        }
    }
}

/* The share of the nodes of a set in n cells of a row from `start` on, and of their edges one way,
 * in the coarse network. */
APART void NAME(lump_run)(const struct NAME(alone) *s, const struct NAME(rows) *fine,
                          const struct NAME(rows) *coarse, int set, int o, int64_t z, int64_t y,
                          int64_t start, int64_t n) {
    const struct grid *grid = &fine->grid, *small = &coarse->grid;
    const int64_t cell = NAME(row)(small, z, y) + start;
    const int64_t at[2] = {(z << grid->halved[0]) + (set >> 2 & 1),
                           (y << grid->halved[1]) + (set >> 1 & 1)};
    if (at[0] >= grid->n[0] || at[1] >= grid->n[1]) return;
    const int64_t count = NAME(count_in)(grid, set, start, n);
    const int64_t p = NAME(row)(grid, at[0], at[1]) + (start << grid->halved[2]) + (set & 1);
    REAL *g = NAME(buffer)(s, 8);
    NAME(thin)(g, fine->edge[o] + p, count, grid->halved[2]);
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
    REAL *delta[8];
    int used[8] = {0};
    for (int c = 0; c < CORNERS(AXES); c++) delta[c] = NAME(buffer)(s, c);
    for (int c = 0; c < CORNERS(AXES); c++) {
        if (c & ~set) continue;
        const int k = c ^ lowest; /* an axis with `lowest` is none of the set's */
        const REAL *w = set ? fine->weight[weight_index(set, c)] + cell : NULL;
        used[k] = 1;
        if (w)
            memcpy(delta[k], w, (size_t)count * sizeof(REAL));
        else
            ALONG(count) delta[k][x] = 1;
    }
    for (int c = 0; c < CORNERS(AXES); c++) {
        if (c & ~other) continue;
        const int k = c | ahead;
        const REAL *w = other ? fine->weight[weight_index(other, c)] + cell + shift : NULL;
        REAL *to = delta[k];
        if (!used[k]) memset(to, 0, (size_t)count * sizeof(REAL));
        used[k] = 1;
        if (w)
            ALONG(count) to[x] -= w[x];
        else
            ALONG(count) to[x] -= 1;
    }
    for (int a = 0; a < 8; a++) {
        if (!used[a]) continue;
        REAL *share = NAME(buffer)(s, 9);
        ALONG(count) share[x] = g[x] * delta[a][x];
        for (int b = a + 1; b < 8; b++) {
            if (!used[b]) continue;
            /* lay_out() numbers the edges in this order. */
            const int direction = 9 * ((b >> 2 & 1) - (a >> 2 & 1)) + 3 * ((b >> 1 & 1) - (a >> 1 & 1)) +
                                  (b & 1) - (a & 1) - 1;
            REAL *to = coarse->edge[direction] + base + corner(small, a);
            const REAL *d = delta[b];
            ALONG(count) to[x] -= share[x] * d[x];
        }
    }
}

static void NAME(invert_rows)(const struct NAME(alone) *s, const struct NAME(rows) *l) {
    const struct grid *grid = &l->grid;
#pragma omp parallel for schedule(static) num_threads(NAME(num_threads)(s, grid))
    for (int64_t i = 0; i < rows(grid); i++) {
        const int64_t row = row_at(grid, i), n = grid->n[2];
        REAL *sum = l->inverse + row;
        const REAL *leak = l->leak + row;
        ALONG(n) sum[x] = leak[x];
        for (int o = 0; o < grid->steps; o++) {
            const REAL *after = l->edge[o] + row, *before = after - grid->step[o];
            ALONG(n)
            sum[x] += (after[x] < 0 ? -after[x] : after[x]) + (before[x] < 0 ? -before[x] : before[x]);
        }
        ALONG(n) sum[x] = sum[x] > 0 ? 1 / sum[x] : 0;
    }
}

static void NAME(coarsen_rows)(const struct NAME(alone) *s, const struct NAME(rows) *fine,
                               const struct NAME(rows) *coarse) {
    const struct grid *grid = &fine->grid, *small = &coarse->grid;
    const int halved = halved_set(grid), threads = NAME(num_threads)(s, grid);
    NAME(halve_runs)(fine, coarse, (uint8_t *)NAME(buffer)(s, 0));
    for (int size = 1; size <= AXES; size++)
        for (int set = 1; set < CORNERS(AXES); set++) {
            if (__builtin_popcount((unsigned)set) != size || set & ~halved) continue;
#pragma omp parallel for schedule(static) num_threads(threads)
            for (int64_t i = 0; i < rows(small); i++)
                EACH_RUN (coarse, i)
                    NAME(weigh_run)(s, fine, small, set, i / small->n[1], i % small->n[1], run[0],
                                    run[1] - run[0]);
            NAME(wrap_weights)(fine, small, set);
        }
    NAME(restrict_rows)(s, fine, coarse, fine->leak, coarse->leak);
    /* A slice writes into itself and the next one. */
    const int64_t slices = small->axes == 3 ? small->n[0] : small->n[1];
#pragma omp parallel num_threads(threads)
    for (int pass = 0; pass < 2; pass++) {
#pragma omp for schedule(static)
        for (int64_t slice = pass; slice < slices; slice += 2)
            for (int64_t across = 0; across < (small->axes == 3 ? small->n[1] : 1); across++) {
                const int64_t z = small->axes == 3 ? slice : 0, y = small->axes == 3 ? across : slice;
                for (int set = 0; set < CORNERS(AXES); set++)
                    for (int o = 0; o < grid->steps && !(set & ~halved); o++)
                        EACH_RUN (coarse, z * small->n[1] + y)
                            NAME(lump_run)(s, fine, coarse, set, o, z, y, run[0], run[1] - run[0]);
            }
    }
    for (int o = 0; o < small->steps; o++) {
        NAME(fold_rows)(small, coarse->edge[o]);
        NAME(wrap_rows)(small, coarse->edge[o]);
    }
    NAME(invert_rows)(s, coarse);
}

/* ---- The bottom: the elimination of eliminate.h, its band in the lanes ---- */

APART void NAME(factorize_alone)(const struct NAME(alone) *s) {
    const struct NAME(rows) *l = s->level + s->count - 1;
    const struct grid *grid = &l->grid;
    const int64_t band = s->order.band, all = s->order.nodes;
    REAL *leak = s->s;
    memset(s->mesh, 0, (size_t)(all * band) * sizeof(REAL));
    EACH_ROW (grid)
        for (int64_t x = 0; x < grid->n[2]; x++) {
            const int64_t at[AXES] = {z, y, x}, p = ROW(grid) + x;
            leak[place(grid, &s->order, at)] = l->leak[p];
            for (int o = 0; o < grid->steps; o++) {
                const int64_t entry = mesh_entry(grid, &s->order, at, o);
                if (entry >= 0) s->mesh[entry] += l->edge[o][p];
            }
        }
    for (int64_t i = 0; i < all; i++) {
        REAL *mesh = s->mesh + i * band;
        const int64_t later = all - 1 - i < band ? all - 1 - i : band;
        REAL sum = leak[i];
        for (int64_t q = 0; q < later; q++) sum += mesh[q];
        const REAL inverse = s->inverse[i] = sum > 0 ? 1 / sum : 0, lost = leak[i] * inverse;
        for (int64_t q = 0; q < later; q++) {
            const REAL share = mesh[q] * inverse;
            REAL *row = mesh + (q + 1) * band - q - 1; /* of node i + q + 1, from this one's q */
            leak[i + q + 1] += mesh[q] * lost;
            if (share != 0)
                _Pragma("GCC ivdep") for (int64_t r = q + 1; r < later; r++) row[r] += share * mesh[r];
        }
        ALONG(later) mesh[x] *= inverse;
    }
}

APART void NAME(bottom)(const struct NAME(alone) *s) {
    const struct NAME(rows) *l = s->level + s->count - 1;
    const struct grid *grid = &l->grid;
    const int64_t band = s->order.band, all = s->order.nodes;
    EACH_ROW (grid)
        for (int64_t x = 0; x < grid->n[2]; x++)
            s->s[place(grid, &s->order, (int64_t[]){z, y, x})] = l->r[ROW(grid) + x];
    for (int64_t i = 0; i < all; i++) {
        const int64_t later = all - 1 - i < band ? all - 1 - i : band;
        const REAL source = s->s[i], *mesh = s->mesh + i * band;
        REAL *to = s->s + i + 1;
        ALONG(later) to[x] += mesh[x] * source;
    }
    for (int64_t i = all - 1; i >= 0; i--) {
        const int64_t later = all - 1 - i < band ? all - 1 - i : band;
        const REAL *mesh = s->mesh + i * band, *from = s->s + i + 1;
        vec sum = {};
        int64_t q = 0;
        for (; q + LANES <= later; q += LANES) sum += NAME(load)(mesh + q) * NAME(load)(from + q);
        REAL v = s->s[i] * s->inverse[i] + NAME(total)(sum);
        for (; q < later; q++) v += mesh[q] * from[q];
        s->s[i] = v;
    }
    EACH_ROW (grid)
        for (int64_t x = 0; x < grid->n[2]; x++)
            l->x[ROW(grid) + x] = s->s[place(grid, &s->order, (int64_t[]){z, y, x})];
}

/* ---- Cycle and conjugate gradients ---- */

static void NAME(clear)(const struct NAME(alone) *s, const struct NAME(rows) *l) {
    const struct grid *grid = &l->grid;
#pragma omp parallel for schedule(static) num_threads(NAME(num_threads)(s, grid))
    for (int64_t i = 0; i < rows(grid); i++)
        EACH_RUN (l, i)
            memset(l->x + row_at(grid, i) + run[0], 0, (size_t)(run[1] - run[0]) * sizeof(REAL));
}

/* x of a level for its r, approximately: symmetric and linear in r. */
APART void NAME(cycle_alone)(const struct NAME(alone) *s, int index) {
    const struct NAME(rows) *l = s->level + index;
    struct NAME(rows) *coarse = (struct NAME(rows) *)l + 1;
    const struct grid *small = &coarse->grid;
    /* Sweeps of the finest level cost less than what else an iteration does; of coarser levels,
     * more of them gain nothing. */
    const int sweeps = index ? 1 : 2;
    if (index == s->count - 1) {
        NAME(bottom)(s);
        return;
    }
    NAME(clear)(s, l);
    for (int i = 0; i < sweeps; i++) NAME(relax)(s, l, 0);
    NAME(residual)(s, l, l->x, l->left);
    NAME(restrict_rows)(s, l, coarse, l->left, coarse->r);
    NAME(cycle_alone)(s, index + 1);
    if (index + 1 < s->count - 1) { /* a second visit for what the first one has left */
        REAL *first = coarse->first, *r = coarse->r;
        memcpy(first, coarse->x, (size_t)small->all * sizeof(REAL));
        NAME(residual)(s, coarse, coarse->x, coarse->left);
        memcpy(r, coarse->left, (size_t)small->all * sizeof(REAL));
        NAME(cycle_alone)(s, index + 1);
        REAL *to = coarse->x;
        ALONG(small->all) to[x] += first[x];
    }
    NAME(interpolate_rows)(s, l, coarse);
    for (int i = 0; i < sweeps; i++) NAME(relax)(s, l, 1);
}

/* The sum over nodes of what a block of code adds to `sum` for each vector at p, of which `left`
 * nodes or all count, chunk by chunk in a fixed order. s->part keeps what it makes of `most` there. */
#define SUM_ROWS(s, ...)                                                                                 \
    ({                                                                                                   \
        const struct NAME(rows) *finest = (s)->level;                                                    \
        const struct grid *grid = &finest->grid;                                                         \
        const int64_t count = NAME(chunks)(grid);                                                        \
        const int threads = NAME(num_threads)(s, grid);                                                  \
        _Pragma("omp parallel for schedule(static) num_threads(threads)") for (int64_t chunk = 0;        \
                                                                               chunk < count; chunk++) { \
            double part = 0;                                                                             \
            vec most[2] = {};                                                                            \
            for (int64_t i = chunk * NAME(chunk)(grid); i < NAME(chunk_end)(grid, chunk); i++) {         \
                const int64_t row = row_at(grid, i);                                                     \
                vec sum = {};                                                                            \
                EACH_RUN (finest, i)                                                                     \
                    for (int64_t k = run[0]; k < run[1]; k += LANES) {                                   \
                        const int64_t p = row + k, left = run[1] - k;                                    \
                        __VA_ARGS__                                                                      \
                    }                                                                                    \
                part += (double)NAME(total)(sum);                                                        \
            }                                                                                            \
            (s)->part[chunk] = part;                                                                     \
            for (int k = 0; k < 2; k++)                                                                  \
                (s)->part[(k + 1) * count + chunk] = (double)NAME(largest_lane)(most[k]);                \
        }                                                                                                \
        double sum = 0;                                                                                  \
        for (int64_t chunk = 0; chunk < count; chunk++) sum += (s)->part[chunk];                         \
        sum;                                                                                             \
    })

/* p = z + beta p and Ap = A p; returns p . Ap. */
APART double NAME(advance_alone)(const struct NAME(alone) *s, REAL beta) {
    const struct NAME(rows) *l = s->level;
    (void)SUM_ROWS(s, {
        NAME(store)(s->p + p, NAME(load)(l->x + p) + beta * NAME(load)(s->p + p), left);
        (void)sum;
    });
    NAME(wrap_rows)(&l->grid, s->p);
#define APPLY(steps)                                                      \
    SUM_ROWS(s, {                                                         \
        const vec Ap = -NAME(left_of)(steps, l, s->p, NAME(splat)(0), p); \
        NAME(store)(s->Ap + p, Ap, left);                                 \
        sum += NAME(lanes)(Ap * NAME(load)(s->p + p), left);              \
    })
    return l->grid.steps == 2 ? APPLY(2) : APPLY(3);
#undef APPLY
}

/* v += alpha p, r -= alpha Ap; returns r . r, and leaves max |alpha p| and max |v| in `largest`. What
 * rounding takes from v is kept in `low`. */
APART double NAME(move_alone)(const struct NAME(alone) *s, REAL alpha, double *largest) {
    const struct NAME(rows) *l = s->level;
    const double squares = SUM_ROWS(s, {
        const vec v = NAME(load)(s->v + p), step = alpha * NAME(load)(s->p + p);
        const vec next = v + step, added = next - v;
        const vec low = NAME(load)(s->low + p) + ((v - (next - added)) + (step - added));
        const vec r = NAME(load)(l->r + p) - alpha * NAME(load)(s->Ap + p);
        NAME(store)(s->v + p, next, left);
        NAME(store)(s->low + p, low, left);
        NAME(store)(l->r + p, r, left);
        sum += NAME(lanes)(r * r, left);
        most[0] = NAME(larger)(most[0], NAME(lanes)(step, left));
        most[1] = NAME(larger)(most[1], NAME(lanes)(next, left));
    });
    const int64_t count = NAME(chunks)(&l->grid);
    for (int k = 0; k < 2; k++) {
        largest[k] = 0;
        for (int64_t chunk = 0; chunk < count; chunk++) {
            const double of_chunk = s->part[(k + 1) * count + chunk];
            if (of_chunk > largest[k]) largest[k] = of_chunk;
        }
    }
    return squares;
}

APART double NAME(dot_alone)(const struct NAME(alone) *s, const REAL *a, const REAL *b) {
    return SUM_ROWS(s, { sum += NAME(lanes)(NAME(load)(a + p) * NAME(load)(b + p), left); });
}

/* Returns the deviation of stopping.h. */
APART double NAME(iterate_alone)(const struct NAME(alone) *s, const struct network_args *a,
                                 int32_t *iterations) {
    const struct NAME(rows) *l = s->level;
    const double sources = NAME(dot_alone)(s, l->r, l->r);
    struct progress progress = {INFINITY, 0};
    double left = 1, rz = 1, most[2];
    *iterations = 0;
    if (!(sources > 0)) return 0;
    while (*iterations < a->iterations_max) {
        NAME(cycle_alone)(s, 0);
        const double next = NAME(dot_alone)(s, l->r, l->x);
        const double pAp = NAME(advance_alone)(s, *iterations ? (REAL)(next / rz) : 0);
        rz = next;
        ++*iterations;
        /* No further: rounding, or a part of the network without leak. */
        if (!(pAp > 0) || !isfinite(rz)) break;
        const double squares = NAME(move_alone)(s, (REAL)(rz / pAp), most);
        left = deviation(&progress, squares, sources, most[0], most[1]);
        if (!(left > a->tolerance)) break;
    }
    return left;
}

/* ---- Tensors ---- */

/* `taken` values from the workspace at `at`, which is NULL while they are only counted. */
INLINE REAL *NAME(claim)(char *at, int64_t *taken, int64_t count) {
    char *start = at ? at + *taken : NULL;
    *taken += (count * (int64_t)sizeof(REAL) + 63) / 64 * 64;
    return (REAL *)start;
}

/* Lay a solver out in a workspace; returns its bytes. */
static int64_t NAME(place_alone)(const struct network_args *a, const struct plan *plan,
                                 struct NAME(alone) *s, char *at) {
    int64_t taken = 0;
    s->count = plan->count;
    s->threads = a->threads;
    for (int i = 0; i < plan->count; i++) {
        struct NAME(rows) *l = s->level + i;
        const struct grid *grid = plan->grid + i;
        l->grid = *grid;
        for (int o = 0; o < grid->steps; o++) l->edge[o] = NAME(claim)(at, &taken, grid->all);
        REAL **fields[] = {&l->leak, &l->inverse, &l->x, &l->r, &l->left, &l->first};
        for (int f = 0; f < (i ? 6 : 5); f++) *fields[f] = NAME(claim)(at, &taken, grid->all);
        for (int w = 0; w < weights(grid) && i + 1 < plan->count; w++)
            l->weight[w] = NAME(claim)(at, &taken, plan->grid[i + 1].all);
        const int64_t entries = rows(grid) * NAME(run_width)(grid);
        l->runs = (int32_t *)NAME(claim)(at, &taken, entries * 4 / (int64_t)sizeof(REAL) + 1);
    }
    REAL **fields[] = {&s->v, &s->low, &s->p};
    for (int f = 0; f < 3; f++) *fields[f] = NAME(claim)(at, &taken, plan->grid->all);
    s->Ap = s->level->left; /* not needed at the same time */
    s->order = elimination_order(plan->grid + plan->count - 1);
    s->mesh = NAME(claim)(at, &taken, s->order.nodes * s->order.band);
    s->inverse = NAME(claim)(at, &taken, s->order.nodes);
    s->s = NAME(claim)(at, &taken, s->order.nodes);
    s->width = plan->grid->stride[1] + 2 * LANES;
    s->buffer = NAME(claim)(at, &taken, a->threads * BUFFERS * s->width);
    s->part =
        (double *)NAME(claim)(at, &taken, 3 * NAME(chunks)(plan->grid) * (int64_t)(8 / sizeof(REAL)));
    return taken;
}

#define READ(type, convert)                                                    \
    {                                                                          \
        const type *from = (const type *)f->at + origin;                       \
        for (int64_t x = 0; x < n; x++) to[x] = (REAL)convert(from[x * step]); \
    }                                                                          \
    break;

static void NAME(read_rows)(const struct NAME(alone) *s, const struct network_field *f, int64_t network,
                            REAL *field) {
    const struct grid *grid = &s->level->grid;
    const int64_t step = f->node[2], n = grid->n[2];
#pragma omp parallel for schedule(static) num_threads(NAME(num_threads)(s, grid))
    for (int64_t i = 0; i < rows(grid); i++) {
        const int64_t origin = network + i / grid->n[1] * f->node[0] + i % grid->n[1] * f->node[1];
        REAL *to = field + row_at(grid, i);
        switch (f->type) {
        case DTYPE_FLOAT32: READ(float, )
        case DTYPE_FLOAT64: READ(double, )
        case DTYPE_BFLOAT16: READ(uint16_t, widen_bfloat16)
        default: READ(uint16_t, widen_float16)
        }
    }
}
#undef READ

/* Largest magnitude; NaN where any value is no finite number. */
static double NAME(largest)(const struct grid *grid, const REAL *field) {
    vec most = {}, bad = {};
    EACH_ROW (grid)
        for (int64_t x = 0; x < grid->n[2]; x += LANES) {
            const vec value = NAME(lanes)(NAME(load)(field + ROW(grid) + x), grid->n[2] - x);
            most = NAME(larger)(most, value);
            bad += value * 0;
        }
    return (double)(NAME(largest_lane)(most) + NAME(total)(bad));
}

static void NAME(solve_alone)(const struct network_args *a, const struct NAME(alone) *s,
                              int64_t network) {
    const struct NAME(rows) *l = s->level;
    const struct grid *grid = &l->grid;
    double finite = 0;
    for (int o = 0; o < grid->steps; o++) {
        const int axis = AXES - 1 - o;
        NAME(read_rows)(s, &a->edges[axis], first_element(a, &a->edges[axis], network), l->edge[o]);
        if (!grid->periodic[axis]) {
            struct grid last = *grid;
            last.first += (grid->n[axis] - 1) * grid->stride[axis];
            last.n[axis] = 1;
            EACH_ROW (&last) memset(l->edge[o] + ROW(&last), 0, (size_t)last.n[2] * sizeof(REAL));
        }
        finite += 0 * NAME(largest)(grid, l->edge[o]);
        NAME(wrap_rows)(grid, l->edge[o]);
    }
    NAME(read_rows)(s, &a->leak, first_element(a, &a->leak, network), l->leak);
    NAME(read_rows)(s, &a->source, first_element(a, &a->source, network), l->r);
    NAME(invert_rows)(s, l);
    NAME(find_runs)(s, l);
    finite += 0 * (NAME(largest)(grid, l->leak) + NAME(largest)(grid, l->r));
    EACH_ROW (grid) { /* a node without edge and leak is none of the network's */
        REAL *r = l->r + ROW(grid);
        const REAL *inverse = l->inverse + ROW(grid);
        for (int64_t x = 0; x < grid->n[2]; x++) r[x] = inverse[x] > 0 ? r[x] : 0;
    }
    int32_t iterations = 0;
    double left = finite;
    REAL scale = (REAL)finite;
    if (finite == 0) {
        const int exponent = NAME(exponent)((REAL)NAME(largest)(grid, l->r));
        scale = (REAL)ldexp(1, exponent);
        const REAL down = (REAL)ldexp(1, -exponent);
        EACH_ROW (grid)
            for (int64_t x = 0; x < grid->n[2]; x++) l->r[ROW(grid) + x] *= down;
        for (int i = 0; i + 1 < s->count; i++) NAME(coarsen_rows)(s, l + i, l + i + 1);
        NAME(factorize_alone)(s);
        left = NAME(iterate_alone)(s, a, &iterations);
    }
    const struct network_field *f = &a->potential;
    REAL *to = (REAL *)f->at + first_element(a, f, network);
#pragma omp parallel for schedule(static) num_threads(NAME(num_threads)(s, grid))
    for (int64_t i = 0; i < rows(grid); i++) {
        const int64_t row = row_at(grid, i), z = i / grid->n[1], y = i % grid->n[1];
        for (int64_t x = 0; x < grid->n[2]; x++)
            to[z * f->node[0] + y * f->node[1] + x * f->node[2]] =
                (s->v[row + x] + s->low[row + x]) * scale;
    }
    a->iterations[network] = iterations;
    a->deviation[network] = left;
}

/* One after the other. */
static void NAME(run_alone)(const struct network_args *a, const struct plan *plan) {
    struct NAME(alone) s = {0};
    const int64_t bytes = NAME(place_alone)(a, plan, &s, a->workspace);
    for (int64_t i = 0; i < a->batches * a->channels; i++) {
        /* Margins stay zero but for periodic axes, and so does what no run visits. */
        if (i) memset(a->workspace, 0, (size_t)bytes);
        NAME(solve_alone)(a, &s, i);
    }
}

#undef ALONG
#undef SUM_ROWS
#undef EACH_RUN
