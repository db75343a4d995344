/* Tensors of any strides and types to fields of a network, or of a group of them, and back. Included
 * once per form. */

struct FORM(group) {
    int64_t first; /* network: batch * channels + channel */
    int width;     /* networks, at most NETWORKS; the others hold zeros */
};

#define GATHER(type, convert)                                                                 \
    for (int k = 0; k < group.width; k++) {                                                   \
        const type *from = (const type *)f->at + at[k];                                       \
        for (int64_t i = 0; i < n; i++) *FORM(of)(to + i, k) = (REAL)convert(from[i * step]); \
    }                                                                                         \
    break;

/* n nodes of a row; `at`: where each network has the first of them. */
static void FORM(pack_row)(const struct network_field *f, struct FORM(group) group, const int64_t *at,
                           int64_t n, ELEMENT *to) {
    const int64_t step = f->node[2];
    int together =
        group.width == NETWORKS && f->type == (sizeof(REAL) == 8 ? DTYPE_FLOAT64 : DTYPE_FLOAT32);
    for (int k = 1; k < group.width; k++) together &= at[k] == at[0] + k;
    if (together) {
        const REAL *from = (const REAL *)f->at + at[0];
        for (int64_t i = 0; i < n; i++) memcpy(to + i, from + i * step, sizeof(ELEMENT));
        return;
    }
    if (group.width < NETWORKS) memset(to, 0, (size_t)n * sizeof(ELEMENT));
    switch (f->type) {
    case DTYPE_FLOAT32: GATHER(float, )
    case DTYPE_FLOAT64: GATHER(double, )
    case DTYPE_BFLOAT16: GATHER(uint16_t, widen_bfloat16)
    default: GATHER(uint16_t, widen_float16)
    }
}
#undef GATHER

/* Where each network of a group has the first node of a row. */
static void FORM(origins)(const struct network_args *a, const struct network_field *f,
                          struct FORM(group) group, int64_t z, int64_t y, int64_t *at) {
    for (int k = 0; k < group.width; k++)
        at[k] = first_element(a, f, group.first + k) + z * f->node[0] + y * f->node[1];
}

static void FORM(pack)(const struct network_args *a, const struct FORM(solver) * s,
                       const struct network_field *f, struct FORM(group) group, ELEMENT *to) {
    const struct grid *grid = &s->level->grid;
#pragma omp parallel for schedule(static) num_threads(FORM(num_threads)(s, grid))
    for (int64_t i = 0; i < rows(grid); i++) {
        int64_t at[NETWORKS];
        FORM(origins)(a, f, group, i / grid->n[1], i % grid->n[1], at);
        FORM(pack_row)(f, group, at, grid->n[2], to + row_at(grid, i));
    }
}

/* The last entry along an axis counts on periodic axes of more than one node only. */
static void FORM(pack_edges)(const struct network_args *a, const struct FORM(solver) * s, int axis,
                             struct FORM(group) group, ELEMENT *to) {
    const struct grid *grid = &s->level->grid;
    FORM(pack)(a, s, &a->edges[axis], group, to);
    if (!grid->periodic[axis]) {
        struct grid last = *grid;
        last.first += (grid->n[axis] - 1) * grid->stride[axis];
        last.n[axis] = 1;
        EACH_ROW (&last) memset(to + ROW(&last), 0, (size_t)last.n[2] * sizeof(ELEMENT));
    }
}

/* scale (v + low) */
static void FORM(unpack)(const struct network_args *a, const struct FORM(solver) * s,
                         struct FORM(group) group, ELEMENT scale) {
    const struct grid *grid = &s->level->grid;
    const struct network_field *f = &a->potential;
    const int64_t step = f->node[2];
#pragma omp parallel for schedule(static) num_threads(FORM(num_threads)(s, grid))
    for (int64_t i = 0; i < rows(grid); i++) {
        ELEMENT *v = s->v + row_at(grid, i), *low = s->low + row_at(grid, i);
        int64_t at[NETWORKS];
        FORM(origins)(a, f, group, i / grid->n[1], i % grid->n[1], at);
        ALONG(grid->n[2]) v[x] = (v[x] + low[x]) * scale;
        for (int k = 0; k < group.width; k++)
            for (int64_t x = 0; x < grid->n[2]; x++)
                ((REAL *)f->at)[at[k] + x * step] = *FORM(of)(v + x, k);
    }
}
