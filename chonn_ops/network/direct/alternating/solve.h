/* Potentials from factors, refined: with the residual r = s - A v in double precision, v gains
 * A^-1 r until |r| <= tol |s| in every network. Included once per precision of the factors. */

/* One double for each lane. */
typedef double NAME(wide) __attribute__((vector_size(LANES * sizeof(double))));
typedef struct {
    NAME(wide) re, im;
} NAME(wide_number);
typedef int64_t NAME(wide_mask) __attribute__((vector_size(LANES * sizeof(double))));
#define wide NAME(wide)
#define wide_mask NAME(wide_mask)
#define wide_number NAME(wide_number)

static int64_t NAME(solve_bytes)(const struct alternating_args *a) {
    return 2 * aligned(a->nodes * (int64_t)sizeof(wide_number)) +
           aligned(a->nodes * (int64_t)sizeof(number)) +
           aligned((a->largest_front + PAD) * (int64_t)sizeof(number));
}

INLINE void NAME(forward)(const number *shares, int64_t n, int64_t f, number *t) {
    int64_t k = 0;
    for (; k + 4 <= n; k += 4) {
        for (int64_t i = k; i < k + 3; i++)
            for (int64_t q = i + 1; q < k + 4; q++)
                ADD_PRODUCT(t[q], shares[share_index(f, i, q)], t[i]);
        const number *h[4];
        number x[4];
        UNROLL for (int i = 0; i < 4; i++) {
            h[i] = shares + share_index(f, k + i, 0);
            x[i] = t[k + i];
        }
        for (int64_t q = k + 4; q < f; q++) {
            number sum = t[q];
            UNROLL for (int i = 0; i < 4; i++) ADD_PRODUCT(sum, h[i][q], x[i]);
            t[q] = sum;
        }
    }
    for (; k < n; k++)
        for (int64_t q = k + 1; q < f; q++) ADD_PRODUCT(t[q], shares[share_index(f, k, q)], t[k]);
}

/* `t` of pivots: their potentials, had later nodes potential 0. */
INLINE void NAME(backward)(const number *shares, int64_t n, int64_t f, number *t) {
    int64_t k = n;
    for (; k % 4; k--)
        for (int64_t q = k; q < f; q++)
            ADD_PRODUCT(t[k - 1], shares[share_index(f, k - 1, q)], t[q]);
    for (k -= 4; k >= 0; k -= 4) {
        const number *h[4];
        number x[4];
        UNROLL for (int i = 0; i < 4; i++) {
            h[i] = shares + share_index(f, k + i, 0);
            x[i] = t[k + i];
        }
        for (int64_t q = k + 4; q < f; q++)
            UNROLL for (int i = 0; i < 4; i++) ADD_PRODUCT(x[i], h[i][q], t[q]);
        for (int i = 3; i >= 0; i--) {
            for (int q = i + 1; q < 4; q++) ADD_PRODUCT(x[i], h[i][k + q], x[q]);
            t[k + i] = x[i];
        }
    }
}

/* x, by position: from currents to potentials of the scaled networks. */
APART void NAME(sweep)(const struct alternating_args *a, const number *shares,
                       const number *inverse, number *x, number *t) {
    for (int64_t r = 0; r < a->regions; r++) {
        const int64_t n = a->pivots[r], width = a->width[r];
        const int32_t *boundary = a->boundary + a->boundary_at[r];
        memcpy(t, x + a->first[r], (size_t)n * sizeof(number));
        for (int64_t q = 0; q < width; q++) t[n + q] = x[boundary[q]];
        NAME(forward)(shares + a->share_at[r], n, n + width, t);
        for (int64_t i = 0; i < n; i++) {
            number product = {};
            ADD_PRODUCT(product, inverse[a->first[r] + i], t[i]);
            x[a->first[r] + i] = product;
        }
        for (int64_t q = 0; q < width; q++) x[boundary[q]] = t[n + q];
    }
    for (int64_t r = a->regions - 1; r >= 0; r--) {
        const int64_t n = a->pivots[r], width = a->width[r];
        const int32_t *boundary = a->boundary + a->boundary_at[r];
        memcpy(t, x + a->first[r], (size_t)n * sizeof(number));
        for (int64_t q = 0; q < width; q++) t[n + q] = x[boundary[q]];
        NAME(backward)(shares + a->share_at[r], n, n + width, t);
        memcpy(x + a->first[r], t, (size_t)n * sizeof(number));
    }
}

