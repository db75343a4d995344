/* Periodic lines and lines in segments: the state, or the adjoint, that a segment starts from. It is
 * computed before the walk. In this file "state" means either; an adjoint starts at the last step and
 * ends at the first. */

/* Where `ends` holds a block's final state from rest in one segment. */
static inline REAL *end_at(const struct scan_args *a, const struct job *job, int64_t segment,
                           int64_t block) {
    const int64_t row = job->line.index * a->segments + segment;
    return (REAL *)a->ends + (row * blocks_of(a) + block) * BLOCK_STATES;
}

/* Where `times` holds the sum of a block's deltas in one segment. */
static inline REAL *time_at(const struct scan_args *a, const struct job *job, int64_t segment,
                            int64_t block) {
    const int64_t row = job->line.index * a->segments + segment;
    return (REAL *)a->times + (row * blocks_of(a) + block) * LANES;
}

/* The final state of a job's segment from rest, and the sum of its deltas. The loop goes from the
 * segment's end to its start and stops once every share is below FORGOTTEN. The sum of the deltas then
 * lacks the rest, but exp(-decay sum) is negligible already. `packed` has room for a chunk of b or c. */
static void from_rest(const struct scan_args *a, const struct job *job, int64_t block, int adjoint,
                      REAL *packed, REAL *share, REAL *out, REAL *time) {
    REAL rows[2][CHUNK * LANES];
    const int64_t channel = block * LANES, chunks = (job->end - job->first + CHUNK - 1) / CHUNK;
    const int width = width_of(a, block);
    memset(out, 0, BLOCK_STATES * sizeof(REAL));
    for (int64_t i = 0; i < BLOCK_STATES; i++) share[i] = 1;
    for (int lane = 0; lane < LANES; lane++) time[lane] = lane < width ? 0 : 1;
    for (int64_t i = 0, done = 0; i < chunks && !done; i++) {
        const int64_t t = job->first + (adjoint ? i : chunks - 1 - i) * CHUNK;
        struct chunk chunk;
        chunk_at(&chunk, &job->line, t, job->end, CHUNK);
        const struct scan_stream *u = adjoint ? &a->grad_y : &a->u, *b = adjoint ? &a->c : &a->b;
        struct fields f = {.b = states_at(b, &job->line, &chunk, packed)};
        f.u = rows_at(u, &job->line, channel, width, &chunk, rows[0], 1);
        f.delta = rows_at(&a->delta, &job->line, channel, width, &chunk, rows[1], 1);
        f.c = f.b; /* is not read */
        done = from_rest_block(chunk.rows, a->states, adjoint, TABLE(block), share, out, time, f);
    }
}

/* Loads the caller's initial state of one block of a line, or zeros. */
static void load_start(const struct scan_args *a, const struct job *job, int64_t block, const REAL *outer,
                       REAL *states) {
    if (outer)
        gather(outer + (job->line.index * a->channels + block * LANES) * a->states, a->states,
               width_of(a, block), states);
    else
        memset(states, 0, BLOCK_STATES * sizeof(REAL));
}

/* Adds to `start` what a periodic line returns to it. `end_state` is the final state of the line from
 * `start`, and is overwritten. */
static void close_period(const struct scan_args *a, int64_t block, const REAL *time, REAL *end_state,
                         REAL *start) {
    carry_block(a->states, TABLE(block), time, end_state, end_state, end_state, 1);
    for (int64_t i = 0; i < BLOCK_STATES; i++) start[i] += end_state[i];
}

/* Replaces in `ends` the final state of each segment from rest by the state that it starts from. */
static void join_line(const struct scan_args *a, const struct job *job, int64_t block, const REAL *outer,
                      int adjoint) {
    REAL *start = spare(a, job), *end_state = start + BLOCK_STATES;
    load_start(a, job, block, outer, start);
    for (int last = !a->periodic; last < 2;
         last++) { /* periodic: the first pass finds the line's start */
        REAL sum[LANES] = {0}, *carried = end_state + BLOCK_STATES;
        memcpy(carried, start, BLOCK_STATES * sizeof(REAL));
        for (int64_t i = 0; i < a->segments; i++) {
            const int64_t segment = adjoint ? a->segments - 1 - i : i;
            REAL *end = end_at(a, job, segment, block);
            const REAL *time = time_at(a, job, segment, block);
            carry_block(a->states, TABLE(block), time, carried, end, end_state, 0);
            for (int lane = 0; lane < LANES; lane++) sum[lane] += time[lane];
            if (last) memcpy(end, carried, BLOCK_STATES * sizeof(REAL));
            memcpy(carried, end_state, BLOCK_STATES * sizeof(REAL));
        }
        if (!last) close_period(a, block, sum, carried, start);
    }
}

/* Computes the state that each segment starts from, into `ends`, where lines have several. */
static void join_segments(const struct scan_args *a, const REAL *outer, int adjoint) {
    if (a->segments == 1) return;
#pragma omp parallel for schedule(static) num_threads(a->threads) if (a->threads > 1)
    for (int64_t index = 0; index < jobs(a); index++) {
        const struct job job = job_at(a, index);
        for (int64_t block = job.first_block; block < job.end_block; block++)
            from_rest(a, &job, block, adjoint, own_workspace(a, &job), spare(a, &job),
                      end_at(a, &job, job.segment, block), time_at(a, &job, job.segment, block));
    }
#pragma omp parallel for schedule(static) num_threads(a->threads) if (a->threads > 1)
    for (int64_t index = 0; index < jobs(a) / a->segments; index++) {
        const struct job job = job_at(a, index * a->segments);
        for (int64_t block = job.first_block; block < job.end_block; block++)
            join_line(a, &job, block, outer, adjoint);
    }
}

/* Loads the state that a job's segment starts from in one block. `packed` as in `from_rest`. */
static void start_of(const struct scan_args *a, const struct job *job, int64_t block, const REAL *outer,
                     int adjoint, REAL *packed, REAL *states) {
    if (a->segments > 1) {
        memcpy(states, end_at(a, job, job->segment, block), BLOCK_STATES * sizeof(REAL));
        return;
    }
    load_start(a, job, block, outer, states);
    if (a->periodic) {
        REAL time[LANES], *share = spare(a, job), *end_state = share + BLOCK_STATES;
        from_rest(a, job, block, adjoint, packed, share, end_state, time);
        carry_block(a->states, TABLE(block), time, states, end_state, end_state, 0);
        close_period(a, block, time, end_state, states);
    }
}

/* Stores the final state of one block of a line, unless the caller passed NULL. */
static void store_end(const struct scan_args *a, const struct job *job, int64_t block, const REAL *states,
                      void *outer) {
    if (outer)
        scatter(states, a->states, width_of(a, block),
                (REAL *)outer + (job->line.index * a->channels + block * LANES) * a->states);
}
