/* Tensors of any strides and types to groups of networks and back. Included once per precision. */

struct NAME(group) {
    int64_t first; /* network: batch * channels + channel */
    int width;     /* networks; the lanes above hold zeros */
};

#define GATHER(type, convert)                                                                     \
    for (int lane = 0; lane < group.width; lane++) {                                              \
        const type *from = (const type *)f->at + at[lane];                                        \
        for (int64_t i = 0; i < n; i++) ((REAL *)(to + i))[lane] = (REAL)convert(from[i * step]); \
    }                                                                                             \
    break;

/* One row of nodes. */
static void NAME(pack_row)(const struct network_field *f, struct NAME(group) group, const int64_t *at,
                           int64_t n, vec *to) {
    const int64_t step = f->node[2];
    int together = group.width == LANES && f->type == (sizeof(REAL) == 8 ? DTYPE_FLOAT64 : DTYPE_FLOAT32);
    for (int lane = 1; lane < group.width; lane++) together &= at[lane] == at[0] + lane;
    if (together) {
        const REAL *from = (const REAL *)f->at + at[0];
        for (int64_t i = 0; i < n; i++) memcpy(to + i, from + i * step, sizeof(vec));
        return;
    }
    if (group.width < LANES) memset(to, 0, (size_t)n * sizeof(vec));
    switch (f->type) {
    case DTYPE_FLOAT32: GATHER(float, )
    case DTYPE_FLOAT64: GATHER(double, )
    case DTYPE_BFLOAT16: GATHER(uint16_t, widen_bfloat16)
    default: GATHER(uint16_t, widen_float16)
    }
}
#undef GATHER

/* Where each network of a group has its first node. */
static void NAME(origins)(const struct network_args *a, const struct network_field *f,
                          struct NAME(group) group, int64_t *at) {
    for (int lane = 0; lane < group.width; lane++) {
        const int64_t network = group.first + lane;
        at[lane] = first_element(a, f, network);
    }
}

APART void NAME(pack)(const struct network_args *a, const struct network_field *f,
                      struct NAME(group) group, const struct grid *grid, vec *to) {
    int64_t origin[LANES], at[LANES];
    NAME(origins)(a, f, group, origin);
    NAME(clear_margin)(grid, to, 1);
    EACH_ROW (grid) {
        for (int lane = 0; lane < group.width; lane++)
            at[lane] = origin[lane] + z * f->node[0] + y * f->node[1];
        NAME(pack_row)(f, group, at, grid->n[2], to + ROW(grid));
    }
}

/* The last entry along an axis counts on periodic axes of more than one node only. */
static void NAME(pack_edges)(const struct network_args *a, int axis, struct NAME(group) group,
                             const struct grid *grid, vec *to) {
    NAME(pack)(a, &a->edges[axis], group, grid, to);
    if (grid->periodic[axis]) {
        NAME(wrap)(grid, to, 1);
        return;
    }
    struct grid last = *grid;
    last.first += (grid->n[axis] - 1) * grid->stride[axis];
    last.n[axis] = 1;
    EACH_ROW (&last) memset(to + ROW(&last), 0, (size_t)last.n[2] * sizeof(vec));
}

APART void NAME(unpack)(const struct network_args *a, struct NAME(group) group, const struct grid *grid,
                        const vec *from, vec scale) {
    const struct network_field *f = &a->potential;
    int64_t origin[LANES];
    NAME(origins)(a, f, group, origin);
    EACH_ROW (grid) {
        const vec *row = from + ROW(grid);
        for (int lane = 0; lane < group.width; lane++) {
            REAL *to = (REAL *)f->at + origin[lane] + z * f->node[0] + y * f->node[1];
            for (int64_t i = 0; i < grid->n[2]; i++) to[i * f->node[2]] = row[i][lane] * scale[lane];
        }
    }
}
