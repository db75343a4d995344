/* Potentials from factors, refined: with the residual r = s - A v in double precision, v gains
 * A^-1 r until |r| <= tol |s| in every network. Included once per precision of the factors. */

/* Doubles that fill a vector, and as many numbers of the factors' precision. */
typedef double NAME(doubles) __attribute__((vector_size(VECTOR_BYTES)));
typedef REAL NAME(half) __attribute__((vector_size(VECTOR_BYTES / PARTS), may_alias));
/* One double for each lane. */
typedef struct {
    NAME(doubles) part[PARTS];
} NAME(wide);
typedef struct {
    NAME(wide) re, im;
} NAME(wide_number);
#define doubles NAME(doubles)
#define half NAME(half)
#define wide NAME(wide)
#define wide_number NAME(wide_number)

static int64_t NAME(solve_bytes)(const struct alternating_args *a) {
    return 2 * aligned(a->nodes * (int64_t)sizeof(wide_number)) +
           2 * aligned(a->nodes * (int64_t)sizeof(number)) +
           aligned((a->largest_front + PAD) * (int64_t)sizeof(number));
}

INLINE void NAME(forward)(const number *shares, int64_t n, int64_t f, number *t) {
    int64_t k = 0;
    for (; k + 4 <= n; k += 4) {
        for (int64_t i = k; i < k + 3; i++)
            for (int64_t q = i + 1; q < k + 4; q++) ADD_PRODUCT(t[q], shares[share_index(f, i, q)], t[i]);
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
        for (int64_t q = k; q < f; q++) ADD_PRODUCT(t[k - 1], shares[share_index(f, k - 1, q)], t[q]);
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

/* From currents to potentials of the scaled networks: x, by position, and `potential`, by node. */
APART void NAME(sweep)(const struct alternating_args *a, const number *shares, const number *inverse,
                       number *x, number *t, number *potential) {
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
        const int32_t *boundary = a->boundary + a->boundary_at[r], *node = a->node + a->first[r];
        memcpy(t, x + a->first[r], (size_t)n * sizeof(number));
        for (int64_t q = 0; q < width; q++) t[n + q] = x[boundary[q]];
        NAME(backward)(shares + a->share_at[r], n, n + width, t);
        memcpy(x + a->first[r], t, (size_t)n * sizeof(number));
        for (int64_t i = 0; i < n; i++) potential[node[i]] = t[i];
    }
}

INLINE wide NAME(widen)(const vec *x) {
    wide all;
    UNROLL for (int i = 0; i < PARTS; i++) all.part[i] =
        __builtin_convertvector(((const half *)x)[i], doubles);
    return all;
}

/* Nodes of an axis are `inner` apart, those of a line together. */
INLINE int64_t NAME(inner)(const struct alternating_args *a, int64_t axis) {
    int64_t inner = 1;
    for (int64_t other = axis + 1; other < a->axes; other++) inner *= a->grid[other];
    return inner;
}

/* Takes from `left` the currents through edges between nodes `far` apart at the potentials x size. */
INLINE void NAME(take_currents)(const number *g, const number *x, const wide *size, int64_t edges,
                                int64_t far, wide_number *left) {
    for (int64_t i = 0; i < edges; i++) {
        const wide g_re = NAME(widen)(&g[i].re), g_im = NAME(widen)(&g[i].im);
        const wide re = NAME(widen)(&x[i].re), far_re = NAME(widen)(&x[i + far].re);
        const wide im = NAME(widen)(&x[i].im), far_im = NAME(widen)(&x[i + far].im);
        UNROLL for (int k = 0; k < PARTS; k++) {
            const doubles drop_re = (re.part[k] - far_re.part[k]) * size->part[k];
            const doubles drop_im = (im.part[k] - far_im.part[k]) * size->part[k];
            const doubles current_re = g_re.part[k] * drop_re - g_im.part[k] * drop_im;
            const doubles current_im = g_re.part[k] * drop_im + g_im.part[k] * drop_re;
            left[i].re.part[k] -= current_re;
            left[i].im.part[k] -= current_im;
            left[i + far].re.part[k] += current_re;
            left[i + far].im.part[k] += current_im;
        }
    }
}

/* v += x size, left -= A (x size); returns each lane's sum of squares of `left`. Plane after plane
 * of the first axis, so that what belongs to a node is in the cache. */
APART wide NAME(advance)(const struct alternating_args *a, const struct NAME(item) *item, const number *x,
                         const wide *size, wide_number *v, wide_number *left) {
    const int64_t planes = a->grid[0], plane = NAME(inner)(a, 0);
    const number *g = item->conductance;
    wide squares = {};
    if (a->closed[0]) {
        const int64_t last = (planes - 1) * plane;
        NAME(take_currents)(g + last, x + last, size, plane, -last, left + last);
    }
    for (int64_t at = 0; at < a->nodes; at += plane) {
        for (int64_t p = at; p < at + plane; p++) {
            const wide re = NAME(widen)(&x[p].re), im = NAME(widen)(&x[p].im);
            const wide l_re = NAME(widen)(&item->leak[p].re), l_im = NAME(widen)(&item->leak[p].im);
            UNROLL for (int k = 0; k < PARTS; k++) {
                const doubles more_re = re.part[k] * size->part[k];
                const doubles more_im = im.part[k] * size->part[k];
                v[p].re.part[k] += more_re;
                v[p].im.part[k] += more_im;
                left[p].re.part[k] -= l_re.part[k] * more_re - l_im.part[k] * more_im;
                left[p].im.part[k] -= l_re.part[k] * more_im + l_im.part[k] * more_re;
            }
        }
        for (int64_t axis = 1; axis < a->axes; axis++) {
            const int64_t n = a->grid[axis], inner = NAME(inner)(a, axis), last = (n - 1) * inner;
            const number *edges = g + axis * a->nodes;
            for (int64_t p = at; p < at + plane; p += n * inner) {
                NAME(take_currents)(edges + p, x + p, size, last, inner, left + p);
                if (a->closed[axis])
                    NAME(take_currents)(edges + p + last, x + p + last, size, inner, -last,
                                        left + p + last);
            }
        }
        if (at + plane < a->nodes) NAME(take_currents)(g + at, x + at, size, plane, plane, left + at);
        for (int64_t p = at; p < at + plane; p++)
            UNROLL for (int k = 0; k < PARTS; k++) squares.part[k] +=
                left[p].re.part[k] * left[p].re.part[k] + left[p].im.part[k] * left[p].im.part[k];
    }
    return squares;
}

INLINE double *NAME(lane)(const void *x, int lane) { return (double *)x + lane; }

/* The norm of a lane whose squares over- or underflow. */
APART double NAME(norm)(int64_t nodes, const wide_number *x, int lane) {
    double largest = 0, wrong = 0, sum = 0;
    for (int64_t p = 0; p < nodes; p++) {
        const double re = *NAME(lane)(&x[p].re, lane), im = *NAME(lane)(&x[p].im, lane);
        largest = fmax(largest, fmax(fabs(re), fabs(im)));
        wrong += (re - re) + (im - im); /* NaN for NaN and infinities */
    }
    if (!(largest > 0) || !isfinite(largest)) return largest + wrong;
    for (int64_t p = 0; p < nodes; p++) {
        const double re = *NAME(lane)(&x[p].re, lane) / largest;
        const double im = *NAME(lane)(&x[p].im, lane) / largest;
        sum += re * re + im * im;
    }
    return sqrt(sum) * largest + wrong;
}

/* The norm of each lane, and a power of two near it. */
static void NAME(norms)(int64_t nodes, int width, const wide_number *x, const wide *squares, double *norm,
                        double *unit) {
    for (int lane = 0; lane < width; lane++) {
        const double sum = *NAME(lane)(squares, lane);
        norm[lane] = sum > 1e-250 && sum < 1e250 ? sqrt(sum) : NAME(norm)(nodes, x, lane);
        int exponent = 0;
        if (norm[lane] > 0 && isfinite(norm[lane])) frexp(norm[lane], &exponent);
        exponent = exponent > 1000 ? 1000 : exponent < -1000 ? -1000 : exponent;
        unit[lane] = ldexp(1, exponent);
    }
}

/* A source to the lanes of vectors. */
APART void NAME(read_source)(const struct alternating_args *a, const struct NAME(item) *item,
                             int64_t start, wide_number *to) {
    for (int64_t first = 0; first < a->nodes; first += NAME(BLOCK)) {
        const int64_t last = least(first + NAME(BLOCK), a->nodes);
        if (item->width < LANES) memset(to + first, 0, (size_t)(last - first) * sizeof(wide_number));
        for (int lane = 0; lane < item->width; lane++) {
            const int64_t at = 2 * (item->of[lane] + start);
#define READ(type)                                                              \
    for (int64_t p = first; p < last; p++) {                                    \
        const type *value = (const type *)a->source + at + 2 * p * a->channels; \
        *NAME(lane)(&to[p].re, lane) = value[0];                                \
        *NAME(lane)(&to[p].im, lane) = value[1];                                \
    }
            if (a->single)
                READ(float)
            else
                READ(double)
#undef READ
        }
    }
}

/* The reverse; `wrong` is added, NaN or 0 of each lane. */
APART void NAME(write)(const struct alternating_args *a, const struct NAME(item) *item, int64_t start,
                       const wide_number *from, const double *wrong, void *field) {
    for (int64_t first = 0; first < a->nodes; first += NAME(BLOCK)) {
        const int64_t last = least(first + NAME(BLOCK), a->nodes);
        for (int lane = 0; lane < item->width; lane++) {
            const int64_t at = 2 * (item->of[lane] + start);
#define WRITE(type)                                                      \
    for (int64_t p = first; p < last; p++) {                             \
        type *value = (type *)field + at + 2 * p * a->channels;          \
        value[0] = (type)(*NAME(lane)(&from[p].re, lane) + wrong[lane]); \
        value[1] = (type)(*NAME(lane)(&from[p].im, lane) + wrong[lane]); \
    }
            if (a->single)
                WRITE(float)
            else
                WRITE(double)
#undef WRITE
        }
    }
}

/* Each node's potential less the next one's along an axis, 0 where no edge is. */
APART void NAME(drops)(const struct alternating_args *a, int64_t axis, const wide_number *v,
                       wide_number *to) {
    const int64_t n = a->grid[axis], inner = NAME(inner)(a, axis), last = (n - 1) * inner;
    for (int64_t line = 0; line < a->nodes; line += n * inner)
        for (int64_t i = 0; i < n * inner; i++) {
            const int64_t p = line + i, next = i < last ? p + inner : a->closed[axis] ? p - last : p;
            UNROLL for (int k = 0; k < PARTS; k++) {
                to[p].re.part[k] = v[p].re.part[k] - v[next].re.part[k];
                to[p].im.part[k] = v[p].im.part[k] - v[next].im.part[k];
            }
        }
}

static void NAME(solve_source)(const struct alternating_args *a, const struct NAME(item) *item,
                               int64_t source, char *workspace) {
    const number *shares = (const number *)a->shares + item->slot * a->item_shares;
    const number *inverse = (const number *)a->inverse + item->slot * a->nodes;
    const int64_t start = source * a->nodes * a->channels, network = item->index * LANES;
    const int64_t wide_bytes = aligned(a->nodes * (int64_t)sizeof(wide_number));
    const int64_t bytes = aligned(a->nodes * (int64_t)sizeof(number));
    wide_number *v = (wide_number *)workspace, *left = (wide_number *)(workspace + wide_bytes);
    number *x = (number *)(workspace + 2 * wide_bytes), *more = (number *)((char *)x + bytes);
    number *t = (number *)((char *)more + bytes);
    memset(v, 0, (size_t)wide_bytes);
    NAME(read_source)(a, item, start, left);
    wide bad = {}, squares = {};
    for (int64_t p = 0; p < a->nodes; p++)
        UNROLL for (int k = 0; k < PARTS; k++) bad.part[k] +=
            (left[p].re.part[k] - left[p].re.part[k]) + (left[p].im.part[k] - left[p].im.part[k]);
    /* A node with neither edge nor leak is no part of the network. A node with edges whose pivot is
     * zero is: its source stays in the residual. */
    if (NAME(any_without)(a->nodes, inverse, item->width))
        for (int64_t p = 0; p < a->nodes; p++)
            for (int lane = 0; lane < item->width; lane++)
                if (inverse[p].re[lane] == 0 && inverse[p].im[lane] == 0 && a->status[network + lane] < 0)
                    *NAME(lane)(&left[a->node[p]].re, lane) = *NAME(lane)(&left[a->node[p]].im, lane) = 0;
    for (int64_t p = 0; p < a->nodes; p++)
        UNROLL for (int k = 0; k < PARTS; k++) squares.part[k] +=
            left[p].re.part[k] * left[p].re.part[k] + left[p].im.part[k] * left[p].im.part[k];
    double norm[LANES], unit[LANES], residual[LANES], now[LANES];
    NAME(norms)(a->nodes, item->width, left, &squares, norm, unit);
    int active[LANES];
    for (int lane = 0; lane < item->width; lane++) {
        residual[lane] = norm[lane] > 0;
        active[lane] = norm[lane] > 0;
    }
    for (int64_t step = 0; step <= a->refinements; step++) {
        wide size = {}, to_unit = {};
        int any = 0;
        for (int lane = 0; lane < item->width; lane++) {
            if (!active[lane]) continue;
            any = 1;
            *NAME(lane)(&to_unit, lane) = 1 / unit[lane];
            *NAME(lane)(&size, lane) = unit[lane] * (double)((const REAL *)a->scale)[network + lane];
        }
        if (!any) break;
        for (int64_t p = 0; p < a->nodes; p++) {
            const wide_number *from = left + a->node[p];
            UNROLL for (int k = 0; k < PARTS; k++) {
                ((half *)&x[p].re)[k] = __builtin_convertvector(from->re.part[k] * to_unit.part[k], half);
                ((half *)&x[p].im)[k] = __builtin_convertvector(from->im.part[k] * to_unit.part[k], half);
            }
        }
        NAME(sweep)(a, shares, inverse, x, t, more);
        squares = NAME(advance)(a, item, more, &size, v, left);
        NAME(norms)(a->nodes, item->width, left, &squares, now, unit);
        for (int lane = 0; lane < item->width; lane++) {
            if (!active[lane]) continue;
            const double before = residual[lane];
            residual[lane] = now[lane] / norm[lane];
            const int enough = residual[lane] <= a->tol && step >= ALWAYS;
            active[lane] = residual[lane] < before / 4 && !enough;
        }
    }
    double wrong[LANES];
    for (int lane = 0; lane < item->width; lane++) {
        wrong[lane] = *NAME(lane)(&bad, lane);
        if (a->status[network + lane] == ALTERNATING_NOT_FINITE) wrong[lane] = NAN;
        const int64_t batch = (network + lane) / a->channels, channel = (network + lane) % a->channels;
        a->residual[(batch * a->sources + source) * a->channels + channel] = residual[lane] + wrong[lane];
    }
    NAME(write)(a, item, start, v, wrong, a->potential);
    for (int64_t axis = 0; axis < a->axes; axis++)
        if (a->drop[axis]) {
            NAME(drops)(a, axis, v, left);
            NAME(write)(a, item, start, left, wrong, a->drop[axis]);
        }
}
