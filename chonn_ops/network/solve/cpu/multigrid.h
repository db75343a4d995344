/* Conjugate gradients, preconditioned by one cycle of aggregation: a coarse node is a pair of nodes, or
 * a square or cube of them, with one potential. Edges between coarse nodes are sums of the edges between
 * their nodes, halved along halved axes, where such potentials make them twice as strong as they are in
 * smooth media (over-correction: D. Braess, Computing 55 (1995) 379). So a coarse network has the edges of
 * a grid again. Sweeps are incomplete factorisations. */

struct level {
    struct grid grid;
    vec *edge[AXES]; /* conductance to the next node along an axis */
    vec *leak, *inverse; /* inverse: of the pivots of the incomplete factorisation */
    vec *x, *r, *t; /* solution, source, what a sweep adds */
};

struct part { /* of a chunk */
    double sum[LANES];
    vec most[2];
};

struct solver {
    int count, threads; /* of levels; that share a network */
    struct level level[LEVELS_MAX];
    vec *v, *low, *p, *Ap; /* low: what v + low has beyond v */
    struct part *part;
    struct order order; /* of the coarsest level */
    REAL *mesh, *inverse, *sum; /* see `factorize_coarsest` */
};

static int threads_for(const struct solver *s, const struct grid *grid) {
    return grid->nodes < NETWORK_PARALLEL ? 1 : s->threads;
}

#define EACH_CHUNK(s, grid, first, step)                                        \
    PRAGMA(omp parallel for schedule(static) num_threads(threads_for(s, grid))) \
    for (int64_t chunk = first; chunk < chunks(grid); chunk += step)
/* Rows of planes have no edges across: what a loop does is compiled for both. */
#define FOR_AXES(grid, loop, ...) \
    if ((grid)->n[1] > 1) {       \
        loop(3, __VA_ARGS__);     \
    } else {                      \
        loop(2, __VA_ARGS__);     \
    }

/* ---- Margins ---- */

/* Nodes of one plane to the margin beside another: those of slabs to the next lane, or down, to the
 * lane before. */
static void carry(const struct grid *grid, const vec *from, vec *to, int64_t n, int down) {
    const int last = grid->slabs - 1;
    if (last < 1) {
        memcpy(to, from, (size_t)n * sizeof(vec));
        return;
    }
    memcpy((REAL *)to + !down, (const REAL *)from + down, (size_t)n * sizeof(vec) - sizeof(REAL));
    for (int64_t x = 0; x < n; x++) to[x][down ? last : 0] = from[x][down ? 0 : last];
}

static void wrap(const struct grid *grid, vec *at) {
    const int64_t *n = grid->n, across = grid->stride[1], plane = grid->stride[0];
    if (grid->periodic[0] || grid->slabs > 1) {
        carry(grid, at + n[0] * plane, at, plane, 0);
        carry(grid, at + plane, at + (n[0] + 1) * plane, plane, 1);
    }
    for (int64_t z = 0; z < n[0]; z++) {
        vec *row = at + row_of(grid, z, 0);
        if (grid->periodic[1]) {
            memcpy(row - across, row + (n[1] - 1) * across, (size_t)n[2] * sizeof(vec));
            memcpy(row + n[1] * across, row, (size_t)n[2] * sizeof(vec));
        }
        for (int64_t y = 0; y < n[1] && grid->periodic[2]; y++, row += across)
            row[-1] = row[n[2] - 1], row[n[2]] = row[0];
    }
}

/* ---- Sweeps ----
 *
 * x += M^-1 (r - A x), with M = L D^-1 L^T an incomplete factorisation of A without fill-in (J. A.
 * Meijerink, H. A. van der Vorst, Math. Comp. 31 (1977) 148): colour after colour, row after row, node
 * after node. Nodes that only a few strong edges tie, as in thin conductors, it eliminates as a whole
 * factorisation does.
 * Edges across the seam of a periodic axis are left out of L. No result depends on the number of
 * threads. */

/* With the star-mesh law a pivot is a sum: of edges to later nodes, and of the rest, which is the leak,
 * edges that are left out, and of each earlier neighbour q its edge times the other terms of its
 * pivot, over that pivot. Sides are numbered as in `rows_beside`, 4 and 5 lie in the row. */
