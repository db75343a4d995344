/* Nodes between: a set of axes, bit i for axis 2 - i, tells where a node lies between coarse ones;
 * corner c of its cell is one coarse node further along the axes of c. Its weights are those of the
 * corners c within the set, at `weight[weight_index(set, c)][cell]`. */

enum { CORNERS = 1 << AXES, WEIGHTS_MAX = 26 };
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

INLINE int weights(const struct grid *grid) { return grid->axes == 2 ? 8 : WEIGHTS_MAX; }

static inline int halved_set(const struct grid *grid) {
    return grid->halved[2] | grid->halved[1] << 1 | grid->halved[0] << 2;
}

/* How far along an array the corner c lies. */
INLINE int64_t corner(const struct grid *grid, int c) {
    return (c & 1 ? grid->stride[2] : 0) + (c & 2 ? grid->stride[1] : 0) + (c & 4 ? grid->stride[0] : 0);
}

/* The cells of a fine row, and along which axes it lies between coarse rows. */
static inline int64_t row_of_cells(const struct grid *fine, const struct grid *coarse, int64_t z,
                                   int64_t y, int *across) {
    *across = (fine->halved[1] && y & 1 ? 2 : 0) | (fine->halved[0] && z & 1 ? 4 : 0);
    return coarse->first + (z >> fine->halved[0]) * coarse->stride[0] +
           (y >> fine->halved[1]) * coarse->stride[1];
}

/* How many of n cells of a row from `start` on have a node of the set. */
static inline int64_t count_in(const struct grid *grid, int set, int64_t start, int64_t n) {
    const int64_t most = grid->n[2] / 2 - start;
    return set & 1 && most < n ? most : n;
}
