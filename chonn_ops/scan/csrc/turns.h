/* Rings and split lines: what enters a segment, found before the walk itself. Included once per
 * precision. */

/* Where a line's segment keeps what phase one found for a block. */
static inline REAL *NAME(end_at)(const struct scan_args *a, const struct NAME(job) *job,
                                 int64_t segment, int64_t block) {
    const int64_t row = job->line.index * a->segments + segment;
    return (REAL *)a->ends + (row * NAME(blocks)(a) + block) * BLOCK_STATES;
}
static inline REAL *NAME(turn_at)(const struct scan_args *a, const struct NAME(job) *job,
                                  int64_t segment, int64_t block) {
    const int64_t row = job->line.index * a->segments + segment;
    return (REAL *)a->turns + (row * NAME(blocks)(a) + block) * LANES;
}

/* What leaves a job's segment that nothing entered, and the sum of its steps: walks inwards until
 * nothing further in matters. `packed` has room for a chunk of b or c. */
static void NAME(leave)(const struct scan_args *a, const struct NAME(job) *job, int64_t block,
                        int adjoint, REAL *packed, REAL *share, REAL *out, REAL *turn) {
    REAL rows[2][CHUNK * LANES];
    const int64_t channel = block * LANES, chunks = (job->end - job->first + CHUNK - 1) / CHUNK;
    const int width = NAME(width)(a, block);
    memset(out, 0, BLOCK_STATES * sizeof(REAL));
    for (int64_t i = 0; i < BLOCK_STATES; i++) share[i] = 1;
    for (int lane = 0; lane < LANES; lane++) turn[lane] = lane < width ? 0 : 1;
    for (int64_t i = 0, done = 0; i < chunks && !done; i++) {
        const int64_t t = job->first + (adjoint ? i : chunks - 1 - i) * CHUNK;
        struct chunk chunk;
        chunk_at(&chunk, &job->line, t, job->end, CHUNK);
        const struct NAME(rows) x = NAME(rows_at)(adjoint ? &a->grad_y : &a->u, &job->line, channel,
                                                  width, &chunk, rows[0], 1);
        const struct NAME(rows) delta =
            NAME(rows_at)(&a->delta, &job->line, channel, width, &chunk, rows[1], 1);
        const struct NAME(rows) w =
            NAME(states_at)(adjoint ? &a->c : &a->b, &job->line, &chunk, packed);
        done = EACH_WIDTH(leave_block, chunk.rows, a->states, adjoint, TABLE(block), share, out,
                          turn, x, delta, w);
    }
}

/* What enters a line of one block from outside. */
static void NAME(outside)(const struct scan_args *a, const struct NAME(job) *job, int64_t block,
                          const REAL *outer, REAL *states) {
    if (outer)
        NAME(gather)(outer + (job->line.index * a->channels + block * LANES) * a->states,
                     a->states, NAME(width)(a, block), states);
    else
        memset(states, 0, BLOCK_STATES * sizeof(REAL));
}

/* Adds to `entering` what comes back around a ring, given what leaves it with that entered. */
static void NAME(close)(const struct scan_args *a, int64_t block, int width, const REAL *turn,
                        REAL *leaving, REAL *entering) {
    EACH_WIDTH(turn_block, a->states, TABLE(block), turn, leaving, leaving, leaving, 1);
    for (int64_t i = 0; i < BLOCK_STATES; i++) entering[i] += leaving[i];
}

/* Turns `ends`, what leaves each segment of a line alone, into what enters it. */
static void NAME(enter)(const struct scan_args *a, const struct NAME(job) *job, int64_t block,
                        const REAL *outer, int adjoint) {
    const int width = NAME(width)(a, block);
    REAL *entering = NAME(spare)(a, job), *leaving = entering + BLOCK_STATES;
    NAME(outside)(a, job, block, outer, entering);
    for (int last = !a->ring; last < 2; last++) { /* a ring's first turn finds what enters it */
        REAL sum[LANES] = {0}, *carried = leaving + BLOCK_STATES;
        memcpy(carried, entering, BLOCK_STATES * sizeof(REAL));
        for (int64_t i = 0; i < a->segments; i++) {
            const int64_t segment = adjoint ? a->segments - 1 - i : i;
            REAL *end = NAME(end_at)(a, job, segment, block);
            const REAL *turn = NAME(turn_at)(a, job, segment, block);
            EACH_WIDTH(turn_block, a->states, TABLE(block), turn, carried, end, leaving, 0);
            for (int lane = 0; lane < LANES; lane++) sum[lane] += turn[lane];
            if (last) memcpy(end, carried, BLOCK_STATES * sizeof(REAL));
            memcpy(carried, leaving, BLOCK_STATES * sizeof(REAL));
        }
        if (!last) NAME(close)(a, block, width, sum, carried, entering);
    }
}

/* Fills `ends` with what enters each segment of split lines. */
static void NAME(enter_segments)(const struct scan_args *a, const REAL *outer, int adjoint) {
    if (a->segments == 1) return;
#pragma omp parallel for schedule(static) num_threads(a->threads) if (a->threads > 1)
    for (int64_t index = 0; index < jobs(a); index++) {
        const struct NAME(job) job = NAME(job_at)(a, index);
        for (int64_t block = job.first_block; block < job.end_block; block++)
            NAME(leave)(a, &job, block, adjoint, NAME(own_workspace)(a, &job),
                        NAME(spare)(a, &job), NAME(end_at)(a, &job, job.segment, block),
                        NAME(turn_at)(a, &job, job.segment, block));
    }
#pragma omp parallel for schedule(static) num_threads(a->threads) if (a->threads > 1)
    for (int64_t index = 0; index < jobs(a) / a->segments; index++) {
        const struct NAME(job) job = NAME(job_at)(a, index * a->segments);
        for (int64_t block = job.first_block; block < job.end_block; block++)
            NAME(enter)(a, &job, block, outer, adjoint);
    }
}

/* What enters a job's segment in one block. `packed` as in `leave`. */
static void NAME(entry)(const struct scan_args *a, const struct NAME(job) *job, int64_t block,
                        const REAL *outer, int adjoint, REAL *packed, REAL *states) {
    if (a->segments > 1) {
        memcpy(states, NAME(end_at)(a, job, job->segment, block), BLOCK_STATES * sizeof(REAL));
        return;
    }
    NAME(outside)(a, job, block, outer, states);
    if (a->ring) {
        const int width = NAME(width)(a, block);
        REAL turn[LANES], *share = NAME(spare)(a, job), *leaving = share + BLOCK_STATES;
        NAME(leave)(a, job, block, adjoint, packed, share, leaving, turn);
        EACH_WIDTH(turn_block, a->states, TABLE(block), turn, states, leaving, leaving, 0);
        NAME(close)(a, block, width, turn, leaving, states);
    }
}

/* What leaves a line in one block, where somebody asks. */
static void NAME(leaves)(const struct scan_args *a, const struct NAME(job) *job, int64_t block,
                         const REAL *states, void *outer) {
    if (outer)
        NAME(scatter)(states, a->states, NAME(width)(a, block),
                      (REAL *)outer +
                          (job->line.index * a->channels + block * LANES) * a->states);
}
