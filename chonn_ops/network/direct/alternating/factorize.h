/* Elimination, region by region, in the form of the star-mesh law, see ../cpu/factorize.h: a pivot
 * with the conductances g to later nodes and the leak l goes, and with t = sum g + l
 *     g_qr += g_q g_r / t,   l_q += g_q l / t.
 * Complex numbers may cancel in t. No rows are exchanged: where less than half of the digits of t
 * are left, t is raised, and refinement (solve.h) makes good for it. Ground is the last column of a
 * front. Included once per precision. */

typedef REAL NAME(vec) __attribute__((vector_size(VECTOR_BYTES)));
typedef INTEGER NAME(mask) __attribute__((vector_size(VECTOR_BYTES)));
typedef struct {
    NAME(vec) re, im;
} NAME(number);
#define vec NAME(vec)
#define mask NAME(mask)
#define number NAME(number)
#define LANES ((int)(VECTOR_BYTES / sizeof(REAL)))

/* The networks of an item. */
struct NAME(item) {
    int64_t index, slot; /* slot: whose factors */
    int width;           /* networks; lanes above hold zeros */
    int64_t at[LANES];   /* where each network's first node is in a field (batches, nodes, channels) */
    int64_t of[LANES];   /* and in one (batches, sources, nodes, channels) */
    const number *leak, *conductance; /* of these networks alone, node by node, axis after axis */
};

static struct NAME(item) NAME(item_at)(const struct alternating_args *a, int64_t index) {
    struct NAME(item) item = {.index = index};
    item.slot = a->call == ALTERNATING_ONCE ? thread_number() : index;
    item.width = (int)least(LANES, a->batches * a->channels - index * LANES);
    for (int lane = 0; lane < LANES; lane++) {
        const int64_t network = index * LANES + (lane < item.width ? lane : 0);
        const int64_t batch = network / a->channels, channel = network % a->channels;
        item.at[lane] = batch * a->nodes * a->channels + channel;
        item.of[lane] = batch * a->sources * a->nodes * a->channels + channel;
    }
    return item;
}

enum { NAME(BLOCK) = 16 }; /* nodes after which the next lane's have their turn */

static int64_t NAME(fields_bytes)(const struct alternating_args *a) {
    return aligned((1 + a->axes) * a->nodes * (int64_t)sizeof(number));
}

/* Leak and conductances to the lanes of vectors. */
APART void NAME(pack_fields)(const struct alternating_args *a, struct NAME(item) *item, void *to) {
    number *field = to;
    item->leak = field;
    item->conductance = field + a->nodes;
    for (int64_t i = 0; i <= a->axes; i++, field += a->nodes) {
        const REAL *from = i ? a->conductance[i - 1] : a->leak;
        for (int64_t first = 0; first < a->nodes; first += NAME(BLOCK)) {
            const int64_t last = least(first + NAME(BLOCK), a->nodes);
            if (item->width < LANES) memset(field + first, 0, (size_t)(last - first) * sizeof(number));
            for (int lane = 0; lane < item->width; lane++)
                for (int64_t p = first; p < last; p++) {
                    const REAL *value = from + 2 * (item->at[lane] + p * a->channels);
                    field[p].re[lane] = value[0];
                    field[p].im[lane] = value[1];
                }
        }
    }
}

INLINE vec NAME(pick)(mask some, vec a, vec b) { return (vec)((some & (mask)a) | (~some & (mask)b)); }

INLINE vec NAME(magnitude)(number x) { /* |re| + |im| */
    return NAME(pick)(x.re < 0, -x.re, x.re) + NAME(pick)(x.im < 0, -x.im, x.im);
}

/* Powers of two that bring the largest conductance near 1, so that nothing over- or underflows,
 * and which networks are finite. */
APART vec NAME(scales)(const struct alternating_args *a, const struct NAME(item) *item, int64_t *status) {
    vec largest = {}, wrong = {};
#define SEE(load)                                                                                \
    {                                                                                            \
        const number value = load;                                                               \
        const vec size = NAME(magnitude)(value);                                                 \
        largest = NAME(pick)(size > largest, size, largest);                                     \
        wrong += (value.re - value.re) + (value.im - value.im); /* NaN for NaN and infinities */ \
    }
    for (int64_t p = 0; p < a->nodes; p++) SEE(item->leak[p])
    for (int64_t e = 0; e < a->edge_at[a->regions]; e++) SEE(item->conductance[a->edge[e]])
#undef SEE
    const int most = sizeof(REAL) == 4 ? 126 : 1022;
    vec scale = {};
    for (int lane = 0; lane < item->width; lane++) {
        int exponent = 0;
        if (largest[lane] > 0) {
            if (isfinite(largest[lane]))
                frexp((double)largest[lane], &exponent);
            else
                exponent = most;
        }
        exponent = exponent > most ? most : exponent < -most ? -most : exponent;
        scale[lane] = (REAL)ldexp(1, -exponent);
        status[lane] = wrong[lane] == 0 ? ALTERNATING_DETERMINED : ALTERNATING_NOT_FINITE;
    }
    return scale;
}