/* left -= A (x size). */
APART void NAME(subtract)(const struct alternating_args *a, const struct NAME(item) *item,
                          const number *x, const wide *size, wide_number *left) {
#define WIDE(value) __builtin_convertvector(value, wide)
#define LOAD(name, field, node)                                                                    \
    const number narrow_##name = NAME(load)(item, field, node);                                    \
    const wide_number name = {WIDE(narrow_##name.re), WIDE(narrow_##name.im)};
    for (int64_t p = 0; p < a->nodes; p++) {
        LOAD(l, a->leak, a->node[p] * a->channels)
        const wide_number v = {-WIDE(x[p].re) * *size, -WIDE(x[p].im) * *size};
        ADD_PRODUCT(left[p], l, v);
    }
    for (int64_t r = 0; r < a->regions; r++)
        for (int64_t e = a->edge_at[r]; e < a->edge_at[r + 1]; e++) {
            const int64_t beyond = a->column[e] - a->pivots[r];
            const int64_t low = a->first[r] + a->row[e];
            const int64_t high =
                beyond < 0 ? a->first[r] + a->column[e] : a->boundary[a->boundary_at[r] + beyond];
            int64_t node;
            const void *field = NAME(edge)(a, a->edge[e], &node);
            LOAD(g, field, node)
            const wide_number drop = {(WIDE(x[low].re) - WIDE(x[high].re)) * *size,
                                      (WIDE(x[low].im) - WIDE(x[high].im)) * *size};
            wide_number flow = {};
            ADD_PRODUCT(flow, g, drop);
            left[low].re -= flow.re;
            left[low].im -= flow.im;
            left[high].re += flow.re;
            left[high].im += flow.im;
        }
#undef LOAD
}

/* The norm of each lane, and a power of two near its largest part. */
APART void NAME(norms)(int64_t nodes, const wide_number *x, double *norm, double *unit) {
    wide largest = {}, sum = {}, scale = {};
    for (int64_t p = 0; p < nodes; p++) {
#define PICK(some, a, b) (wide)(((wide_mask)(some) & (wide_mask)(a)) | (~(wide_mask)(some) & (wide_mask)(b)))
        const wide re = PICK(x[p].re < 0, -x[p].re, x[p].re);
        const wide im = PICK(x[p].im < 0, -x[p].im, x[p].im);
        const wide more = PICK(re > im, re, im);
        largest = PICK(more > largest, more, largest);
#undef PICK
        sum += (x[p].re - x[p].re) + (x[p].im - x[p].im); /* NaN for NaN and infinities */
    }
    for (int lane = 0; lane < LANES; lane++) {
        int exponent = 0;
        if (largest[lane] > 0 && isfinite(largest[lane])) frexp(largest[lane], &exponent);
        exponent = exponent > 1000 ? 1000 : exponent < -1000 ? -1000 : exponent;
        unit[lane] = ldexp(1, exponent);
        scale[lane] = ldexp(1, -exponent);
    }
    for (int64_t p = 0; p < nodes; p++) {
        const wide re = x[p].re * scale, im = x[p].im * scale;
        sum += re * re + im * im;
    }
    for (int lane = 0; lane < LANES; lane++) norm[lane] = sqrt(sum[lane]) * unit[lane];
}

static void NAME(solve_source)(const struct alternating_args *a, const struct NAME(item) *item,
                               int64_t source, char *workspace) {
    const number *shares = (const number *)a->shares + item->slot * a->item_shares;
    const number *inverse = (const number *)a->inverse + item->slot * a->nodes;
    const int64_t next = a->nodes * a->channels, wide_bytes = aligned(a->nodes * (int64_t)sizeof(wide_number));
    wide_number *v = (wide_number *)workspace, *left = (wide_number *)(workspace + wide_bytes);
    number *x = (number *)(workspace + 2 * wide_bytes);
    number *t = (number *)(workspace + 2 * wide_bytes + aligned(a->nodes * (int64_t)sizeof(number)));
    memset(v, 0, (size_t)wide_bytes);
    memset(left, 0, (size_t)wide_bytes);
    double bad[LANES] = {0}, norm[LANES], unit[LANES], residual[LANES];
    for (int64_t p = 0; p < a->nodes; p++)
        for (int lane = 0; lane < item->width; lane++) {
            const double *s = a->source + 2 * (item->of[lane] + source * next + a->node[p] * a->channels);
            bad[lane] += (s[0] - s[0]) + (s[1] - s[1]);
            /* A node with neither edge nor leak is no part of the network. A node with edges whose
             * pivot is zero is: its source stays in the residual. */
            if (inverse[p].re[lane] == 0 && inverse[p].im[lane] == 0 &&
                a->status[item->index * LANES + lane] < 0)
                continue;
            left[p].re[lane] = s[0];
            left[p].im[lane] = s[1];
        }
    NAME(norms)(a->nodes, left, norm, unit);
    int active[LANES];
    for (int lane = 0; lane < LANES; lane++) {
        residual[lane] = norm[lane] > 0;
        active[lane] = lane < item->width && norm[lane] > 0;
    }
    for (int64_t step = 0; step <= a->refinements; step++) {
        wide size = {}, to_unit = {};
        int any = 0;
        for (int lane = 0; lane < item->width; lane++) {
            if (!active[lane]) continue;
            any = 1;
            to_unit[lane] = 1 / unit[lane];
            size[lane] = unit[lane] * (double)((const REAL *)a->scale)[item->index * LANES + lane];
        }
        if (!any) break;
        for (int64_t p = 0; p < a->nodes; p++) {
            const wide re = left[p].re * to_unit, im = left[p].im * to_unit;
            x[p].re = __builtin_convertvector(re, vec);
            x[p].im = __builtin_convertvector(im, vec);
        }
        NAME(sweep)(a, shares, inverse, x, t);
        for (int64_t p = 0; p < a->nodes; p++) {
            v[p].re += WIDE(x[p].re) * size;
            v[p].im += WIDE(x[p].im) * size;
        }
        NAME(subtract)(a, item, x, &size, left);
        double now[LANES];
        NAME(norms)(a->nodes, left, now, unit);
        for (int lane = 0; lane < item->width; lane++) {
            if (!active[lane]) continue;
            const double before = residual[lane];
            residual[lane] = now[lane] / norm[lane];
            const int enough = residual[lane] <= a->tol && step >= ALWAYS;
            active[lane] = residual[lane] < before / 4 && !enough;
        }
    }
    for (int lane = 0; lane < item->width; lane++) {
        const int64_t network = item->index * LANES + lane;
        const double wrong =
            bad[lane] + (a->status[network] == ALTERNATING_NOT_FINITE ? (double)NAN : 0);
        const int64_t batch = network / a->channels, channel = network % a->channels;
        a->residual[(batch * a->sources + source) * a->channels + channel] = residual[lane] + wrong;
        double *to = a->potential + 2 * (item->of[lane] + source * next);
        for (int64_t p = 0; p < a->nodes; p++) {
            to[2 * a->node[p] * a->channels] = v[p].re[lane] + wrong;
            to[2 * a->node[p] * a->channels + 1] = v[p].im[lane] + wrong;
        }
    }
#undef WIDE
}
