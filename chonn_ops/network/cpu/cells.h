/* Nodes between: a set of axes, bit i for axis 2 - i, tells where a node lies between coarse ones;
 * corner c of its cell is one coarse node further along the axes of c. Its weights are those of the
 * corners c within the set, at `weight[cell * weights + weight_index(set, c)]`. */

#define CORNERS(axes) (1 << (axes))
enum { WEIGHTS_MAX = 26 };
static const int8_t first_weight[8] = {0, 0, 2, 4, 8, 10, 14, 18};

/* The weights of a node: the bits of c at the places of the set. */
INLINE int weight_index(int set, int c) {
    int index = 0, bit = 1;
    for (int i = 0; i < AXES; i++)
        if (set >> i & 1) {
            if (c >> i & 1) index |= bit;
            bit <<= 1;
        }
    return first_weight[set] + index;
}

INLINE int weights(const struct grid *grid) {
    return grid->axes == 1 ? 2 : grid->axes == 2 ? 8 : WEIGHTS_MAX;
}

static inline int halved_set(const struct grid *grid) {
    return grid->halved[2] | grid->halved[1] << 1 | grid->halved[0] << 2;
}

/* How far along an array the corner c lies. */
INLINE int64_t corner(const struct grid *grid, int c) {
    return (c & 1 ? grid->stride[2] : 0) + (c & 2 ? grid->stride[1] : 0) + (c & 4 ? grid->stride[0] : 0);
}

/* The fine node that a cell's first corner is. */
static inline int64_t origin(const struct grid *fine, int64_t z, int64_t y, int64_t x) {
    return fine->first + (z << fine->halved[0]) * fine->stride[0] +
           (y << fine->halved[1]) * fine->stride[1] + (x << fine->halved[2]) * fine->stride[2];
}

/* Whether a cell has a node between its corners along every axis of the set. */
static inline int between(const struct grid *fine, int set, int64_t z, int64_t y, int64_t x) {
    return !(set & ~halved_set(fine)) && !(set & 1 && 2 * x + 1 >= fine->n[2]) &&
           !(set & 2 && 2 * y + 1 >= fine->n[1]) && !(set & 4 && 2 * z + 1 >= fine->n[0]);
}

/* Where a cell's nodes are along one axis, corner, between, corner; -1: nowhere. */
struct places {
    int64_t at[3];
};

static struct places places_along(const struct grid *fine, const struct grid *coarse, int axis,
                                  int64_t i) {
    const int64_t n = fine->n[axis], start = i << fine->halved[axis];
    struct places places = {{start, -1, -1}};
    if (fine->halved[axis] && start + 1 < n) places.at[1] = start + 1;
    if (axis >= AXES - fine->axes && (i + 1 < coarse->n[axis] || fine->periodic[axis]))
        places.at[2] = i + 1 < coarse->n[axis] ? (i + 1) << fine->halved[axis] : n;
    return places;
}

/* The cells of a fine row, and along which axes it lies between coarse rows. */
static inline int64_t row_of_cells(const struct grid *fine, const struct grid *coarse, int64_t z,
                                   int64_t y, int *across) {
    *across = (fine->halved[1] && y & 1 ? 2 : 0) | (fine->halved[0] && z & 1 ? 4 : 0);
    return coarse->first + (z >> fine->halved[0]) * coarse->stride[0] +
           (y >> fine->halved[1]) * coarse->stride[1];
}