static void factorize_row(const struct level *l, int64_t z, int64_t y) {
    const struct grid *grid = &l->grid;
    const int64_t *n = grid->n, *stride = grid->stride, row = row_of(grid, z, y);
    const int earlier = earlier_rows(grid, z, y), beside = rows_beside(grid, z, y);
    int64_t rows[4]; /* those beside, and which are visited later than these */
    int later_rows[6];
    for (int side = 0; side < 6; side++) {
        const int64_t step = side % 2 ? 1 : -1;
        const int64_t at[2] = {side < 2 ? (z + step + n[0]) % n[0] : z, side / 2 == 1 ? y + step : y};
        if (side < 4) rows[side] = row_of(grid, at[0], at[1]);
        later_rows[side] = rows_beside(grid, at[0], at[1]) & ~earlier_rows(grid, at[0], at[1]);
    }
    for (int64_t x = 0; x < n[2]; x++) {
        const int sides = beside | (x > 0) << 4 | (x + 1 < n[2]) << 5;
        vec rest = l->leak[row + x], later = {};
        for (int side = 0; side < 6; side++) {
            const int axis = side / 2, after = side % 2;
            if (length(grid, axis) == 1) continue;
            const vec g = l->edge[axis][after ? row + x : row + x - stride[axis]];
            if (!(sides >> side & 1)) {
                rest += g;
                continue;
            }
            if (!((earlier | 16) >> side & 1)) {
                later += g;
                continue;
            }
            const int64_t q = side < 4 ? rows[side] + x : row + x - 1;
            const int of_q = later_rows[side] | (side == 4 || x + 1 < n[2]) << 5;
            vec others = l->t[q];
            for (int other = 0; other < 6; other++)
                if (other != (side ^ 1) && of_q >> other & 1)
                    others += l->edge[other / 2][other % 2 ? q : q - stride[other / 2]];
            others *= l->inverse[q];
            if (side == 1 && z + 1 == n[0]) { /* the first plane of the next lane */
                const vec own = others;
                carry(grid, &own, &others, 1, 1);
            }
            rest += g * others;
        }
        l->t[row + x] = rest;
        l->inverse[row + x] = inverse_of(rest + later);
    }
}

APART void factorize_chunk(const struct level *l, int64_t chunk) {
    EACH_ROW (box_of(&l->grid, chunk)) factorize_row(l, z, y);
}

/* Margins of conductances, where lanes without a slab have none, and the factorisation. */
static void finish(const struct solver *s, const struct level *l) {
    const struct grid *grid = &l->grid;
    for (int axis = 0; axis < AXES; axis++)
        if (length(grid, axis) > 1) wrap(grid, l->edge[axis]);
    for (int64_t x = 0; x < grid->stride[0] && grid->slabs; x++)
        for (int k = grid->slabs; k < LANES; k++) l->edge[0][x][k] = 0;
    for (int colour = 0; colour < 2; colour++) EACH_CHUNK(s, grid, colour, 2) factorize_chunk(l, chunk);
}

/* The current that leaves a node through edges and leak. */
INLINE vec outflow(const int axes, const struct level *l, const vec *x, int64_t p) {
    const vec own = x[p];
    vec sum = l->leak[p] * own;
    for (int i = 0; i < axes; i++) {
        const int axis = i == 2 ? 1 : 2 * i;
        const int64_t step = axis == 2 ? 1 : l->grid.stride[axis];
        sum += l->edge[axis][p] * (own - x[p + step]) + l->edge[axis][p - step] * (own - x[p - step]);
    }
    return sum;
}

/* What the rows beside a node that `rows` names give to it. */
INLINE vec from_rows(const int axes, const struct level *l, int rows, int64_t p, vec sum) {
    const int64_t far = l->grid.stride[0], across = l->grid.stride[1];
    if (rows & 1) sum += l->edge[0][p - far] * l->t[p - far];
    if (rows & 2) sum += l->edge[0][p] * l->t[p + far];
    if (axes > 2 && rows & 4) sum += l->edge[1][p - across] * l->t[p - across];
    if (axes > 2 && rows & 8) sum += l->edge[1][p] * l->t[p + across];
    return sum;
}

/* t = D^-1 L^-1 (r - A x) of a row; `fresh`: x counts as 0. */
INLINE void eliminate_row(const int axes, const struct level *l, int64_t row, int earlier, int fresh) {
    vec before = {};
    for (int64_t p = row; p < row + l->grid.n[2]; p++) {
        vec sum = l->r[p];
        if (!fresh) sum -= outflow(axes, l, l->x, p);
        sum = from_rows(axes, l, earlier, p, sum);
        l->t[p] = before = (sum + l->edge[2][p - 1] * before) * l->inverse[p];
    }
}

