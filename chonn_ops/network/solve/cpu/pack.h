/* Tensors of any strides and types to fields of networks, and back. */

struct group {
    int64_t first; /* network: batch * channels + channel */
    int width;     /* networks; the other lanes hold zeros, or the slabs of the only one */
};

#define GATHER(type, convert)                                                     \
    for (int k = 0; k < width; k++) {                                             \
        const type *from = (const type *)f->at + at[k];                           \
        for (int64_t i = 0; i < n; i++) to[i][k] = (REAL)convert(from[i * step]); \
    }                                                                             \
    break;

/* n nodes of a row; `at`: where each of the first `width` lanes has the first of them. */
static void pack_row(const struct network_field *f, int width, const int64_t *at, int64_t n, vec *to) {
    const int64_t step = f->node[2];
    int together = width == LANES && f->type == (sizeof(REAL) == 8 ? DTYPE_FLOAT64 : DTYPE_FLOAT32);
    for (int k = 1; k < width; k++) together &= at[k] == at[0] + k;
    if (together) {
        const REAL *from = (const REAL *)f->at + at[0];
        for (int64_t i = 0; i < n; i++) memcpy(to + i, from + i * step, sizeof(vec));
        return;
    }
    if (width < LANES) memset(to, 0, (size_t)n * sizeof(vec));
    switch (f->type) {
    case DTYPE_FLOAT32: GATHER(float, )
    case DTYPE_FLOAT64: GATHER(double, )
    case DTYPE_BFLOAT16: GATHER(uint16_t, widen_bfloat16)
    default: GATHER(uint16_t, widen_float16)
    }
}
#undef GATHER

/* Find where each lane has the first node of a row; returns how many lanes have one. `grid` is NULL
 * for lines. */
static int origins(const struct network_args *a, const struct network_field *f, const struct grid *grid,
                   struct group group, int64_t z, int64_t y, int64_t *at) {
    const int slabs = grid ? grid->slabs : 0, width = slabs ? slabs : group.width;
    const int complete = slabs ? first_short(a, grid) : width;
    for (int k = 0; k < width; k++) {
        const int64_t plane = slabs ? k * grid->n[0] + z - (k > complete ? k - complete : 0) : z;
        if (slabs && (plane >= a->grid[0] || (k >= complete && z + 1 == grid->n[0]))) return k;
        at[k] = first_element(a, f, group.first + (slabs ? 0 : k)) + plane * f->node[0] + y * f->node[1];
    }
    return width;
}
