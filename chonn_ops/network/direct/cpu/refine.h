/* Potentials from factors, refined: with the residual r = s - A v in double precision, v gains
 * A^-1 r until |r| <= tol |s| in every network. */

typedef struct {
    wide re, im;
} wide_number;
#define wide_number wide_number

static int64_t MODE(solve_bytes)(const struct direct_args *a) {
    const int64_t drops = a->drop[0] ? a->entries : 0; /* where the residual was */
    return aligned(a->nodes * (int64_t)sizeof(wide_number)) +
           aligned((a->nodes > drops ? a->nodes : drops) * (int64_t)sizeof(wide_number)) +
           2 * aligned(a->nodes * (int64_t)sizeof(element)) +
           aligned((a->largest_front + PAD) * (int64_t)sizeof(element));
}

/* Takes from `left` the currents through edges between nodes `far` apart at the potentials x size. */
INLINE void take_currents(const element *g, const element *x, const wide *size, int64_t edges,
                          int64_t far, wide_number *left) {
    for (int64_t i = 0; i < edges; i++) {
        const wide g_re = widen(&g[i].re), g_im = widen(&g[i].im);
        const wide re = widen(&x[i].re), far_re = widen(&x[i + far].re);
        const wide im = widen(&x[i].im), far_im = widen(&x[i + far].im);
        UNROLL for (int k = 0; k < HALVES; k++) {
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

/* v += x size, left -= A (x size); returns each lane's sum of squares of `left`. A node takes what its
 * leak takes just before the first edge that reaches as far, and is done before the first edge whose
 * lower node lies behind it: so what belongs to it is in the cache. */
APART wide advance(const struct direct_args *a, const struct item *item, const element *x,
                   const wide *size, wide_number *v, wide_number *left) {
    const element *leak = (const element *)item->field[0];
    wide squares = {};
    int64_t p = 0, done = 0;
    for (const struct direct_run *run = a->runs; run <= a->runs + a->num_runs; run++) {
        const int is_edge = run < a->runs + a->num_runs;
        const int64_t reach = is_edge ? run->node + run->count + (run->far > 0 ? run->far : 0) : a->nodes;
        for (; p < reach; p++) {
            const wide re = widen(&x[p].re), im = widen(&x[p].im);
            const wide l_re = widen(&leak[p].re), l_im = widen(&leak[p].im);
            UNROLL for (int k = 0; k < HALVES; k++) {
                const doubles more_re = re.part[k] * size->part[k];
                const doubles more_im = im.part[k] * size->part[k];
                v[p].re.part[k] += more_re;
                v[p].im.part[k] += more_im;
                left[p].re.part[k] -= l_re.part[k] * more_re - l_im.part[k] * more_im;
                left[p].im.part[k] -= l_re.part[k] * more_im + l_im.part[k] * more_re;
            }
        }
        const int64_t low = is_edge ? run->node + (run->far < 0 ? run->far : 0) : a->nodes;
        for (; done < low; done++)
            UNROLL for (int k = 0; k < HALVES; k++) squares.part[k] +=
                left[done].re.part[k] * left[done].re.part[k] +
                left[done].im.part[k] * left[done].im.part[k];
        if (is_edge)
            take_currents((const element *)item->field[1 + run->axis] + run->entry, x + run->node, size,
                          run->count, run->far, left + run->node);
    }
    return squares;
}

INLINE double *lane_of(const void *x, int lane) { return (double *)x + lane; }

/* The norm of a lane whose squares over- or underflow. */
APART double norm_of(int64_t nodes, const wide_number *x, int lane) {
    double largest = 0, wrong = 0, sum = 0;
    for (int64_t p = 0; p < nodes; p++) {
        const double re = *lane_of(&x[p].re, lane), im = *lane_of(&x[p].im, lane);
        largest = fmax(largest, fmax(fabs(re), fabs(im)));
        wrong += (re - re) + (im - im); /* NaN for NaN and infinities */
    }
    if (!(largest > 0) || !isfinite(largest)) return largest + wrong;
    for (int64_t p = 0; p < nodes; p++) {
        const double re = *lane_of(&x[p].re, lane) / largest;
        const double im = *lane_of(&x[p].im, lane) / largest;
        sum += re * re + im * im;
    }
    return sqrt(sum) * largest + wrong;
}

/* The norm of each lane, and a power of two near it. */
static void norms(int64_t nodes, int width, const wide_number *x, const wide *squares, double *norm,
                  double *unit) {
    for (int lane = 0; lane < width; lane++) {
        const double sum = *lane_of(squares, lane);
        norm[lane] = sum > 1e-250 && sum < 1e250 ? sqrt(sum) : norm_of(nodes, x, lane);
        int exponent = 0;
        if (norm[lane] > 0 && isfinite(norm[lane])) frexp(norm[lane], &exponent);
        exponent = exponent > 1000 ? 1000 : exponent < -1000 ? -1000 : exponent;
        unit[lane] = ldexp(1, exponent);
    }
}

/* A source to the lanes of vectors. */
APART void read_source(const struct direct_args *a, const struct item *item, int64_t start,
                       wide_number *to) {
    for (int64_t first = 0; first < a->nodes; first += BLOCK) {
        const int64_t last = least(first + BLOCK, a->nodes);
        if (item->width < LANES) memset(to + first, 0, (size_t)(last - first) * sizeof(wide_number));
        for (int lane = 0; lane < item->width; lane++) {
            const int64_t at = 2 * (item->of[lane] + start);
#define READ(type)                                                              \
    for (int64_t p = first; p < last; p++) {                                    \
        const type *value = (const type *)a->source + at + 2 * p * a->channels; \
        *lane_of(&to[p].re, lane) = value[0];                                   \
        *lane_of(&to[p].im, lane) = value[1];                                   \
    }
            if (a->single)
                READ(float)
            else
                READ(double)
#undef READ
        }
    }
}

/* The reverse, for `count` numbers of each lane, whose first are at `to`; `wrong` is added, NaN or 0 of
 * each lane. */
APART void write_field(const struct direct_args *a, const struct item *item, const int64_t *to,
                       int64_t start, int64_t count, const wide_number *from, const double *wrong,
                       void *field) {
    for (int64_t first = 0; first < count; first += BLOCK) {
        const int64_t last = least(first + BLOCK, count);
        for (int lane = 0; lane < item->width; lane++) {
            const int64_t at = 2 * (to[lane] + start);
#define WRITE(type)                                                   \
    for (int64_t p = first; p < last; p++) {                          \
        type *value = (type *)field + at + 2 * p * a->channels;       \
        value[0] = (type)(*lane_of(&from[p].re, lane) + wrong[lane]); \
        value[1] = (type)(*lane_of(&from[p].im, lane) + wrong[lane]); \
    }
            if (a->single)
                WRITE(float)
            else
                WRITE(double)
#undef WRITE
        }
    }
}

/* What the potential drops by along each edge of an axis, 0 where none is. */
APART void drops_along(const struct direct_args *a, int64_t axis, const wide_number *v, wide_number *to) {
    memset(to, 0, (size_t)a->entries * sizeof(wide_number));
    for (const struct direct_run *run = a->runs; run < a->runs + a->num_runs; run++)
        for (int64_t i = 0; run->axis == axis && i < run->count; i++) {
            const wide_number *from = v + run->node + i;
            UNROLL for (int k = 0; k < HALVES; k++) {
                to[run->entry + i].re.part[k] = from->re.part[k] - from[run->far].re.part[k];
                to[run->entry + i].im.part[k] = from->im.part[k] - from[run->far].im.part[k];
            }
        }
}

static void solve_source(const struct direct_args *a, const struct item *item, int64_t source,
                         char *workspace) {
    const element *shares = (const element *)a->shares + item->slot * a->item_shares;
    const element *inverse = (const element *)a->inverse + item->slot * a->nodes;
    const int64_t start = source * a->nodes * a->channels, network = item->index * LANES;
    const int64_t wide_bytes = aligned(a->nodes * (int64_t)sizeof(wide_number));
    const int64_t bytes = aligned(a->nodes * (int64_t)sizeof(element));
    wide_number *v = (wide_number *)workspace, *left = (wide_number *)(workspace + wide_bytes);
    element *t = (element *)(workspace + MODE(solve_bytes)(a) -
                             aligned((a->largest_front + PAD) * (int64_t)sizeof(element)));
    element *more = (element *)((char *)t - bytes), *x = (element *)((char *)more - bytes);
    memset(v, 0, (size_t)wide_bytes);
    read_source(a, item, start, left);
    wide bad = {}, squares = {};
    for (int64_t p = 0; p < a->nodes; p++)
        UNROLL for (int k = 0; k < HALVES; k++) bad.part[k] +=
            (left[p].re.part[k] - left[p].re.part[k]) + (left[p].im.part[k] - left[p].im.part[k]);
    /* A node with neither edge nor leak is no part of the network. A node with edges whose pivot is
     * zero is: its source stays in the residual. */
    if (MODE(any_without)(a, item, inverse))
        for (int64_t p = 0; p < a->nodes; p++)
            for (int lane = 0; lane < item->width; lane++)
                if (MODE(lacks)(inverse + p, lane) && a->status[network + lane] < 0)
                    *lane_of(&left[a->node[p]].re, lane) = *lane_of(&left[a->node[p]].im, lane) = 0;
    for (int64_t p = 0; p < a->nodes; p++)
        UNROLL for (int k = 0; k < HALVES; k++) squares.part[k] +=
            left[p].re.part[k] * left[p].re.part[k] + left[p].im.part[k] * left[p].im.part[k];
    double norm[LANES], unit[LANES], residual[LANES], now[LANES];
    norms(a->nodes, item->width, left, &squares, norm, unit);
    int active[LANES];
    for (int lane = 0; lane < item->width; lane++) {
        residual[lane] = norm[lane] > 0;
        active[lane] = norm[lane] > 0;
    }
    for (int64_t step = 0; step <= DIRECT_REFINEMENTS; step++) {
        wide size = {}, to_unit = {};
        int any = 0;
        for (int lane = 0; lane < item->width; lane++) {
            if (!active[lane]) continue;
            any = 1;
            *lane_of(&to_unit, lane) = 1 / unit[lane];
            *lane_of(&size, lane) = unit[lane] * (double)((const REAL *)a->scale)[network + lane];
        }
        if (!any) break;
        for (int64_t p = 0; p < a->nodes; p++) {
            const wide_number *from = left + a->node[p];
            UNROLL for (int k = 0; k < HALVES; k++) {
                ((half *)&x[p].re)[k] = __builtin_convertvector(from->re.part[k] * to_unit.part[k], half);
                ((half *)&x[p].im)[k] = __builtin_convertvector(from->im.part[k] * to_unit.part[k], half);
            }
        }
        MODE(sweep_up)(1, 1, a, shares, inverse, NULL, x, t);
        MODE(sweep_down)(1, 1, a, shares, x, t);
        for (int64_t p = 0; p < a->nodes; p++) more[a->node[p]] = x[p];
        squares = advance(a, item, more, &size, v, left);
        norms(a->nodes, item->width, left, &squares, now, unit);
        for (int lane = 0; lane < item->width; lane++) {
            if (!active[lane]) continue;
            const double before = residual[lane];
            residual[lane] = now[lane] / norm[lane];
            /* In single precision the residual may be far below the error: refine once at least. */
            const int enough = residual[lane] <= a->tol && step >= (sizeof(REAL) == 4);
            active[lane] = residual[lane] < before / 4 && !enough;
        }
    }
    double wrong[LANES];
    for (int lane = 0; lane < item->width; lane++) {
        wrong[lane] = *lane_of(&bad, lane);
        if (a->status[network + lane] == DIRECT_NOT_FINITE) wrong[lane] = NAN;
        const int64_t batch = (network + lane) / a->channels, channel = (network + lane) % a->channels;
        a->residual[(batch * a->sources + source) * a->channels + channel] = residual[lane] + wrong[lane];
    }
    write_field(a, item, item->of, start, a->nodes, v, wrong, a->potential);
    for (int64_t axis = 0; axis < a->axes; axis++)
        if (a->drop[axis]) {
            drops_along(a, axis, v, left);
            write_field(a, item, item->edges_of, source * a->entries * a->channels, a->entries, left,
                        wrong, a->drop[axis]);
        }
}

/* Sources that one thread solves for together. */
static int64_t MODE(chunk_of)(const struct direct_args *a) { return a->sources; }

static void MODE(solve_item)(const struct direct_args *a, const struct item *item, int64_t source,
                             int64_t last, char *workspace) {
    for (; source < last; source++) solve_source(a, item, source, workspace);
}

#undef wide_number
