/* One chunk of a tensor as rows, one row per step. */

/* Row t begins at `at + t * step`. */
struct rows {
    REAL *at;
    int64_t step;
};

/* What a block's functions read and write: rows of its channels, and rows of all states of b and c.
 * The forward scan writes y. The adjoint reads grad_y and writes grad_u and grad_delta. */
struct fields {
    struct rows u, delta, b, c, y, grad_y, grad_u, grad_delta;
};

static inline REAL widen(uint16_t bits, int64_t type) {
    return (REAL)(type == DTYPE_FLOAT16 ? widen_float16(bits) : widen_bfloat16(bits));
}

/* Copies `width` elements of each row between a stream and a packed array. The widths of a vector,
 * and of a half and a quarter of one, are constants, so that the compiler emits single moves. */
#define COPY_ROWS(to, from, count) \
    for (int t = 0; t < chunk->rows; t++) memcpy(to, from, (size_t)(count) * sizeof(REAL))
#define COPY(to, from)                                     \
    switch (width) {                                       \
    case LANES: COPY_ROWS(to, from, LANES); break;         \
    case LANES / 2: COPY_ROWS(to, from, LANES / 2); break; \
    case LANES / 4: COPY_ROWS(to, from, LANES / 4); break; \
    default: COPY_ROWS(to, from, width);                   \
    }

static inline void pack(const struct scan_stream *s, int64_t batch, int64_t channel, int width,
                        const struct chunk *chunk, REAL *packed, int64_t step) {
    const int64_t first = batch * s->batch + channel;
    if (width < LANES) memset(packed, 0, (size_t)(chunk->rows * step) * sizeof(REAL));
    if (is_real(s)) {
        const REAL *from = (const REAL *)s->at + first;
        COPY(packed + t * step, from + chunk->position[t] * s->position)
        return;
    }
    for (int t = 0; t < chunk->rows; t++) {
        const uint16_t *from = (const uint16_t *)s->at + first + chunk->position[t] * s->position;
        for (int lane = 0; lane < width; lane++) packed[t * step + lane] = widen(from[lane], s->type);
    }
}

static inline void unpack(const struct scan_stream *s, int64_t batch, int64_t channel, int width,
                          const struct chunk *chunk, struct rows rows, const REAL *packed) {
    if (rows.at != packed) return;
    REAL *to = (REAL *)s->at + batch * s->batch + channel;
    COPY(to + chunk->position[t] * s->position, packed + t * LANES)
}
#undef COPY
#undef COPY_ROWS

/* The distance up to which rows are read in place. Rows further apart map to the same few sets of the
 * L1 cache, and the loop would fetch them again for every pair of states. */
enum { near_rows = 2048 / sizeof(REAL) };

/* The rows of one chunk for a block of channels. The function returns them in place where they are
 * whole vectors, evenly spaced and near each other. Otherwise it copies them to `packed` if `read`,
 * with zeros in idle lanes; a delta of 0 does not change a state. */
static inline struct rows rows_at(const struct scan_stream *s, const struct line *line, int64_t channel,
                                  int width, const struct chunk *chunk, REAL *packed, int read) {
    const int64_t *position = chunk->position;
    const int64_t step = chunk->rows > 1 ? (position[1] - position[0]) * s->position : 0;
    const int close = step <= near_rows && step >= -near_rows;
    if (width == LANES && is_real(s) && chunk->evenly && (close || line->args->states <= 2)) {
        REAL *first = (REAL *)s->at + line->batch * s->batch + channel;
        return (struct rows){first + position[0] * s->position, step};
    }
    if (read) pack(s, line->batch, channel, width, chunk, packed, LANES);
    return (struct rows){packed, LANES};
}

/* The rows of one chunk of b or c, with all states. */
static inline struct rows states_at(const struct scan_stream *s, const struct line *line,
                                    const struct chunk *chunk, REAL *packed) {
    const int64_t *position = chunk->position, N = line->args->states;
    const int64_t step = chunk->rows > 1 ? (position[1] - position[0]) * s->position : 0;
    if (is_real(s) && chunk->evenly) {
        REAL *first = (REAL *)s->at + line->batch * s->batch;
        return (struct rows){first + position[0] * s->position, step};
    }
    pack(s, line->batch, 0, (int)N, chunk, packed, N);
    return (struct rows){packed, N};
}

/* Transposes (channels, states) of one line to (states, LANES) of one block, with zeros in idle
 * lanes; `scatter` is the inverse. */
static inline void gather(const REAL *from, int64_t states, int width, REAL *to) {
    for (int64_t n = 0; n < states; n++)
        for (int lane = 0; lane < LANES; lane++)
            to[n * LANES + lane] = lane < width ? from[lane * states + n] : 0;
}

static inline void scatter(const REAL *from, int64_t states, int width, REAL *to) {
    for (int lane = 0; lane < width; lane++)
        for (int64_t n = 0; n < states; n++) to[lane * states + n] = from[n * LANES + lane];
}

/* Copies the states (states, LANES) of one block to the checkpoint before a chunk, (states, channels), or
 * from there where `recall`. */
static inline void copy_checkpoint(const struct line *line, int64_t chunk, int64_t block, int width,
                                   REAL *states, int recall) {
    const struct scan_args *a = line->args;
    const int64_t row = line->index * ((length(a) + CHUNK - 1) / CHUNK) + chunk;
    REAL *kept = (REAL *)a->checkpoints + row * a->states * a->channels + block * LANES;
    for (int64_t n = 0; n < a->states; n++, kept += a->channels, states += LANES) {
        REAL *to = recall ? states : kept, *from = recall ? kept : states;
        if (width == LANES)
            memcpy(to, from, LANES * sizeof(REAL));
        else
            for (int lane = 0; lane < width; lane++) to[lane] = from[lane];
    }
}
