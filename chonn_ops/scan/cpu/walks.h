/* One walk by jobs: the forward scan, with its checkpoints, and the adjoint, which starts from them;
 * and both directions of lines of at most LINE steps by one job. For these the adjoint recomputes all
 * states of a line, which fit into the cache, so the forward keeps no checkpoints. */

/* The fields of one block at one chunk. `b` and `c` are their rows. Rows that are not read or written
 * in place are in `packed`, five arrays of `room` rows; `close` copies results from there. */
static inline struct fields open_fields(const struct scan_args *a, const struct job *job, int64_t block,
                                        const struct chunk *chunk, struct rows b, struct rows c,
                                        int backward, REAL *packed, int room) {
#define ROWS(stream, i, read)                                                \
    rows_at(&a->stream, &job->line, block *LANES, width_of(a, block), chunk, \
            packed + (i) * room * LANES, read)
    struct fields f = {.u = ROWS(u, 0, 1), .delta = ROWS(delta, 1, 1), .b = b, .c = c};
    if (!backward) {
        f.y = ROWS(y, 2, a->accumulate);
    } else {
        f.grad_y = ROWS(grad_y, 2, 1);
        f.grad_u = ROWS(grad_u, 3, a->accumulate);
        f.grad_delta = ROWS(grad_delta, 4, a->accumulate);
    }
    return f;
#undef ROWS
}

static inline void close_fields(const struct scan_args *a, const struct job *job, int64_t block,
                                const struct chunk *chunk, struct fields f, int backward,
                                const REAL *packed, int room) {
#define UNPACK(stream, i)                                                                  \
    unpack(&a->stream, job->line.batch, block *LANES, width_of(a, block), chunk, f.stream, \
           packed + (i) * room * LANES)
    if (!backward) {
        UNPACK(y, 2);
    } else {
        UNPACK(grad_u, 3);
        UNPACK(grad_delta, 4);
    }
#undef UNPACK
}

/* The forward scan of one job for the blocks of one tile: y, checkpoints and the final state. */
static void forward_tile(const struct scan_args *a, const struct job *job, int64_t first_block,
                         int64_t end_block) {
    REAL packed[3 * CHUNK * LANES] = {0}, skip[LANES];
    REAL *b_packed = own_workspace(a, job), *c_packed = b_packed + CHUNK * a->states;
    REAL *states = c_packed + CHUNK * a->states;
    for (int64_t block = first_block; block < end_block; block++)
        start_of(a, job, block, a->initial_state, 0, b_packed,
                 states + (block - first_block) * BLOCK_STATES);
    for (int64_t t = job->first; t < job->end; t += CHUNK) {
        struct chunk chunk;
        chunk_at(&chunk, &job->line, t, job->end, CHUNK);
        const struct rows b = states_at(&a->b, &job->line, &chunk, b_packed);
        const struct rows c = states_at(&a->c, &job->line, &chunk, c_packed);
        for (int64_t block = first_block; block < end_block; block++) {
            const int width = width_of(a, block);
            REAL *state = states + (block - first_block) * BLOCK_STATES;
            if (a->checkpoints) copy_checkpoint(&job->line, t / CHUNK, block, width, state, 0);
            const struct fields f = open_fields(a, job, block, &chunk, b, c, 0, packed, CHUNK);
            skip_of(a, block, width, skip);
            forward_block(chunk.rows, a->states, TABLE(block), state, skip, f, a->accumulate);
            close_fields(a, job, block, &chunk, f, 0, packed, CHUNK);
        }
    }
    if (job->end == length(a))
        for (int64_t block = first_block; block < end_block; block++)
            store_end(a, job, block, states + (block - first_block) * BLOCK_STATES, a->state);
}

/* Stores the sums (states, step) of one chunk of grad_b or grad_c at their positions, or adds them
 * there where `add`. */
static inline void put_states(const struct scan_args *a, const struct scan_stream *s,
                              const struct job *job, const struct chunk *chunk, const REAL *sums,
                              int step, int add) {
    REAL *to = (REAL *)s->at + (job->group * a->batches + job->line.batch) * s->batch;
    for (int t = 0; t < chunk->rows; t++) {
        REAL *row = to + chunk->position[t] * s->position;
        for (int64_t n = 0; n < a->states; n++) row[n] = (add ? row[n] : 0) + sums[n * step + t];
    }
}

