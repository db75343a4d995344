/* One chunk of a tensor as rows of a block of channels. Included once per precision. */

/* One chunk of one stream: row t at `at + t * step`. */
struct NAME(rows) {
    REAL *at;
    int64_t step;
};

static inline struct NAME(rows) NAME(from_row)(struct NAME(rows) rows, int t) {
    rows.at += t * rows.step;
    return rows;
}

static inline REAL NAME(widen)(uint16_t bits, int64_t type) {
    uint32_t word = (uint32_t)bits << 16;
    float wide;
    if (type == SCAN_FLOAT16) { /* not every compiler has _Float16 */
        const uint32_t sign = word & 0x80000000u, magnitude = bits & 0x7fffu;
        word = magnitude << 13;
        memcpy(&wide, &word, sizeof wide);
        wide *= 0x1p112f; /* the exponents' biases differ by 112; subnormals become normal */
        memcpy(&word, &wide, sizeof word);
        if (magnitude >= 0x7c00u) word |= 0x7f800000u; /* infinities and NaN */
        word |= sign;
    }
    memcpy(&wide, &word, sizeof wide);
    return (REAL)wide;
}

/* Copies `width` elements a row between a strided stream and rows LANES apart; the widths that
 * fill a vector or half of one are constants, for which the compiler has single instructions. */
#define COPY_ROWS(to, from, count)                                                               \
    for (int t = 0; t < chunk->rows; t++) memcpy(to, from, (size_t)(count) * sizeof(REAL))
#define COPY(to, from)                                                                           \
    switch (width) {                                                                             \
    case LANES: COPY_ROWS(to, from, LANES); break;                                               \
    case LANES / 2: COPY_ROWS(to, from, LANES / 2); break;                                       \
    case LANES / 4: COPY_ROWS(to, from, LANES / 4); break;                                       \
    default: COPY_ROWS(to, from, width);                                                         \
    }

static inline void NAME(pack)(const struct scan_stream *s, int64_t batch, int64_t channel,
                              int width, const struct chunk *chunk, REAL *packed,
                              int64_t step) {
    const int64_t first = batch * s->batch + channel;
    if (width < LANES) memset(packed, 0, (size_t)(chunk->rows * step) * sizeof(REAL));
    if (s->type == SCAN_REAL) {
        const REAL *from = (const REAL *)s->at + first;
        COPY(packed + t * step, from + chunk->position[t] * s->position)
        return;
    }
    for (int t = 0; t < chunk->rows; t++) {
        const uint16_t *from = (const uint16_t *)s->at + first + chunk->position[t] * s->position;
        for (int lane = 0; lane < width; lane++)
            packed[t * step + lane] = NAME(widen)(from[lane], s->type);
    }
}

static inline void NAME(unpack)(const struct scan_stream *s, int64_t batch, int64_t channel,
                                int width, const struct chunk *chunk,
                                struct NAME(rows) rows, const REAL *packed) {
    if (rows.at != packed) return;
    REAL *to = (REAL *)s->at + batch * s->batch + channel;
    COPY(to + chunk->position[t] * s->position, packed + t * LANES)
}
#undef COPY
#undef COPY_ROWS

static inline void NAME(copy)(REAL *to, const REAL *from, int width) {
    if (width == LANES)
        memcpy(to, from, LANES * sizeof(REAL));
    else
        for (int lane = 0; lane < width; lane++) to[lane] = from[lane];
}

/* Rows far apart fall into the same few sets of the L1 cache, and every pair of states would fetch
 * them anew. */
enum { NAME(near) = 2048 / sizeof(REAL) };

/* A block's rows of one chunk: in place where they are whole vectors, evenly spaced and near each
 * other; else through `packed`, whose idle lanes hold zeros: delta = 0 leaves a state alone. */
static inline struct NAME(rows) NAME(rows_at)(const struct scan_stream *s,
                                              const struct line *line, int64_t channel,
                                              int width, const struct chunk *chunk,
                                              REAL *packed, int read) {
    const int64_t *position = chunk->position;
    const int64_t step = chunk->rows > 1 ? (position[1] - position[0]) * s->position : 0;
    const int close = step <= NAME(near) && step >= -NAME(near);
    if (width == LANES && s->type == SCAN_REAL && chunk->evenly &&
        (close || line->args->states <= 2)) {
        REAL *first = (REAL *)s->at + line->batch * s->batch + channel;
        return (struct NAME(rows)){first + position[0] * s->position, step};
    }
    if (read) NAME(pack)(s, line->batch, channel, width, chunk, packed, LANES);
    return (struct NAME(rows)){packed, LANES};
}

/* All states of one chunk of b or c. */
static inline struct NAME(rows) NAME(states_at)(const struct scan_stream *s,
                                                const struct line *line,
                                                const struct chunk *chunk, REAL *packed) {
    const int64_t *position = chunk->position, N = line->args->states;
    const int64_t step = chunk->rows > 1 ? (position[1] - position[0]) * s->position : 0;
    if (s->type == SCAN_REAL && chunk->evenly) {
        REAL *first = (REAL *)s->at + line->batch * s->batch;
        return (struct NAME(rows)){first + position[0] * s->position, step};
    }
    if (s->type == SCAN_REAL) {
        const REAL *from = (const REAL *)s->at + line->batch * s->batch;
        for (int t = 0; t < chunk->rows; t++)
            memcpy(packed + t * N, from + position[t] * s->position, (size_t)N * sizeof(REAL));
    } else {
        for (int t = 0; t < chunk->rows; t++) {
            const uint16_t *from =
                (const uint16_t *)s->at + line->batch * s->batch + position[t] * s->position;
            for (int64_t n = 0; n < N; n++) packed[t * N + n] = NAME(widen)(from[n], s->type);
        }
    }
    return (struct NAME(rows)){packed, N};
}

/* (channels, states) of one line <-> (states, LANES) of one block. */
static inline void NAME(gather)(const REAL *from, int64_t states, int width, REAL *to) {
    for (int64_t n = 0; n < states; n++)
        for (int lane = 0; lane < LANES; lane++)
            to[n * LANES + lane] = lane < width ? from[lane * states + n] : 0;
}

static inline void NAME(scatter)(const REAL *from, int64_t states, int width, REAL *to) {
    for (int lane = 0; lane < width; lane++)
        for (int64_t n = 0; n < states; n++) to[lane * states + n] = from[n * LANES + lane];
}

/* The checkpoint before a chunk of one line: (states, channels) from the block's first channel. */
static inline REAL *NAME(checkpoint)(const struct line *line, int64_t chunk,
                                     int64_t channel) {
    const struct scan_args *a = line->args;
    const int64_t chunks = (length(a) + CHUNK - 1) / CHUNK;
    const int64_t kept = (chunks + a->spacing - 1) / a->spacing;
    const int64_t row = line->index * kept + chunk / a->spacing;
    return (REAL *)a->checkpoints + row * a->states * a->channels + channel;
}