/* Adds what n pivots hand on to a block of a front. `share`: of the first pivot to the block's first
 * row; those of the next pivot lie `step` further on, then one less. */
INLINE void NAME(block)(const int rows, const int columns, number *front, int64_t stride,
                        const number *row, const number *share, int64_t step, int64_t n) {
    number c[ROWS][4];
    UNROLL for (int i = 0; i < rows; i++) UNROLL for (int j = 0; j < columns; j++) c[i][j] =
        front[i * stride + j];
    for (int64_t k = 0; k < n; k++) {
        UNROLL for (int i = 0; i < rows; i++) {
            const number s = share[i];
            UNROLL for (int j = 0; j < columns; j++) ADD_PRODUCT(c[i][j], s, row[j]);
        }
        row += stride;
        share += step--;
    }
    UNROLL for (int i = 0; i < rows; i++) UNROLL for (int j = 0; j < columns; j++) front[i * stride + j] =
        c[i][j];
}

/* Rows q0 to q1 of some columns, down to the diagonal, of what pivots k0 to k0 + n hand on. */
INLINE void NAME(column)(const int columns, number *front, int64_t f, const number *shares, int64_t k0,
                         int64_t n, int64_t q0, int64_t q1, int64_t c) {
    const int64_t stride = f + 1, step = f - k0 - 2, end = least(q1, c + columns);
    const number *row = front + k0 * stride + c;
    int64_t q = q0;
    /* Behind the last row of a front there is room, so blocks need not end with it. */
    for (; q < end && (q + ROWS <= q1 || q1 == f); q += ROWS)
        NAME(block)(ROWS, columns, front + q * stride + c, stride, row, shares + share_index(f, k0, q),
                    step, n);
    for (; q < end; q++)
        NAME(block)(1, columns, front + q * stride + c, stride, row, shares + share_index(f, k0, q), step,
                    n);
}

APART void NAME(update)(number *front, int64_t f, const number *shares, int64_t k0, int64_t n, int64_t q0,
                        int64_t q1) {
    int64_t c = q0;
    for (; c + COLUMNS <= f + 1; c += COLUMNS) NAME(column)(COLUMNS, front, f, shares, k0, n, q0, q1, c);
    for (; c <= f; c++) NAME(column)(1, front, f, shares, k0, n, q0, q1, c);
}

/* One pivot: what pivots since k0 hand on to its row, its shares, its inverse. Returns the lanes
 * where it was raised. */
INLINE mask NAME(pivot)(number *front, int64_t f, number *shares, number *inverse, int64_t k0,
                        int64_t i) {
    const int64_t stride = f + 1;
    number *row = front + i * stride;
    const number *handed = shares + share_index(f, k0, i);
    int64_t c = i + 1;
    for (; c + 4 <= stride; c += 4)
        NAME(block)(1, 4, row + c, stride, front + k0 * stride + c, handed, f - k0 - 2, i - k0);
    for (; c < stride; c++)
        NAME(block)(1, 1, row + c, stride, front + k0 * stride + c, handed, f - k0 - 2, i - k0);
    number t = {};
    vec size = {};
    for (c = i + 1; c < stride; c++) {
        t.re += row[c].re;
        t.im += row[c].im;
        size += NAME(magnitude)(row[c]);
    }
    const mask raised = (NAME(magnitude)(t) < FEW * size) & (size >= TINIEST);
    /* By a larger leak, so that all pivots after it are those of one changed network. */
    row[f].re += NAME(pick)(raised, FEW * size - t.re, (vec){});
    row[f].im -= NAME(pick)(raised, t.im, (vec){});
    t.re = NAME(pick)(raised, FEW * size, t.re);
    t.im = NAME(pick)(raised, (vec){}, t.im);
    const vec length = NAME(pick)(size >= TINIEST, NAME(magnitude)(t), (vec){} + 1);
    const vec re = t.re / length, im = t.im / length;
    const vec part = NAME(pick)(size >= TINIEST, 1 / ((re * re + im * im) * length), (vec){});
    const number whole = {re * part, -im * part};
    number *restrict share = shares + share_index(f, i, i + 1);
    for (int64_t j = i + 1; j < f; j++) {
        number product = {};
        ADD_PRODUCT(product, whole, row[j]);
        share[j - i - 1] = product;
    }
    inverse[i] = whole;
    return raised;
}

struct NAME(waiting) { /* updates that wait for the region they are added to */
    number **held;     /* by region */
    number *top;
};

static int64_t NAME(front_bytes)(const struct alternating_args *a) {
    return aligned((a->largest_front + PAD) * (a->largest_front + 1 + COLUMNS) * (int64_t)sizeof(number));
}

static int64_t NAME(waiting_bytes)(const struct alternating_args *a) {
    return aligned(a->regions * (int64_t)sizeof(void *)) +
           aligned((a->stack + PAD) * (int64_t)sizeof(number));
}

