/* Elimination, region by region, in the form of the star-mesh law: a pivot with the conductances
 * g to later nodes and the leak l goes, and with t = sum g + l
 *     g_qr += g_q g_r / t,   l_q += g_q l / t.
 * Fronts hold what is right of their diagonals; below is rubbish that nobody reads. Included once for each
 * mode.
 *
 * Positive numbers are never subtracted, so no contrast and no small leak loses digits. Complex
 * numbers may cancel in t. No rows are exchanged: where less than half of the digits of t are left, t
 * is raised, and refinement (refine.h) makes good for it. Ground is the last column of a front: to it
 * leads the leak, and nothing tells it from other nodes. */

/* Adds what the first n pivots hand on to QB rows, RB vectors of each. `share`: of pivot 0 to the
 * block's first row; those of the next pivot lie `step` further on, then one less. */
INLINE void MODE(block)(const int rows, const int vectors, unit *front, int64_t stride, const unit *a,
                        const element *share, int64_t step, int64_t n) {
    unit c[8][4];
    UNROLL for (int i = 0; i < rows; i++) UNROLL for (int j = 0; j < vectors; j++) c[i][j] =
        front[i * stride + j];
    for (int64_t k = 0; k < n; k++) {
        UNROLL for (int i = 0; i < rows; i++) {
            const unit s = WIDEN(share[i]);
            UNROLL for (int j = 0; j < vectors; j++) c[i][j] = plus_product(c[i][j], s, a[j]);
        }
        a += stride;
        share += step--;
    }
    UNROLL for (int i = 0; i < rows; i++) UNROLL for (int j = 0; j < vectors; j++) front[i * stride + j] =
        c[i][j];
}

/* Rows q0 to q1, vectors c on, as many as `vectors` says, of what pivots k0 to k0 + n hand on. */
INLINE void MODE(column)(const int vectors, unit *front, int64_t f, const element *shares, int64_t k0,
                         int64_t n, int64_t q0, int64_t q1, int64_t c) {
    const int64_t stride = MODE(vectors_of)(f), step = f - k0 - 2;
    const int64_t end = least(q1, (c + vectors) * PER);
    const unit *a = front + k0 * stride + c;
    int64_t q = q0;
    /* Behind the last row of a front there is room, so blocks need not end with it. */
    for (; q < end && (q + QB <= q1 || q1 == f); q += QB)
        MODE(block)(QB, vectors, front + q * stride + c, stride, a, shares + share_index(f, k0, q), step,
                    n);
    for (; q < end; q++)
        MODE(block)(1, vectors, front + q * stride + c, stride, a, shares + share_index(f, k0, q), step,
                    n);
}

/* Columns j of blocks, from the diagonal's on. */
INLINE void MODE(update_column)(unit *front, int64_t f, const element *shares, int64_t k0, int64_t n,
                                int64_t q0, int64_t q1, int64_t j) {
    const int64_t stride = MODE(vectors_of)(f);
    int64_t c = q0 / PER + j * RB;
    if (c + RB <= stride)
        MODE(column)(RB, front, f, shares, k0, n, q0, q1, c);
    else
        for (; c < stride; c++) MODE(column)(1, front, f, shares, k0, n, q0, q1, c);
}

APART void MODE(update)(unit *front, int64_t f, const element *shares, int64_t k0, int64_t n, int64_t q0,
                        int64_t q1, int threads) {
    const int64_t columns = (MODE(vectors_of)(f) - q0 / PER + RB - 1) / RB;
    if (threads < 2 || (q1 - q0) * (f - q0) * n < WORTH_SHARING) {
        for (int64_t j = 0; j < columns; j++) MODE(update_column)(front, f, shares, k0, n, q0, q1, j);
        return;
    }
#pragma omp parallel for schedule(dynamic, 1) num_threads(threads)
    for (int64_t j = columns - 1; j >= 0; j--) MODE(update_column)(front, f, shares, k0, n, q0, q1, j);
}