/* The adjoint of one job for the blocks of one tile. */
static void backward_tile(const struct scan_args *a, const struct job *job, int64_t first_block,
                          int64_t end_block) {
    REAL packed[5 * CHUNK * LANES] = {0}, skip[LANES];
    const int64_t sums = CHUNK * a->states;
    REAL *b_packed = own_workspace(a, job), *c_packed = b_packed + sums;
    REAL *grad_b = c_packed + sums, *grad_c = grad_b + sums;
    REAL *adjoints = grad_c + sums, *start = adjoints + tile_of(a) * BLOCK_STATES;
    const int add_states = a->accumulate || first_block > job->first_block;
    for (int64_t block = first_block; block < end_block; block++)
        start_of(a, job, block, a->grad_state, 1, c_packed,
                 adjoints + (block - first_block) * BLOCK_STATES);
    /* A segment beyond the line's end has no chunk, so that this loop does not run. */
    for (int64_t chunks = (job->end + CHUNK - 1) / CHUNK, i = chunks - 1; i * CHUNK >= job->first; i--) {
        struct chunk chunk;
        chunk_at(&chunk, &job->line, i * CHUNK, job->end, CHUNK);
        const struct rows b = states_at(&a->b, &job->line, &chunk, b_packed);
        const struct rows c = states_at(&a->c, &job->line, &chunk, c_packed);
        memset(grad_b, 0, 2 * sums * sizeof(REAL));
        for (int64_t block = first_block; block < end_block; block++) {
            const int width = width_of(a, block);
            const struct fields f = open_fields(a, job, block, &chunk, b, c, 1, packed, CHUNK);
            skip_of(a, block, width, skip);
            if (width < LANES) memset(start, 0, BLOCK_STATES * sizeof(REAL));
            copy_checkpoint(&job->line, i, block, width, start, 1);
            backward_block(chunk.rows, a->states, TABLE(block), start,
                           adjoints + (block - first_block) * BLOCK_STATES, GRAD_DECAY(block), skip,
                           GRAD_D(block), f, grad_b, grad_c, a->accumulate);
            close_fields(a, job, block, &chunk, f, 1, packed, CHUNK);
        }
        put_states(a, &a->grad_b, job, &chunk, grad_b, CHUNK, add_states);
        put_states(a, &a->grad_c, job, &chunk, grad_c, CHUNK, add_states);
    }
    if (job->first == 0)
        for (int64_t block = first_block; block < end_block; block++)
            store_end(a, job, block, adjoints + (block - first_block) * BLOCK_STATES,
                      a->grad_initial_state);
}

/* The elements that a thread needs for whole lines: packed rows of five streams, packed b and c and
 * their gradients, and the line's tape for CHAINS states. */
static int64_t line_workspace(const struct scan_args *a) {
    return 5 * LINE * LANES + 4 * LINE * a->states + (LINE + 1) * CHAINS * 4 * LANES;
}

/* Both directions of a job's line: the forward scans, or their adjoints. */
static void whole_line(const struct scan_args *a, const struct job *job, int backward) {
    const int64_t sums = LINE * a->states;
    REAL *packed = (REAL *)a->workspace + job->thread * line_workspace(a), skip[LANES];
    REAL *b_packed = packed + 5 * LINE * LANES, *c_packed = b_packed + sums;
    REAL *grad_b = c_packed + sums, *grad_c = grad_b + sums, *tape = grad_c + sums;
    struct chunk chunk;
    chunk_at(&chunk, &job->line, 0, job->end, LINE);
    const struct rows b = states_at(&a->b, &job->line, &chunk, b_packed);
    const struct rows c = states_at(&a->c, &job->line, &chunk, c_packed);
    if (backward) {
        memset(grad_b, 0, chunk.rows * a->states * sizeof(REAL));
        memset(grad_c, 0, chunk.rows * a->states * sizeof(REAL));
    }
    for (int64_t block = job->first_block; block < job->end_block; block++) {
        const int width = width_of(a, block);
        const struct fields f = open_fields(a, job, block, &chunk, b, c, backward, packed, LINE);
        skip_of(a, block, width, skip);
        if (backward)
            backward_line(chunk.rows, a->states, a->periodic, a->mirror, TABLE(block), GRAD_DECAY(block),
                          skip, GRAD_D(block), f, grad_b, grad_c, a->accumulate, tape);
        else
            forward_line(chunk.rows, a->states, a->periodic, a->mirror, TABLE(block), skip, f,
                         a->accumulate, tape);
        close_fields(a, job, block, &chunk, f, backward, packed, LINE);
    }
    if (backward) {
        put_states(a, &a->grad_b, job, &chunk, grad_b, chunk.rows, a->accumulate);
        put_states(a, &a->grad_c, job, &chunk, grad_c, chunk.rows, a->accumulate);
    }
}

/* Runs all jobs of a walk. In the adjoint each job alone writes the gradients at its positions, and
 * those of b and c of its group. This needs no atomics, and the order of all sums depends on the
 * numbers of groups and threads only. */
static inline void run(const struct scan_args *a, int backward) {
    const int64_t tile = tile_of(a);
    fill_table(a);
    join_segments(a, backward ? a->grad_state : a->initial_state, backward);
#pragma omp parallel for schedule(static) num_threads(a->threads) if (a->threads > 1)
    for (int64_t index = 0; index < jobs(a); index++) {
        const struct job job = job_at(a, index);
        if (a->both) {
            whole_line(a, &job, backward);
            continue;
        }
        for (int64_t block = job.first_block; block < job.end_block; block += tile)
            (backward ? backward_tile : forward_tile)(
                a, &job, block, block + tile < job.end_block ? block + tile : job.end_block);
    }
}

static void run_forward(const struct scan_args *a) { run(a, 0); }
static void run_backward(const struct scan_args *a) { run(a, 1); }

static int64_t run_workspace(const struct scan_args *a) {
    return a->both ? line_workspace(a) : job_workspace(a);
}