/* t = L^-T D t, and x += t, of a row. */
INLINE void substitute_row(const int axes, const struct level *l, int64_t row, int later, int fresh) {
    vec after = {};
    for (int64_t p = row + l->grid.n[2] - 1; p >= row; p--) {
        const vec sum = from_rows(axes, l, later, p, l->edge[2][p] * after);
        l->t[p] = after = l->t[p] + sum * l->inverse[p];
        l->x[p] = fresh ? after : l->x[p] + after;
    }
}

APART void relax_chunk(const struct level *l, int64_t chunk, int backwards, int fresh) {
    const struct grid *grid = &l->grid;
    const struct box box = box_of(grid, chunk);
    const int64_t wide = box.end[1] - box.start[1], count = (box.end[0] - box.start[0]) * wide;
    for (int64_t i = 0; i < count; i++) {
        const int64_t at = backwards ? count - 1 - i : i, z = box.start[0] + at / wide;
        const int64_t y = box.start[1] + at % wide, row = row_of(grid, z, y);
        const int earlier = earlier_rows(grid, z, y), later = rows_beside(grid, z, y) & ~earlier;
        if (backwards) {
            FOR_AXES(grid, substitute_row, l, row, later, fresh)
        } else {
            FOR_AXES(grid, eliminate_row, l, row, earlier, fresh)
        }
        /* To the margin of the slabs that wait for these rows. */
        const int64_t ring = grid->n[0] * grid->stride[0];
        if (grid->slabs > 1 && z == (backwards ? grid->n[0] - 1 : 0))
            carry(grid, l->t + row, l->t + (backwards ? row - ring : row + ring), grid->n[2], !backwards);
    }
}

static void relax(const struct solver *s, const struct level *l, int fresh) {
    if (!fresh) wrap(&l->grid, l->x);
    for (int pass = 0; pass < 4; pass++) /* both colours and back */
        EACH_CHUNK(s, &l->grid, pass == 1 || pass == 2, 2) relax_chunk(l, chunk, pass > 1, fresh);
}

/* ---- Between levels ---- */

/* Lanes 0, 2, 4, ... of a vector, or 1, 3, 5, ... */
INLINE vec every_second(vec value, int odd) {
    vec found = {};
    for (int k = 0; k < LANES / 2; k++) found[k] = value[2 * k + odd];
    return found;
}

INLINE void add_to_coarse(const struct level *fine, const struct level *coarse, vec *to, int64_t p,
                          vec value) {
    if (!fine->grid.split) {
        to[p] += value;
        return;
    }
    to[p] += every_second(value, 0);
    to[p + coarse->grid.stride[0]] += every_second(value, 1);
}

static void coarsen(const struct solver *s, const struct level *fine, const struct level *coarse) {
    const struct grid *grid = &fine->grid;
    EACH_ROW (whole(grid)) {
        const int64_t to = coarse_row(grid, &coarse->grid, z, y), row = row_of(grid, z, y);
        for (int64_t x = 0; x < grid->n[2]; x++) {
            const int64_t at[AXES] = {z, y, x}, p = row + x, q = to + (x >> grid->halved[2]);
            add_to_coarse(fine, coarse, coarse->leak, q, fine->leak[p]);
            for (int axis = 0; axis < AXES; axis++) {
                const int inside =
                    grid->halved[axis] && at[axis] % 2 == 0 && at[axis] + 1 < grid->n[axis];
                if (inside || length(&coarse->grid, axis) == 1) continue;
                const vec g = fine->edge[axis][p] * (REAL)(grid->halved[axis] ? 0.5 : 1);
                add_to_coarse(fine, coarse, coarse->edge[axis], q, g);
            }
        }
    }
    finish(s, coarse);
}

INLINE void restrict_row(const int axes, const struct level *fine, const struct level *coarse,
                         int64_t row, int64_t to) {
    for (int64_t x = 0; x < fine->grid.n[2]; x++) {
        const vec left = fine->r[row + x] - outflow(axes, fine, fine->x, row + x);
        add_to_coarse(fine, coarse, coarse->r, to + (x >> fine->grid.halved[2]), left);
    }
}