/* One pivot: what pivots since k0 hand on to its row, its shares and ground's, its inverse. */
#if COMPLEX
INLINE void MODE(pivot)(unit *front, int64_t f, int64_t n, element *shares, element *inverse,
                        element *grounded, portion *over_sum, int64_t k0, int64_t i) {
    (void)n, (void)grounded, (void)over_sum;
    const int64_t stride = f + 1;
    element *row = front + i * stride;
    const element *handed = shares + share_index(f, k0, i), *a = front + k0 * stride;
    int64_t c = i + 1;
    for (; c + 4 <= stride; c += 4) MODE(block)(1, 4, row + c, stride, a + c, handed, f - k0 - 2, i - k0);
    for (; c < stride; c++) MODE(block)(1, 1, row + c, stride, a + c, handed, f - k0 - 2, i - k0);
    element t = {};
    vec size = {};
    for (c = i + 1; c < stride; c++) {
        t = plus(t, row[c]);
        size += magnitude(row[c]);
    }
    const mask raised = (magnitude(t) < HALF_DIGITS * size) & (size >= TINIEST);
    /* By a larger leak, so that all pivots after it are those of one changed network. */
    row[f].re += pick(raised, HALF_DIGITS * size - t.re, (vec){});
    row[f].im -= pick(raised, t.im, (vec){});
    t.re = pick(raised, HALF_DIGITS * size, t.re);
    t.im = pick(raised, (vec){}, t.im);
    const vec length = pick(size >= TINIEST, magnitude(t), (vec){} + 1);
    const vec re = t.re / length, im = t.im / length;
    const vec part = pick(size >= TINIEST, 1 / ((re * re + im * im) * length), (vec){});
    const element own = {re * part, -im * part};
    element *restrict share = shares + share_index(f, i, i + 1);
    for (int64_t j = i + 1; j < f; j++) share[j - i - 1] = times(own, row[j]);
    inverse[i] = own;
}
#else
INLINE void MODE(pivot)(unit *front, int64_t f, int64_t n, element *shares, element *inverse,
                        element *grounded, portion *over_sum, int64_t k0, int64_t i) {
    const int64_t stride = MODE(vectors_of)(f), first = (i + !ROWS) / PER;
    vec *row = front + i * stride;
    const element *handed = shares + share_index(f, k0, i);
    const unit *a = front + k0 * stride;
    element *restrict share = shares + share_index(f, i, i + 1);
    vec total[4] = {};
    int64_t c = first;
#if ROWS
    /* The first vector counts only right of the diagonal. */
    MODE(block)(1, 1, row + c, stride, a + c, handed, f - k0 - 2, i - k0);
    row[c] = between(row[c], i + 1 - c * PER, LANES);
    total[0] = row[c++];
#endif
    for (; c + 4 <= stride; c += 4) {
        MODE(block)(1, 4, row + c, stride, a + c, handed, f - k0 - 2, i - k0);
        UNROLL for (int j = 0; j < 4; j++) total[j] += row[c + j];
    }
    for (; c < stride; c++) {
        MODE(block)(1, 1, row + c, stride, a + c, handed, f - k0 - 2, i - k0);
        total[0] += row[c];
    }
    const vec t = (total[0] + total[1]) + (total[2] + total[3]);
#if ROWS
    const REAL *later = (const REAL *)row + i + 1, *const ground = (const REAL *)row + f;
    const REAL all = sum_of(t), part = all >= TINIEST ? 1 / all : 0;
    /* Whole vectors reach into the next pivot's shares, which follow, but not into another region's. */
    const REAL *const end = shares + share_index(f, n, n + 1);
    for (; later < ground && share + LANES <= end; later += LANES, share += LANES)
        *(loose *)share = *(const loose *)later * part;
    for (; later < ground; later++) *share++ = *later * part;
    grounded[i] = part > 0 ? (all == *ground ? 1 : *ground * part) : 0;
    if (HALVES > 1) {
        enum { EACH = VECTOR_BYTES / 8 };
        const REAL *h = shares + share_index(f, i, i + 1), *const last = shares + share_index(f, i, f);
        doubles sum = {};
        double left = 1 - (double)grounded[i];
        for (; h + EACH <= last; h += EACH) sum += __builtin_convertvector(*(const half *)h, doubles);
        for (int lane = 0; lane < EACH; lane++) left -= sum[lane];
        for (; h < last; h++) left -= (double)*h;
        over_sum[i] = 1 + left + left * left;
    }
#else
    const vec part = reciprocal(t);
    wide left = {};
    for (int64_t j = i + 1; j < f; j++) {
        const vec h = row[j] * part;
        const wide taken = widen(&h);
        share[j - i - 1] = h;
        UNROLL for (int k = 0; HALVES > 1 && k < HALVES; k++) left.part[k] -= taken.part[k];
    }
    const mask alone = t == row[f];
    const vec to_ground = (vec)((alone & (mask)splat(1)) | (~alone & (mask)(row[f] * part)));
    grounded[i] = either(part, to_ground, splat(0));
    const wide ground = widen(&grounded[i]);
    UNROLL for (int k = 0; HALVES > 1 && k < HALVES; k++) {
        const doubles off = 1 - ground.part[k] + left.part[k];
        over_sum[i].part[k] = 1 + off + off * off;
    }
#endif
    inverse[i] = part;
}
#endif

