/* One walk by jobs: the forward scan, with its checkpoints, and the adjoint, which starts from
 * them. Included once per precision. */

/* The forward scan of one job for the blocks of one tile: y, checkpoints and the final state. */

static void NAME(forward_tile)(const struct scan_args *a, const struct NAME(job) *job,
                               int64_t first_block, int64_t end_block) {
    REAL packed[3][CHUNK * LANES] = {{0}}, skip[LANES];
    REAL *b_packed = NAME(own_workspace)(a, job), *c_packed = b_packed + CHUNK * a->states;
    REAL *states = c_packed + CHUNK * a->states;
    for (int64_t block = first_block; block < end_block; block++)
        NAME(start_of)(a, job, block, a->initial_state, 0, b_packed,
                       states + (block - first_block) * BLOCK_STATES);
    for (int64_t t = job->first; t < job->end; t += CHUNK) {
        struct chunk chunk;
        chunk_at(&chunk, &job->line, t, job->end, CHUNK);
        const struct NAME(rows) b = NAME(states_at)(&a->b, &job->line, &chunk, b_packed);
        const struct NAME(rows) c = NAME(states_at)(&a->c, &job->line, &chunk, c_packed);
        const int keep = a->checkpoints && t / CHUNK % a->spacing == 0;
        for (int64_t block = first_block; block < end_block; block++) {
            const int64_t channel = block * LANES;
            const int width = NAME(width)(a, block);
            REAL *state = states + (block - first_block) * BLOCK_STATES;
            if (keep) {
                REAL *kept = NAME(checkpoint)(&job->line, t / CHUNK, channel);
                for (int64_t n = 0; n < a->states; n++)
                    NAME(copy)(kept + n * a->channels, state + n * LANES, width);
            }
#define ROWS(stream, i, read) \
    NAME(rows_at)(&a->stream, &job->line, channel, width, &chunk, packed[i], read)
            const struct NAME(rows) u = ROWS(u, 0, 1), delta = ROWS(delta, 1, 1);
            const struct NAME(rows) y = ROWS(y, 2, a->accumulate);
#undef ROWS
            NAME(skip_of)(a, block, width, skip);
            EACH_WIDTH (forward_block, chunk.rows, a->states, TABLE(block), state, skip, u, delta, b, c,
                        y, a->accumulate);
            NAME(unpack)(&a->y, job->line.batch, channel, width, &chunk, y, packed[2]);
        }
    }
    if (job->end == length(a))
        for (int64_t block = first_block; block < end_block; block++)
            NAME(store_end)(a, job, block, states + (block - first_block) * BLOCK_STATES, a->state);
}

static void NAME(forward)(const struct scan_args *a) {
    const int64_t tile = NAME(tile)(a);
    NAME(fill_table)(a);
    NAME(join_segments)(a, a->initial_state, 0);
#pragma omp parallel for schedule(static) num_threads(a->threads) if (a->threads > 1)
    for (int64_t index = 0; index < jobs(a); index++) {
        const struct NAME(job) job = NAME(job_at)(a, index);
        for (int64_t block = job.first_block; block < job.end_block; block += tile)
            NAME(forward_tile)(a, &job, block,
                               block + tile < job.end_block ? block + tile : job.end_block);
    }
}

/* Stores the sums (states, step) of one chunk of grad_b or grad_c at their positions, or adds them
 * there where `add`. */
static inline void NAME(put_states)(const struct scan_args *a, const struct scan_stream *s,
                                    const struct NAME(job) *job, const struct chunk *chunk,
                                    const REAL *sums, int step, int add) {
    REAL *to = (REAL *)s->at + (job->group * a->batches + job->line.batch) * s->batch;
    for (int t = 0; t < chunk->rows; t++) {
        REAL *row = to + chunk->position[t] * s->position;
        for (int64_t n = 0; n < a->states; n++) row[n] = (add ? row[n] : 0) + sums[n * step + t];
    }
}

/* Recomputes the states before each chunk, from the last checkpoint up to `chunk`. */
static void NAME(restore)(const struct scan_args *a, const struct NAME(job) *job, int64_t chunk,
                          int64_t first_block, int64_t end_block, REAL *b_packed, REAL *starts) {
    REAL packed[2][CHUNK * LANES] = {{0}};
    const int64_t first = chunk - chunk % a->spacing, row = NAME(tile)(a) * BLOCK_STATES;
    for (int64_t block = first_block; block < end_block; block++) {
        const int width = NAME(width)(a, block);
        const REAL *kept = NAME(checkpoint)(&job->line, first, block * LANES);
        REAL *start = starts + (block - first_block) * BLOCK_STATES;
        memset(start, 0, BLOCK_STATES * sizeof(REAL));
        for (int64_t n = 0; n < a->states; n++)
            NAME(copy)(start + n * LANES, kept + n * a->channels, width);
    }
    for (int64_t at = first; at < chunk; at++, starts += row) {
        struct chunk rows;
        chunk_at(&rows, &job->line, at * CHUNK, job->end, CHUNK);
        const struct NAME(rows) b = NAME(states_at)(&a->b, &job->line, &rows, b_packed);
        for (int64_t block = first_block; block < end_block; block++) {
            const int width = NAME(width)(a, block);
            REAL *start = starts + (block - first_block) * BLOCK_STATES;
#define ROWS(stream, i) NAME(rows_at)(&a->stream, &job->line, block * LANES, width, &rows, packed[i], 1)
            const struct NAME(rows) u = ROWS(u, 0), delta = ROWS(delta, 1);
#undef ROWS
            EACH_WIDTH (advance_block, rows.rows, a->states, TABLE(block), start, start + row, u, delta,
                        b);
        }
    }
}