APART void restrict_chunk(const struct level *fine, const struct level *coarse, int64_t chunk) {
    const struct grid *grid = &fine->grid;
    EACH_ROW (box_of(grid, chunk)) {
        const int64_t row = row_of(grid, z, y), to = coarse_row(grid, &coarse->grid, z, y);
        FOR_AXES(grid, restrict_row, fine, coarse, row, to);
    }
}

APART void prolong_chunk(const struct level *fine, const struct level *coarse, int64_t chunk) {
    const struct grid *grid = &fine->grid;
    EACH_ROW (box_of(grid, chunk)) {
        const int64_t from = coarse_row(grid, &coarse->grid, z, y);
        vec *to = fine->x + row_of(grid, z, y);
        const vec *exists = fine->inverse + row_of(grid, z, y); /* else the potential stays 0 */
        for (int64_t x = 0; x < grid->n[2]; x++) {
            const vec *at = coarse->x + from + (x >> grid->halved[2]);
            vec value = *at;
            for (int k = 0; k < LANES && grid->split; k++)
                value[k] = at[k % 2 ? coarse->grid.stride[0] : 0][k / 2];
            to[x] += where(exists[x] > 0, value);
        }
    }
}

/* ---- The coarsest level ----
 *
 * Elimination by the star-mesh law: a node with the conductances g to its later neighbours and the leak
 * l goes, and with t = sum g + l
 *     g_qr += g_q g_r / t,   l_q += g_q l / t,   s_q += g_q s / t,   v = s / t + sum g_q v_q / t.
 * No difference is taken, so no contrast and no small leak loses digits. Numbers of a node are `width`:
 * one of each lane, or one for all slabs together. */

/* Nodes of the coarsest level: p of lane `lane` is place(at). */
#define EACH_PLACE(s, l)                                                                       \
    for (int lane = 0; lane < ((l)->grid.slabs ? (l)->grid.slabs : 1); lane++)                 \
        EACH_ROW (whole(&(l)->grid))                                                           \
            for (int64_t x = 0, p = row_of(&(l)->grid, z, y), i; x < (l)->grid.n[2]; x++, p++) \
                if (i = place(&(l)->grid, &(s)->order, (int64_t[]){lane * (l)->grid.n[0] + z, y, x}), 1)

/* to += share from, n times */
INLINE void add_multiple(const int width, REAL *to, const REAL *from, const REAL *share, int64_t n) {
    if (width == 1) {
        const REAL factor = *share;
        ALONG(n) to[x] += factor * from[x];
    } else {
        const vec factor = *(const vec *)share;
        ALONG(n)((vec *)to)[x] += factor * ((const vec *)from)[x];
    }
}

/* Fills `mesh` (nodes, band, width), the edges to the `band` next nodes over t, and 1 / t. */
INLINE void eliminate(const int width, const struct solver *s) {
    const int64_t band = s->order.band, nodes = s->order.nodes;
    for (int64_t i = 0; i < nodes; i++) {
        REAL *mesh = s->mesh + i * band * width, *leak = s->sum + i * width, share[LANES], lost[LANES];
        REAL *inverse = s->inverse + i * width;
        const int64_t later = nodes - 1 - i < band ? nodes - 1 - i : band;
        for (int k = 0; k < width; k++) {
            REAL t = leak[k];
            for (int64_t q = 0; q < later; q++) t += mesh[q * width + k];
            inverse[k] = t > 0 ? 1 / t : 0;
            lost[k] = leak[k] * inverse[k];
        }
        for (int64_t q = 0; q < later; q++) {
            int any = 0;
            for (int k = 0; k < width; k++) {
                share[k] = mesh[q * width + k] * inverse[k];
                leak[(q + 1) * width + k] += mesh[q * width + k] * lost[k];
                any |= share[k] != 0;
            }
            REAL *row = mesh + (q + 1) * (band - 1) * width; /* of node i + q + 1, from this one's q on */
            if (any)
                add_multiple(width, row + (q + 1) * width, mesh + (q + 1) * width, share, later - q - 1);
        }
        for (int64_t q = 0; q < later; q++)
            for (int k = 0; k < width; k++) mesh[q * width + k] *= inverse[k];
    }
}