struct MODE(waiting) { /* updates that wait for the region they are added to */
    element **held; /* by region */
    element *base, *top;
};

static int64_t MODE(waiting_bytes)(const struct direct_args *a) {
    return aligned(a->regions * (int64_t)sizeof(void *)) +
           aligned((a->stack + PAD) * (int64_t)sizeof(element));
}

/* Adds a half's update. */
APART void MODE(extend)(const struct direct_args *a, int64_t half, unit *front, int64_t f,
                        const element *update) {
    const int64_t stride = MODE(vectors_of)(f) * PER, width = a->width[half];
    const int32_t *place = a->place + a->boundary_at[half];
    element *to = (element *)front;
    for (int64_t i = 0; i < width; i++) {
        element *row = to + place[i] * stride;
        for (int64_t j = i + 1; j < width; j++, update++) row[place[j]] = plus(row[place[j]], *update);
        row[f] = plus(row[f], *update++);
    }
}

APART void MODE(eliminate)(const struct direct_args *a, const struct item *item, int64_t r, unit *front,
                           struct MODE(waiting) * w, scalar scale, int threads) {
    const int64_t n = a->pivots[r], width = a->width[r], f = n + width;
    const int64_t vectors = MODE(vectors_of)(f), stride = vectors * PER, first = a->first[r];
    element *shares = (element *)a->shares + item->slot * a->item_shares + a->share_at[r];
    element *inverse = (element *)a->inverse + item->slot * a->nodes + first;
    element *grounded = COMPLEX ? NULL : (element *)a->grounded + item->slot * a->nodes + first;
    portion *over_sum = COMPLEX ? NULL : (portion *)a->over_sum + item->slot * a->nodes + first;
    const element *leak = (const element *)a->own_leak + item->slot * a->nodes + first;
    element *entries = (element *)front;
    for (int64_t i = 0; i < f; i++)
        memset(front + i * vectors + i / PER, 0, (size_t)(vectors - i / PER) * sizeof(unit));
    for (int64_t i = 0; i < n; i++) entries[i * stride + f] = leak[i];
    for (int64_t e = a->edge_at[r]; e < a->edge_at[r + 1]; e++) {
        const int64_t axis = axis_of(a, a->edge[e]);
        const element *g = (const element *)item->field[1 + axis] - axis * a->entries;
        const int64_t start = a->row[e], end = a->column[e];
        element *to = entries + least(start, end) * stride + (start < end ? end : start);
        *to = plus(*to, scaled(g[a->edge[e]], scale));
    }
    element *const above = w->top; /* updates of other stacks and of tiles stay where they are */
    for (int side = 0; side < 2; side++) {
        const int64_t half = a->kids[2 * r + side];
        if (half < 0) continue;
        const element *update = w->held[half];
        MODE(extend)(a, half, front, f, update);
        if (update >= w->base && update < above) w->top -= a->width[half] * (a->width[half] + 1) / 2;
    }
    for (int64_t k0 = 0; k0 < n; k0 += PANEL) {
        const int64_t k1 = least(k0 + PANEL, n);
        if (k0) MODE(update)(front, f, shares, 0, k0, k0, k1, threads);
        for (int64_t i = k0; i < k1; i++)
            MODE(pivot)(front, f, n, shares, inverse, grounded, over_sum, k0, i);
    }
    if (width) MODE(update)(front, f, shares, 0, n, n, f, threads);
    element *update = w->top;
    w->held[r] = update;
    for (int64_t i = 0; i < width; i++, update += width - i + 1) {
        const element *row = entries + (n + i) * stride + n + i + 1;
        memcpy(update, row, (size_t)(width - i) * sizeof(element));
    }
    w->top = update;
}

