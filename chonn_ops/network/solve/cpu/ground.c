/* Which nodes are in a connected part without a leak, whose potentials nothing determines. */

#include "network.h"

#include "_library.h"

struct grid_view {
    const struct network_args *a;
    int64_t n[3], network; /* batch * channels + channel */
};

#define MARKS(type, is_set)                                                 \
    {                                                                       \
        const type *from = (const type *)f->at + origin;                    \
        for (int64_t x = 0; x < count; x++) to[x] = is_set(from[x * step]); \
    }                                                                       \
    break;
#define IS_NUMBER(value) ((value) != 0)
#define IS_HALF(value) (((value) & 0x7fff) != 0)

/* 1 for each of `count` entries of a row that is not zero (a NaN is not), else 0. */
static void mark(const struct grid_view *v, const struct network_field *f, int64_t z, int64_t y,
                 int64_t count, uint8_t *to) {
    const int64_t step = f->node[2];
    const int64_t origin = first_element(v->a, f, v->network) + z * f->node[0] + y * f->node[1];
    switch (f->type) {
    case DTYPE_FLOAT32: MARKS(float, IS_NUMBER)
    case DTYPE_FLOAT64: MARKS(double, IS_NUMBER)
    default: MARKS(uint16_t, IS_HALF)
    }
}

static void mark_row(const struct grid_view *v, const struct network_field *f, int64_t z, int64_t y,
                     uint8_t *to) {
    mark(v, f, z, y, v->n[2], to);
}

/* The edges of a row along an axis: the last ones count on periodic axes of several nodes only. */
static void mark_edges(const struct grid_view *v, int axis, int64_t z, int64_t y, uint8_t *to) {
    const int64_t at[2] = {z, y}, n = v->n[axis];
    const int closed = v->a->periodic[axis] && n > 1;
    mark_row(v, &v->a->edges[axis], z, y, to);
    if (closed) return;
    if (axis == 2)
        to[n - 1] = 0;
    else if (at[axis] == n - 1)
        for (int64_t x = 0; x < v->n[2]; x++) to[x] = 0;
}

static int32_t root_of(int32_t *parent, int32_t p) {
    while (parent[p] != p) p = parent[p] = parent[parent[p]];
    return p;
}

/* The first node of a part is its root. */
static void join(int32_t *parent, int32_t p, int32_t q) {
    p = root_of(parent, p), q = root_of(parent, q);
    if (p < q)
        parent[q] = p;
    else
        parent[p] = q;
}

/* The parts of a grid. */
static void join_along_axes(const struct grid_view *v, int32_t *parent, uint8_t *edges) {
    const int64_t *n = v->n, stride[3] = {n[1] * n[2], n[2], 1};
    for (int64_t z = 0; z < n[0]; z++)
        for (int64_t y = 0; y < n[1]; y++)
            for (int axis = 0; axis < 3; axis++) {
                if (n[axis] == 1) continue;
                mark_edges(v, axis, z, y, edges);
                for (int64_t x = 0, p = (z * n[1] + y) * n[2]; x < n[2]; x++, p++) {
                    const int64_t at = axis == 0 ? z : axis == 1 ? y : x;
                    const int64_t steps = at + 1 < n[axis] ? 1 : 1 - n[axis];
                    if (edges[x]) join(parent, (int32_t)p, (int32_t)(p + steps * stride[axis]));
                }
            }
}

/* The parts of a graph. */
static void join_ends(const struct grid_view *v, int32_t *parent, uint8_t *edges) {
    const int64_t count = v->a->num_edges, *start = v->a->ends, *end = start + count;
    mark(v, &v->a->edges[2], 0, 0, count, edges);
    for (int64_t e = 0; e < count; e++)
        if (edges[e]) join(parent, (int32_t)start[e], (int32_t)end[e]);
}

/* A network without a leak of zero, or on a grid with a leak and no edge of zero, has no such part. */
static int is_grounded(const struct grid_view *v, uint8_t *row) {
    const int64_t *n = v->n;
    int some_leak = 0, no_leak = 0, no_edge = v->a->ends != 0;
    for (int64_t z = 0; z < n[0]; z++)
        for (int64_t y = 0; y < n[1]; y++) {
            int64_t count = 0;
            mark_row(v, &v->a->leak, z, y, row);
            for (int64_t x = 0; x < n[2]; x++) count += row[x];
            some_leak |= count > 0, no_leak |= count < n[2];
            for (int axis = 0; axis < 3 && !no_edge; axis++) {
                const int closed = v->a->periodic[axis] && n[axis] > 1;
                if (!closed && axis < 2 && (axis ? y : z) == n[axis] - 1) continue;
                mark_edges(v, axis, z, y, row);
                count = 0;
                for (int64_t x = 0; x < n[2]; x++) count += row[x];
                no_edge |= count < n[2] - (axis == 2 && !closed);
            }
        }
    return !no_leak || (some_leak && !no_edge);
}

/* Labels the nodes of a network: the first node of their part where that has no leak, else -1.
 * Returns whether there is such a part. */
static int32_t label_nodes(const struct grid_view *v, int32_t *parent, int32_t *label) {
    const int64_t *n = v->n, all = n[0] * n[1] * n[2];
    uint8_t *grounded = (uint8_t *)(parent + all), *row = grounded + all;
    if (is_grounded(v, row)) return 0;
    for (int64_t p = 0; p < all; p++) parent[p] = (int32_t)p;
    if (v->a->ends)
        join_ends(v, parent, row);
    else
        join_along_axes(v, parent, row);
    for (int64_t p = 0; p < all; p++) grounded[p] = 0;
    for (int64_t z = 0; z < n[0]; z++)
        for (int64_t y = 0; y < n[1]; y++) {
            const int64_t first = (z * n[1] + y) * n[2];
            mark_row(v, &v->a->leak, z, y, row);
            for (int64_t x = 0; x < n[2]; x++)
                if (row[x]) grounded[root_of(parent, (int32_t)(first + x))] = 1;
        }
    int32_t found = 0;
    for (int64_t p = 0; p < all; p++) {
        const int32_t root = root_of(parent, (int32_t)p);
        if (grounded[root]) continue;
        label[p] = root, found = 1;
    }
    return found;
}

/* Writes to a->label, which is -1 before, and to a->iterations whether a network has any label. The
 * workspace holds for each thread 5 bytes a node and 1 of a row, or of all edges of a graph. */
EXPORT void chonn_network_cut_off(int32_t isa, int32_t is_double, const struct network_args *a) {
    (void)isa, (void)is_double;
    const int64_t all = a->grid[0] * a->grid[1] * a->grid[2],
                  row = a->num_edges > a->grid[2] ? a->num_edges : a->grid[2],
                  bytes = (5 * all + row + 63) / 64 * 64;
#pragma omp parallel for schedule(dynamic, 1) num_threads(a->threads)
    for (int64_t thread = 0; thread < a->threads; thread++) {
        int32_t *parent = (int32_t *)((char *)a->workspace + thread * bytes);
        for (int64_t i = thread; i < a->batches * a->channels; i += a->threads) {
            const struct grid_view v = {a, {a->grid[0], a->grid[1], a->grid[2]}, i};
            a->iterations[i] = label_nodes(&v, parent, a->label + i * all);
        }
    }
}