APART void factorize_coarsest(const struct solver *s) {
    const struct level *l = s->level + s->count - 1;
    const struct grid *grid = &l->grid;
    const int width = grid->slabs ? 1 : LANES;
    const struct order *order = &s->order;
    memset(s->mesh, 0, (size_t)(order->nodes * order->band * width) * sizeof(REAL));
    EACH_PLACE (s, l) {
        memcpy(s->sum + i * width, (REAL *)(l->leak + p) + lane, (size_t)width * sizeof(REAL));
        for (int axis = 0; axis < AXES; axis++) {
            int64_t at[AXES] = {lane * grid->n[0] + z, y, x};
            if (++at[axis] == length(grid, axis)) {
                if (!grid->periodic[axis]) continue;
                at[axis] = 0;
            }
            const int64_t other = place(grid, order, at), first = i < other ? i : other;
            REAL *to = s->mesh + (first * order->band + (i < other ? other : i) - first - 1) * width;
            for (int k = 0; k < width; k++) to[k] += ((REAL *)(l->edge[axis] + p))[lane + k];
        }
    }
    if (width == 1)
        eliminate(1, s);
    else
        eliminate(LANES, s);
}

INLINE void substitute(const int width, const struct solver *s) {
    const int64_t band = s->order.band, nodes = s->order.nodes;
    for (int64_t i = 0; i < nodes; i++) {
        const int64_t later = nodes - 1 - i < band ? nodes - 1 - i : band;
        REAL *at = s->sum + i * width;
        add_multiple(width, at + width, s->mesh + i * band * width, at, later);
    }
    for (int64_t i = nodes - 1; i >= 0; i--) {
        const int64_t count = (nodes - 1 - i < band ? nodes - 1 - i : band) * width;
        const REAL *mesh = s->mesh + i * band * width;
        REAL *at = s->sum + i * width;
        const REAL *from = at + width;
        vec sum = {}, a, b;
        int64_t q = 0;
        for (; q + LANES <= count; q += LANES) {
            memcpy(&a, mesh + q, sizeof a);
            memcpy(&b, from + q, sizeof b);
            sum += a * b;
        }
        for (int k = 0; k < width; k++) at[k] *= s->inverse[i * width + k];
        for (int k = 0; k < LANES; k++) at[k % width] += sum[k];
        for (; q < count; q++) at[0] += mesh[q] * from[q]; /* of slabs */
    }
}

/* x of the coarsest level for its r. */
APART void solve_coarsest(const struct solver *s) {
    const struct level *l = s->level + s->count - 1;
    const int width = l->grid.slabs ? 1 : LANES;
    const size_t size = (size_t)width * sizeof(REAL);
    EACH_PLACE (s, l) memcpy(s->sum + i * width, (REAL *)(l->r + p) + lane, size);
    if (width == 1)
        substitute(1, s);
    else
        substitute(LANES, s);
    EACH_PLACE (s, l) memcpy((REAL *)(l->x + p) + lane, s->sum + i * width, size);
}

/* Improves x of a level for its r, or finds x, where it is `fresh`: what it adds is symmetric and linear
 * in what x leaves of r. The coarsest level is solved, and those below one halved axis are visited
 * once only. */
static void cycle(const struct solver *s, int index, int fresh) {
    const struct level *l = s->level + index, *coarse = l + 1;
    const struct grid *grid = &l->grid;
    if (index + 1 == s->count) {
        solve_coarsest(s);
        return;
    }
    relax(s, l, fresh);
    wrap(grid, l->x);
    memset(coarse->r, 0, (size_t)coarse->grid.all * sizeof(vec));
    EACH_CHUNK(s, grid, 0, 1) restrict_chunk(l, coarse, chunk);
    cycle(s, index + 1, 1);
    if (grid->halved[0] + grid->halved[1] + grid->halved[2] > 1 && index + 2 < s->count)
        cycle(s, index + 1, 0);
    EACH_CHUNK(s, grid, 0, 1) prolong_chunk(l, coarse, chunk);
    relax(s, l, 0);
}

/* ---- Conjugate gradients ---- */

/* The sum of each network over its nodes of what a block of code adds to `sum` at p, chunk by chunk in
 * a fixed order; `largest`, NULL or twice LANES: the most of what it makes of `most`. */
