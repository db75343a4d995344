/* One line of nodes, eliminated from one end to the other by the star-mesh law (see multigrid.h),
 * straight from the tensors: what stays are two or three values a node. A node of a periodic line has two
 * neighbours left, the next one and the last one. */

struct line {
    const struct network_args *a;
    struct group group;
    vec *g, *l, *s; /* a chunk of conductances, leaks and sources */
    vec *u, *next, *last; /* a node's potential is u + next v_next + last v_last */
};

static void read_nodes(const struct line *line, const struct network_field *f, int64_t start,
                       int64_t count, vec *to) {
    int64_t at[LANES];
    origins(line->a, f, NULL, line->group, 0, 0, at);
    for (int lane = 0; lane < line->group.width; lane++) at[lane] += start * f->node[2];
    pack_row(f, line->group.width, at, count, to);
}

static void read_chunk(const struct line *line, int64_t start, int64_t count) {
    read_nodes(line, &line->a->edges[2], start, count, line->g);
    read_nodes(line, &line->a->leak, start, count, line->l);
    read_nodes(line, &line->a->source, start, count, line->s);
}

/* Fills u, next and last; returns the last node's potential. `seam` is the edge from the last node to the first. */
APART vec eliminate_line(const struct line *line, vec seam, vec *poison, vec *most) {
    const int64_t n = line->a->grid[2];
    const vec zero = {};
    vec leak = zero, source = zero, last_leak = zero, last_source = zero, round = seam, v = zero;
    vec bad = seam * 0, size = zero;
    for (int64_t start = 0; start < n; start += LINE_CHUNK) {
        const int64_t count = n - start < LINE_CHUNK ? n - start : LINE_CHUNK;
        read_chunk(line, start, count);
        for (int64_t i = 0; i < count; i++) {
            const int64_t p = start + i;
            const vec l = line->l[i] + leak, s = line->s[i] + source;
            bad += (line->l[i] + line->s[i]) * 0;
            size = larger(size, line->s[i]);
            if (p == n - 1) {
                v = (s + last_source) * inverse_of(l + last_leak);
                break;
            }
            bad += line->g[i] * 0;
            vec g = line->g[i];
            if (p == n - 2) g += round, round = zero;
            const vec inverse = inverse_of(g + round + l), next = g * inverse;
            line->u[p] = s * inverse;
            line->next[p] = next;
            leak = next * l;
            source = next * s;
            if (line->last) {
                const vec share = line->last[p] = round * inverse;
                last_leak += share * l;
                last_source += share * s;
                round *= next;
            }
        }
    }
    *poison = bad;
    *most = size;
    return v;
}

/* Squares of residuals and sources, both in units of 1 / scale. */
APART void line_residual(const struct line *line, vec seam, vec scale, vec *residuals, vec *sources) {
    const int64_t n = line->a->grid[2];
    const vec *v = line->u;
    vec g = seam, before = v[n - 1];
    *residuals = *sources = (vec){};
    for (int64_t start = 0; start < n; start += LINE_CHUNK) {
        const int64_t count = n - start < LINE_CHUNK ? n - start : LINE_CHUNK;
        vec left = {}, all = {};
        read_chunk(line, start, count);
        for (int64_t i = 0; i < count; i++) {
            const int64_t p = start + i;
            const vec ahead = p == n - 1 ? seam : line->g[i], l = line->l[i];
            const vec after = p == n - 1 ? v[0] : v[p + 1];
            const vec s = where(g + ahead + l > 0, line->s[i]) * scale;
            const vec r = s - (l * v[p] + g * (v[p] - before) + ahead * (v[p] - after)) * scale;
            left += r * r;
            all += s * s;
            g = ahead;
            before = v[p];
        }
        *residuals += left;
        *sources += all;
    }
}

static void solve_line(const struct network_args *a, vec *workspace, struct group group) {
    const int64_t n = a->grid[2];
    const int periodic = a->periodic[2] && n > 1;
    struct line line = {.a = a, .group = group, .g = workspace};
    line.l = line.g + LINE_CHUNK;
    line.s = line.l + LINE_CHUNK;
    line.u = line.s + LINE_CHUNK;
    line.next = line.u + n;
    line.last = periodic ? line.next + n : NULL;
    vec seam = (vec){}, poison, most, residuals, sources, unit;
    if (periodic) read_nodes(&line, &a->edges[2], n - 1, 1, &seam);
    const vec last = eliminate_line(&line, seam, &poison, &most);
    line.u[n - 1] = last;
    for (int64_t p = n - 2; p >= 0; p--) {
        line.u[p] += line.next[p] * line.u[p + 1];
        if (periodic) line.u[p] += line.last[p] * last;
    }
    for (int lane = 0; lane < LANES; lane++) unit[lane] = (REAL)ldexp(1, -exponent_of(most[lane]));
    line_residual(&line, seam, unit, &residuals, &sources);
    const struct network_field *f = &a->potential;
    int64_t at[LANES];
    origins(a, f, NULL, group, 0, 0, at);
    for (int lane = 0; lane < group.width; lane++) {
        REAL *to = (REAL *)f->at + at[lane];
        for (int64_t i = 0; i < n; i++) to[i * f->node[2]] = line.u[i][lane] * (1 + poison[lane]);
        a->iterations[group.first + lane] = 0;
        a->deviation[group.first + lane] =
            (sources[lane] > 0 ? sqrt((double)residuals[lane] / (double)sources[lane]) : 0) +
            (double)poison[lane];
    }
}

static int64_t line_bytes(const struct network_args *a) {
    const int64_t vectors = 3 * LINE_CHUNK + (a->periodic[2] ? 3 : 2) * a->grid[2];
    return (vectors * (int64_t)sizeof(vec) + 63) / 64 * 64;
}

static void solve_lines(const struct network_args *a) {
    const int64_t all = a->batches * a->channels, bytes = line_bytes(a);
#pragma omp parallel for schedule(dynamic, 1) num_threads(a->threads)
    for (int64_t first = 0; first < all; first += LANES) {
        const int64_t left = all - first;
        solve_line(a, (vec *)((char *)a->workspace + thread_number() * bytes),
                   (struct group){first, left < LANES ? (int)left : LANES});
    }
}
