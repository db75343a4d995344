/* y, the final state and the checkpoints of one walk. Included once per precision. */

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
            EACH_WIDTH(forward_block, chunk.rows, a->states, TABLE(block), state, skip, u, delta,
                       b, c, y, a->accumulate);
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
