/* Sums over the lanes of many vectors at once. Included once per width of vectors. */

#if defined(__has_builtin)
#if __has_builtin(__builtin_shufflevector)
#define SHUFFLES
#endif
#endif

#if defined(SHUFFLES) && (WIDTH == 4 || WIDTH == 8 || WIDTH == 16)
/* Of the blocks of 2w lanes of two vectors, the lower (or upper) halves side by side. */
#define PICK(j, w, upper) \
    ((j) / (2 * (w)) * (2 * (w)) + (j) % (w) + (upper) * (w) + ((j) % (2 * (w)) < (w) ? 0 : WIDTH))
#define PICK4(j, w, upper) \
    PICK(j, w, upper), PICK(j + 1, w, upper), PICK(j + 2, w, upper), PICK(j + 3, w, upper)
#if WIDTH == 4
#define HALVES(a, b, w, upper) __builtin_shufflevector(a, b, PICK4(0, w, upper))
#elif WIDTH == 8
#define HALVES(a, b, w, upper) \
    __builtin_shufflevector(a, b, PICK4(0, w, upper), PICK4(4, w, upper))
#else
#define HALVES(a, b, w, upper)                                                  \
    __builtin_shufflevector(a, b, PICK4(0, w, upper), PICK4(4, w, upper),       \
                            PICK4(8, w, upper), PICK4(12, w, upper))
#endif
#define LEVEL(w) \
    for (int t = 0; t < (w); t++) \
        v[t] = HALVES(v[t], v[t + (w)], w, 0) + HALVES(v[t], v[t + (w)], w, 1);

/* out[t] += sum of the lanes of rows[t], for WIDTH rows: each level adds the halves of the blocks
 * of two vectors whose rows are as far apart, so that the sums end in order. */
INLINE void WIDE(sum_lanes_of_group)(const VEC *rows, REAL *out) {
    VEC v[WIDTH];
    for (int t = 0; t < WIDTH; t++) v[t] = rows[t];
#if WIDTH == 16
    LEVEL(8)
#endif
#if WIDTH >= 8
    LEVEL(4)
#endif
    LEVEL(2)
    LEVEL(1)
    WIDE(store)(out, WIDE(load)(out) + v[0]);
}
#undef LEVEL
#undef HALVES
#undef PICK4
#undef PICK
#else
INLINE void WIDE(sum_lanes_of_group)(const VEC *rows, REAL *out) {
    for (int t = 0; t < WIDTH; t++)
        for (int lane = 0; lane < WIDTH; lane++) out[t] += rows[t][lane];
}
#endif
#undef SHUFFLES

/* out has room for CHUNK sums; those beyond `rows` are of no use. */
INLINE void WIDE(sum_lanes)(const VEC *lanes, int rows, REAL *out) {
    for (int t = 0; t < rows; t += WIDTH) WIDE(sum_lanes_of_group)(lanes + t, out + t);
}