#define SUM_NODES(s, sums, largest, ...)                                            \
    {                                                                               \
        const struct grid *finest = &(s)->level->grid;                              \
        EACH_CHUNK(s, finest, 0, 1) {                                               \
            struct part part = {0};                                                 \
            EACH_ROW (box_of(finest, chunk)) {                                      \
                const int64_t row = row_of(finest, z, y), end = row + finest->n[2]; \
                vec sum = {}, *const most = part.most;                              \
                (void)most;                                                         \
                for (int64_t p = row; p < end; p++) __VA_ARGS__                     \
                for (int k = 0; k < LANES; k++) part.sum[k] += (double)sum[k];      \
            }                                                                       \
            (s)->part[chunk] = part;                                                \
        }                                                                           \
        add_parts(s, sums, largest);                                                \
    }

/* Networks in lanes have sums of their own, slabs the same one. */
static void add_parts(const struct solver *s, double *sums, double *largest) {
    const struct grid *grid = &s->level->grid;
    const int64_t count = chunks(grid);
    double sum[LANES] = {0}, most[2 * LANES] = {0};
    for (int64_t chunk = 0; chunk < count; chunk++)
        for (int k = 0; k < LANES; k++) {
            const struct part *part = s->part + chunk;
            const int to = grid->slabs ? 0 : k;
            sum[to] += part->sum[k];
            for (int m = 0; m < 2; m++) {
                const double value = (double)part->most[m][k];
                if (value > most[m * LANES + to]) most[m * LANES + to] = value;
            }
        }
    for (int k = 0; k < LANES; k++) {
        const int from = grid->slabs ? 0 : k;
        sums[k] = sum[from];
        for (int m = 0; m < 2 && largest; m++) largest[m * LANES + k] = most[m * LANES + from];
    }
}

/* p = z + beta p and Ap = A p, with z the x of the finest level; pAp = p . Ap. */
APART void advance(const struct solver *s, const double *betas, double *pAp) {
    const struct level *l = s->level;
    const vec beta = from_doubles(betas);
    SUM_NODES(s, pAp, NULL, {
        s->p[p] = l->x[p] + beta * s->p[p];
        (void)sum;
    })
    wrap(&l->grid, s->p);
#define APPLY(axes, s)                                           \
    SUM_NODES(s, pAp, NULL, {                                    \
        const vec Ap = (s)->Ap[p] = outflow(axes, l, (s)->p, p); \
        sum += Ap * (s)->p[p];                                   \
    })
    FOR_AXES(&l->grid, APPLY, s);
#undef APPLY
}

/* v += alpha p and r -= alpha Ap, where alpha is not 0: p of a network that has stopped may be no
 * number. squares = r . r; largest: max |alpha p|, then max |v|. What rounding takes from v is kept
 * in `low`. */
APART void move(const struct solver *s, const double *alphas, double *squares, double *largest) {
    const struct level *l = s->level;
    const vec alpha = from_doubles(alphas);
    const mask moves = alpha != 0;
    SUM_NODES(s, squares, largest, {
        const vec v = s->v[p], step = where(moves, alpha * s->p[p]);
        const vec next = v + step, added = next - v;
        const vec r = l->r[p] - where(moves, alpha * s->Ap[p]);
        s->low[p] += (v - (next - added)) + (step - added);
        s->v[p] = next;
        l->r[p] = r;
        sum += r * r;
        most[0] = larger(most[0], step);
        most[1] = larger(most[1], next);
    })
}

APART void dot(const struct solver *s, const vec *a, const vec *b, double *sums) {
    SUM_NODES(s, sums, NULL, { sum += a[p] * b[p]; })
}