/* A pivot of zero that an edge led to is the last node of a part without leak: notes the first of a
 * network. Where no edge leads, the node is not part of the network. */
APART void MODE(find_undetermined)(const struct direct_args *a, const struct item *item,
                                   const element *inverse, int64_t *status) {
    for (const struct direct_run *run = a->runs; run < a->runs + a->num_runs; run++) {
        const element *g = (const element *)item->field[1 + run->axis] + run->entry;
        for (int64_t i = 0; i < 2 * run->count; i++) {
            const int64_t node = run->node + i / 2 + i % 2 * run->far, p = a->position[node];
            for (int lane = 0; lane < item->width; lane++)
                if (MODE(lacks)(inverse + p, lane) && !MODE(lacks)(g + i / 2, lane) &&
                    status[lane] != DIRECT_NOT_FINITE &&
                    (status[lane] == DIRECT_DETERMINED || p < a->position[status[lane]]))
                    status[lane] = node;
        }
    }
}

/* 1 where any pivot of the item has no inverse. */
static int MODE(any_without)(const struct direct_args *a, const struct item *item,
                             const element *inverse) {
    int any = 0;
    for (int64_t p = 0; p < a->nodes && !any; p++)
        for (int lane = 0; lane < item->width; lane++) any |= MODE(lacks)(inverse + p, lane);
    return any;
}

static int64_t MODE(fields_bytes)(const struct direct_args *a) {
    if (ROWS && a->channels == 1) return 0;
    return aligned(a->nodes * (int64_t)sizeof(element)) +
           a->axes * aligned(a->entries * (int64_t)sizeof(element));
}

/* Leak and conductances, in the order of nodes and of edges. */
static void MODE(pack_fields)(const struct direct_args *a, struct item *item, char *to) {
    for (int64_t i = 0; i <= a->axes; i++) {
        const REAL *from = i ? a->conductance[i - 1] : a->leak;
        const int64_t count = i ? a->entries : a->nodes;
        const int64_t *at = i ? item->edges_at : item->at;
        item->field[i] = (const REAL *)to;
#if ROWS
        if (a->channels == 1)
            item->field[i] = from + at[0];
        else
            for (int64_t p = 0; p < count; p++) ((REAL *)to)[p] = from[at[0] + p * a->channels];
#else
        pack(from, at, item->width, a->channels, count, (vec *)to);
#endif
        to += aligned(count * (int64_t)sizeof(element));
    }
}

/* The powers of two that the conductances of the item's networks are multiplied by. */
INLINE scalar MODE(scale_of)(const struct direct_args *a, const struct item *item) {
#if ROWS
    return ((const REAL *)a->scale)[item->index];
#else
    vec scale = {};
    for (int lane = 0; lane < item->width; lane++)
        scale[lane] = ((const REAL *)a->scale)[item->index * LANES + lane];
    return scale;
#endif
}