APART mask NAME(eliminate)(const struct alternating_args *a, const struct NAME(item) *item, int64_t r,
                           number *front, struct NAME(waiting) *w, vec scale) {
    const int64_t n = a->pivots[r], width = a->width[r], f = n + width, stride = f + 1;
    const int64_t first = a->first[r];
    number *shares = (number *)a->shares + item->slot * a->item_shares + a->share_at[r];
    number *inverse = (number *)a->inverse + item->slot * a->nodes + first;
    for (int64_t i = 0; i < f; i++)
        memset(front + i * stride + i, 0, (size_t)(stride - i) * sizeof(number));
    for (int64_t i = 0; i < n; i++) {
        const number leak = item->leak[a->node[first + i]];
        front[i * stride + f] = (number){leak.re * scale, leak.im * scale};
    }
    for (int64_t e = a->edge_at[r]; e < a->edge_at[r + 1]; e++) {
        const number g = item->conductance[a->edge[e]];
        const int64_t start = a->row[e], end = a->column[e];
        number *to = front + least(start, end) * stride + (start < end ? end : start);
        to->re += g.re * scale;
        to->im += g.im * scale;
    }
    for (int side = 0; side < 2; side++) {
        const int64_t half = a->kids[2 * r + side];
        if (half < 0) continue;
        const int64_t wide = a->width[half];
        const int32_t *place = a->place + a->boundary_at[half];
        const number *update = w->held[half];
        for (int64_t i = 0; i < wide; i++) {
            number *row = front + place[i] * stride;
            for (int64_t j = i + 1; j <= wide; j++, update++) {
                number *to = row + (j < wide ? place[j] : f);
                to->re += update->re;
                to->im += update->im;
            }
        }
        w->top -= wide * (wide + 1) / 2;
    }
    mask raised = {};
    for (int64_t k0 = 0; k0 < n; k0 += PANEL) {
        const int64_t k1 = least(k0 + PANEL, n);
        if (k0) NAME(update)(front, f, shares, 0, k0, k0, k1);
        for (int64_t i = k0; i < k1; i++) raised |= NAME(pivot)(front, f, shares, inverse, k0, i);
    }
    if (width) NAME(update)(front, f, shares, 0, n, n, f);
    number *update = w->top;
    w->held[r] = update;
    for (int64_t i = 0; i < width; i++) {
        memcpy(update, front + (n + i) * stride + n + i + 1, (size_t)(width - i) * sizeof(number));
        update += width - i;
    }
    w->top = update;
    return raised;
}

/* Whether a pivot of the first `width` lanes has no inverse. */
APART int NAME(any_without)(int64_t nodes, const number *inverse, int width) {
    mask some = {};
    for (int64_t p = 0; p < nodes; p++) some |= (inverse[p].re == 0) & (inverse[p].im == 0);
    int any = 0;
    for (int lane = 0; lane < width; lane++) any |= some[lane] != 0;
    return any;
}

/* Of a node of a region's front. */
INLINE int64_t NAME(position)(const struct alternating_args *a, int64_t r, int64_t place) {
    const int64_t beyond = place - a->pivots[r];
    return beyond < 0 ? a->first[r] + place : a->boundary[a->boundary_at[r] + beyond];
}

/* An inverse of zero at the end of an edge that is none: the last node of a part without leak. */
APART void NAME(find_undetermined)(const struct alternating_args *a, const struct NAME(item) *item,
                                   const number *inverse, int64_t *status) {
    for (int64_t r = 0; r < a->regions; r++)
        for (int64_t e = a->edge_at[r]; e < a->edge_at[r + 1]; e++) {
            const int64_t low = NAME(position)(a, r, a->row[e]),
                          high = NAME(position)(a, r, a->column[e]);
            const number g = item->conductance[a->edge[e]];
            for (int lane = 0; lane < item->width; lane++) {
                if (status[lane] == ALTERNATING_NOT_FINITE || status[lane] >= 0) continue;
                if (g.re[lane] == 0 && g.im[lane] == 0) continue;
                if (inverse[low].re[lane] == 0 && inverse[low].im[lane] == 0)
                    status[lane] = a->node[low];
                else if (inverse[high].re[lane] == 0 && inverse[high].im[lane] == 0)
                    status[lane] = a->node[high];
            }
        }
}

static void NAME(factorize_item)(const struct alternating_args *a, const struct NAME(item) *item,
                                 char *workspace) {
    int64_t *status = a->status + item->index * LANES;
    const vec scale = NAME(scales)(a, item, status);
    for (int lane = 0; lane < item->width; lane++)
        ((REAL *)a->scale)[item->index * LANES + lane] = scale[lane];
    number *front = (number *)workspace;
    workspace += NAME(front_bytes)(a);
    struct NAME(waiting) w = {.held = (number **)workspace};
    w.top = (number *)(workspace + aligned(a->regions * (int64_t)sizeof(void *)));
    mask raised = {};
    for (int64_t r = 0; r < a->regions; r++) raised |= NAME(eliminate)(a, item, r, front, &w, scale);
    for (int lane = 0; lane < item->width; lane++)
        if (raised[lane] && status[lane] == ALTERNATING_DETERMINED) status[lane] = ALTERNATING_RAISED;
    const number *inverse = (const number *)a->inverse + item->slot * a->nodes;
    if (NAME(any_without)(a->nodes, inverse, item->width))
        NAME(find_undetermined)(a, item, inverse, status);
}