/* Leaves the deviations of stopping.h; networks whose poison is not 0 stay as they are. */
static void iterate(const struct solver *s, const struct network_args *a, const double *poison,
                    int32_t *iterations, double *deviations) {
    const struct level *l = s->level;
    double sources[LANES], squares[LANES], largest[2 * LANES], rz[LANES], pAp[LANES];
    struct progress progress[LANES];
    int active[LANES], running = 0;
    dot(s, l->r, l->r, sources);
    for (int k = 0; k < LANES; k++) {
        progress[k] = (struct progress){INFINITY, 0};
        active[k] = sources[k] > 0 && poison[k] == 0;
        deviations[k] = sources[k] > 0;
        iterations[k] = 0;
        rz[k] = 1;
        running += active[k];
    }
    for (int count = 0; running && count < a->iterations_max; count++) {
        double rz_next[LANES], beta[LANES] = {0}, alpha[LANES] = {0};
        cycle(s, 0, 1);
        dot(s, l->r, l->x, rz_next);
        for (int k = 0; k < LANES; k++)
            if (active[k] && count) beta[k] = rz_next[k] / rz[k];
        memcpy(rz, rz_next, sizeof rz);
        advance(s, beta, pAp);
        for (int k = 0; k < LANES; k++) {
            if (!active[k]) continue;
            iterations[k]++;
            if (pAp[k] > 0 && isfinite(rz[k])) {
                alpha[k] = rz[k] / pAp[k];
            } else { /* no further: rounding, or a part of the network without leak */
                active[k] = 0;
                running--;
            }
        }
        if (!running) break;
        move(s, alpha, squares, largest);
        for (int k = 0; k < LANES; k++) {
            if (!active[k]) continue;
            deviations[k] =
                deviation(progress + k, squares[k], sources[k], largest[k], largest[LANES + k]);
            if (!(deviations[k] > a->tolerance)) {
                active[k] = 0;
                running--;
            }
        }
    }
}

/* ---- Calls ---- */

static void pack(const struct network_args *a, const struct solver *s, const struct network_field *f,
                 struct group group, vec *to) {
    const struct grid *grid = &s->level->grid;
    EACH_CHUNK(s, grid, 0, 1)
    EACH_ROW (box_of(grid, chunk)) {
        int64_t at[LANES];
        const int width = origins(a, f, grid, group, z, y, at);
        pack_row(f, width, at, grid->n[2], to + row_of(grid, z, y));
    }
}

/* The last entry along an axis counts on periodic axes of more than one node only. A plane that a slab
 * of a periodic axis lacks is one of nodes in the middle of edges: two edges in series. */
static void pack_edges(const struct network_args *a, const struct solver *s, int axis, struct group group,
                       vec *to) {
    const struct grid *grid = &s->level->grid;
    const int64_t *n = grid->n, plane = grid->stride[0], last = a->grid[axis] - 1;
    pack(a, s, &a->edges[axis], group, to);
    if (axis == 0 && grid->periodic[0]) {
        for (int k = first_short(a, grid); k < grid->slabs; k++)
            for (int64_t p = row_of(grid, n[0] - 1, 0), end = p + n[1] * grid->stride[1]; p < end; p++)
                to[p][k] = to[p - plane][k] *= 2;
    } else if (!grid->periodic[axis]) {
        struct box ends = whole(grid);
        if (axis < 2) ends.start[axis] = last % n[axis], ends.end[axis] = last % n[axis] + 1;
        EACH_ROW (ends)
            for (int64_t x = axis == 2 ? last : 0, row = row_of(grid, z, y); x < n[2]; x++)
                for (int k = 0; k < LANES; k++)
                    if (axis || !grid->slabs || k == last / n[0]) to[row + x][k] = 0;
    }
}

/* Largest magnitudes of a field; poison += 0, or NaN where any value is not finite. */
static void survey(const struct solver *s, const vec *field, double *poison, double *largest) {
    double bad[LANES];
    SUM_NODES(s, bad, largest, {
        most[0] = larger(most[0], field[p]);
        sum += field[p] * 0;
    })
    for (int k = 0; k < LANES; k++) poison[k] += bad[k];
}