/* Scales, status and scaled leaks, before the elimination. */
static void MODE(begin)(const struct direct_args *a, const struct item *item) {
    const int64_t network = item->index * (ROWS ? 1 : LANES);
    const vec scales = scales_of(a, item, ROWS ? 1 : PARTS * LANES, a->status + network);
    for (int lane = 0; lane < item->width; lane++) ((REAL *)a->scale)[network + lane] = scales[lane];
    const element *leak = (const element *)item->field[0];
    const scalar scale = MODE(scale_of)(a, item);
    element *own_leak = (element *)a->own_leak + item->slot * a->nodes;
    for (int64_t p = 0; p < a->nodes; p++) own_leak[p] = scaled(leak[a->node[p]], scale);
    /* Whole vectors are read behind the last row. */
    memset((element *)a->shares + item->slot * a->item_shares + a->num_shares, 0, PAD * sizeof(element));
}

/* Whether a region is a tile; then it is eliminated with its group, if it is the first of it. */
INLINE int MODE(eliminate_if_tile)(const struct direct_args *a, const struct item *item, int64_t r,
                                   struct MODE(waiting) * w, scalar scale, int64_t *group,
                                   char *workspace) {
#if ROWS
    if (a->pivots[r]) return 0;
    if (*group < a->groups && a->tile_region[a->group_first[*group]] == r)
        eliminate_group(a, item, (*group)++, scale, w->held, workspace);
    return 1;
#else
    (void)a, (void)item, (void)r, (void)w, (void)scale, (void)group, (void)workspace;
    return 0;
#endif
}

/* One network, or one group. Where there are parts, all threads share the network: subtrees side by
 * side, then the fronts that are left, one after the other, each by all threads. */
static void MODE(factorize)(const struct direct_args *a, const struct item *item, char *workspace) {
    const scalar scale = MODE(scale_of)(a, item);
    const int threads = a->parts ? a->threads : 1;
    char *const fronts = workspace;
    workspace += threads * MODE(front_bytes)(a);
    struct MODE(waiting) w = {.held = (element **)workspace};
    element *stack = (element *)(workspace + aligned(a->regions * (int64_t)sizeof(void *)));
    char *const tiles = workspace + MODE(waiting_bytes)(a);
#pragma omp parallel for schedule(dynamic, 1) num_threads(threads) if (threads > 1)
    for (int64_t p = 0; p < a->parts; p++) {
        struct MODE(waiting) own = w;
        own.base = own.top = stack + a->part_stack[p];
        unit *front = (unit *)(fronts + thread_number() * MODE(front_bytes)(a));
        char *const workspace = tiles + thread_number() * MODE(tiles_bytes)(a);
        int64_t group = a->groups ? a->part_group[p] : 0;
        for (int64_t r = a->part_first[p]; r < a->part_last[p]; r++)
            if (!MODE(eliminate_if_tile)(a, item, r, &own, scale, &group, workspace))
                MODE(eliminate)(a, item, r, front, &own, scale, 1);
    }
    w.base = w.top = stack + (a->parts ? a->part_stack[a->parts] : 0);
    for (int64_t r = 0, p = 0, group = 0; r < a->regions; r++) {
        if (p < a->parts && r == a->part_first[p])
            r = a->part_last[p++] - 1;
        else if (!MODE(eliminate_if_tile)(a, item, r, &w, scale, &group, tiles))
            MODE(eliminate)(a, item, r, (unit *)fronts, &w, scale, threads);
    }
    const element *inverse = (const element *)a->inverse + item->slot * a->nodes;
    if (MODE(any_without)(a, item, inverse))
        MODE(find_undetermined)(a, item, inverse, a->status + item->index * (ROWS ? 1 : LANES));
}