/* The adjoint of one job for the blocks of one tile. */
static void NAME(backward_tile)(const struct scan_args *a, const struct NAME(job) *job,
                                int64_t first_block, int64_t end_block) {
    REAL packed[5][CHUNK * LANES] = {{0}}, skip[LANES];
    const int64_t sums = CHUNK * a->states, row = NAME(tile)(a) * BLOCK_STATES;
    REAL *b_packed = NAME(own_workspace)(a, job), *c_packed = b_packed + sums;
    REAL *grad_b = c_packed + sums, *grad_c = grad_b + sums;
    REAL *adjoints = grad_c + sums, *starts = adjoints + row;
    const int64_t table_row = job->thread * NAME(blocks)(a);
    const int add_states = a->accumulate || first_block > job->first_block;
    for (int64_t block = first_block; block < end_block; block++)
        NAME(start_of)(a, job, block, a->grad_state, 1, c_packed,
                       adjoints + (block - first_block) * BLOCK_STATES);
    /* A segment beyond the line's end has no chunk, so that this loop does not run. */
    for (int64_t chunks = (job->end + CHUNK - 1) / CHUNK, i = chunks - 1; i * CHUNK >= job->first; i--) {
        struct chunk chunk;
        chunk_at(&chunk, &job->line, i * CHUNK, job->end, CHUNK);
        const int64_t since = i % a->spacing;
        if (i == chunks - 1 || since == a->spacing - 1)
            NAME(restore)(a, job, i, first_block, end_block, b_packed, starts);
        const struct NAME(rows) b = NAME(states_at)(&a->b, &job->line, &chunk, b_packed);
        const struct NAME(rows) c = NAME(states_at)(&a->c, &job->line, &chunk, c_packed);
        memset(grad_b, 0, 2 * sums * sizeof(REAL));
        for (int64_t block = first_block; block < end_block; block++) {
            const int64_t channel = block * LANES, within = (block - first_block) * BLOCK_STATES;
            const int width = NAME(width)(a, block);
#define ROWS(stream, i, read) \
    NAME(rows_at)(&a->stream, &job->line, channel, width, &chunk, packed[i], read)
            const struct NAME(rows) u = ROWS(u, 0, 1), delta = ROWS(delta, 1, 1);
            const struct NAME(rows) grad_y = ROWS(grad_y, 2, 1);
            const struct NAME(rows) grad_u = ROWS(grad_u, 3, a->accumulate);
            const struct NAME(rows) grad_delta = ROWS(grad_delta, 4, a->accumulate);
#undef ROWS
            NAME(skip_of)(a, block, width, skip);
            EACH_WIDTH (backward_block, chunk.rows, a->states, TABLE(block),
                        starts + since * row + within, adjoints + within,
                        (REAL *)a->grad_decay + (table_row + block) * BLOCK_STATES, skip,
                        (REAL *)a->grad_d + (table_row + block) * LANES, u, delta, b, c, grad_y, grad_u,
                        grad_delta, grad_b, grad_c, a->accumulate);
            NAME(unpack)(&a->grad_u, job->line.batch, channel, width, &chunk, grad_u, packed[3]);
            NAME(unpack)(&a->grad_delta, job->line.batch, channel, width, &chunk, grad_delta, packed[4]);
        }
        NAME(put_states)(a, &a->grad_b, job, &chunk, grad_b, CHUNK, add_states);
        NAME(put_states)(a, &a->grad_c, job, &chunk, grad_c, CHUNK, add_states);
    }
    if (job->first == 0)
        for (int64_t block = first_block; block < end_block; block++)
            NAME(store_end)(a, job, block, adjoints + (block - first_block) * BLOCK_STATES,
                            a->grad_initial_state);
}

/* Each job alone writes the gradients at its positions, and those of b and c of its group. This
 * needs no atomics, and the order of all sums depends on the numbers of groups and threads only. */
static void NAME(backward)(const struct scan_args *a) {
    const int64_t tile = NAME(tile)(a);
    NAME(fill_table)(a);
    NAME(join_segments)(a, a->grad_state, 1);
#pragma omp parallel for schedule(static) num_threads(a->threads) if (a->threads > 1)
    for (int64_t index = 0; index < jobs(a); index++) {
        const struct NAME(job) job = NAME(job_at)(a, index);
        for (int64_t block = job.first_block; block < job.end_block; block += tile)
            NAME(backward_tile)(a, &job, block,
                                block + tile < job.end_block ? block + tile : job.end_block);
    }
}