static void solve_group(const struct network_args *a, const struct solver *s, struct group group) {
    const struct level *l = s->level;
    const struct grid *grid = &l->grid;
    double poison[LANES] = {0}, largest[2 * LANES], scales[LANES], inverses[LANES], deviations[LANES];
    int32_t iterations[LANES];
    for (int axis = 0; axis < AXES; axis++) {
        if (a->grid[axis] == 1) continue;
        pack_edges(a, s, axis, group, l->edge[axis]);
        survey(s, l->edge[axis], poison, largest);
    }
    pack(a, s, &a->leak, group, l->leak);
    survey(s, l->leak, poison, largest);
    pack(a, s, &a->source, group, l->r);
    finish(s, l);
    /* A node without edge and leak is none of the network's. */
    SUM_NODES(s, deviations, NULL, {
        l->r[p] = where(l->inverse[p] > 0, l->r[p]);
        (void)sum;
    })
    survey(s, l->r, poison, largest);
    /* Sources are at most 1, by powers of two: their squares neither overflow nor vanish. */
    for (int k = 0; k < LANES; k++) {
        const int exponent = exponent_of((REAL)largest[k]);
        scales[k] = ldexp(1, exponent) + poison[k];
        inverses[k] = ldexp(1, -exponent);
    }
    const vec down = from_doubles(inverses), up = from_doubles(scales);
    SUM_NODES(s, deviations, NULL, {
        l->r[p] *= down;
        (void)sum;
    })
    for (int i = 0; i + 1 < s->count; i++) coarsen(s, l + i, l + i + 1);
    factorize_coarsest(s);
    iterate(s, a, poison, iterations, deviations);
    EACH_CHUNK(s, grid, 0, 1)
    EACH_ROW (box_of(grid, chunk)) {
        const struct network_field *f = &a->potential;
        const int64_t row = row_of(grid, z, y), step = f->node[2];
        int64_t at[LANES];
        const int width = origins(a, f, grid, group, z, y, at);
        ALONG(grid->n[2]) s->v[row + x] = (s->v[row + x] + s->low[row + x]) * up;
        for (int k = 0; k < width; k++)
            for (int64_t x = 0; x < grid->n[2]; x++) ((REAL *)f->at)[at[k] + x * step] = s->v[row + x][k];
    }
    for (int k = 0; k < group.width; k++) {
        a->iterations[group.first + k] = iterations[k];
        a->deviation[group.first + k] = deviations[k] + poison[k];
    }
}

/* Lay a solver out in a workspace, or only count its bytes where that is NULL; returns them. */
static int64_t place_solver(const struct network_args *a, struct solver *s, char *at) {
    struct grid grid[LEVELS_MAX];
    int64_t taken = 0;
    s->count = make_levels(a, grid, LANES);
    s->threads = a->alone ? a->threads : 1;
    for (int i = 0; i < s->count; i++) {
        struct level *l = s->level + i;
        vec **fields[] = {&l->leak,    &l->inverse, &l->x, &l->r,   &l->t, &l->edge[0],
                          &l->edge[2], &l->edge[1], &s->v, &s->low, &s->p};
        l->grid = grid[i];
        for (int f = 0; f < (i ? 8 : 11); f++) {
            if (fields[f] == &l->edge[1] && grid->n[1] == 1) {
                l->edge[1] = l->edge[2]; /* never read */
                continue;
            }
            *fields[f] = (vec *)(at + taken);
            taken += l->grid.all * (int64_t)sizeof(vec);
        }
    }
    s->Ap = s->level->t; /* not needed at the same time */
    s->order = elimination_order(grid + s->count - 1);
    const int64_t node = a->alone ? (int64_t)sizeof(REAL) : (int64_t)sizeof(vec);
    const int64_t sizes[] = {s->order.nodes * s->order.band * node, s->order.nodes * node,
                             s->order.nodes * node};
    REAL **parts[] = {&s->mesh, &s->inverse, &s->sum};
    for (int f = 0; f < 3; f++) {
        *parts[f] = (REAL *)(at + taken);
        taken += (sizes[f] + 63) / 64 * 64;
    }
    s->part = (struct part *)(at + taken);
    return taken + chunks(grid) * (int64_t)sizeof *s->part;
}

static int64_t workspace(const struct network_args *a) {
    struct solver solver;
    return (place_solver(a, &solver, NULL) + 63) / 64 * 64;
}

/* Solve groups until none is left. */
static void work(const struct network_args *a, char *workspace, int64_t *next) {
    const int64_t all = a->batches * a->channels, many = a->alone ? 1 : LANES;
    struct solver solver = {0};
    const int64_t bytes = place_solver(a, &solver, workspace);
    for (int used = 0;; used = 1) {
        int64_t first;
#pragma omp atomic capture
        {
            first = *next;
            *next += many;
        }
        if (first >= all) return;
        if (used) memset(workspace, 0, (size_t)bytes); /* margins and sums begin at zero */
        const int64_t left = all - first;
        solve_group(a, &solver, (struct group){first, (int)(left < many ? left : many)});
    }
}

static void solve(const struct network_args *a) {
    const int64_t bytes = workspace(a);
    int64_t next = 0;
    if (a->alone) {
        work(a, a->workspace, &next);
        return;
    }
#pragma omp parallel num_threads(a->threads)
    work(a, (char *)a->workspace + thread_number() * bytes, &next);
}

#undef SUM_NODES
#undef EACH_PLACE
#undef FOR_AXES
#undef EACH_CHUNK
