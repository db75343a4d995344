/* Lines of at most LINE steps, scanned in both directions by one job. The adjoint recomputes all states
 * of a line, which fit into the cache, so the forward keeps no checkpoints. Included once per
 * precision. */

/* The elements that a thread needs: packed rows of five streams, packed b and c and their gradients,
 * and the line's tape for two states of whole vectors or four states of half vectors. */
static int64_t NAME(line_workspace)(const struct scan_args *a) {
    return 5 * LINE * LANES + 4 * LINE * a->states + (LINE + 1) * 2 * 4 * LANES;
}

static void NAME(forward_whole)(const struct scan_args *a, const struct NAME(job) *job) {
    REAL *packed = (REAL *)a->workspace + job->thread * NAME(line_workspace)(a), skip[LANES];
    REAL *b_packed = packed + 5 * LINE * LANES, *c_packed = b_packed + LINE * a->states;
    REAL *tape = b_packed + 4 * LINE * a->states;
    struct chunk chunk;
    chunk_at(&chunk, &job->line, 0, job->end, LINE);
    const struct NAME(rows) b = NAME(states_at)(&a->b, &job->line, &chunk, b_packed);
    const struct NAME(rows) c = NAME(states_at)(&a->c, &job->line, &chunk, c_packed);
    for (int64_t block = job->first_block; block < job->end_block; block++) {
        const int64_t channel = block * LANES;
        const int width = NAME(width)(a, block);
#define ROWS(stream, i, read) \
    NAME(rows_at)(&a->stream, &job->line, channel, width, &chunk, packed + (i) * LINE * LANES, read)
        const struct NAME(rows) u = ROWS(u, 0, 1), delta = ROWS(delta, 1, 1);
        const struct NAME(rows) y = ROWS(y, 2, a->accumulate);
        NAME(skip_of)(a, block, width, skip);
        EACH_WIDTH (forward_line, chunk.rows, a->states, a->periodic, a->mirror, TABLE(block), skip, u,
                    delta, b, c, y, a->accumulate, tape);
        NAME(unpack)(&a->y, job->line.batch, channel, width, &chunk, y, packed + 2 * LINE * LANES);
    }
}

static void NAME(backward_whole)(const struct scan_args *a, const struct NAME(job) *job) {
    REAL *packed = (REAL *)a->workspace + job->thread * NAME(line_workspace)(a), skip[LANES];
    const int64_t sums = LINE * a->states, table_row = job->thread * NAME(blocks)(a);
    REAL *b_packed = packed + 5 * LINE * LANES, *c_packed = b_packed + sums;
    REAL *grad_b = c_packed + sums, *grad_c = grad_b + sums, *tape = grad_c + sums;
    struct chunk chunk;
    chunk_at(&chunk, &job->line, 0, job->end, LINE);
    const struct NAME(rows) b = NAME(states_at)(&a->b, &job->line, &chunk, b_packed);
    const struct NAME(rows) c = NAME(states_at)(&a->c, &job->line, &chunk, c_packed);
    const int span = (chunk.rows + CHUNK - 1) / CHUNK * CHUNK;
    memset(grad_b, 0, span * a->states * sizeof(REAL));
    memset(grad_c, 0, span * a->states * sizeof(REAL));
    for (int64_t block = job->first_block; block < job->end_block; block++) {
        const int64_t channel = block * LANES;
        const int width = NAME(width)(a, block);
        const struct NAME(rows) u = ROWS(u, 0, 1), delta = ROWS(delta, 1, 1);
        const struct NAME(rows) grad_y = ROWS(grad_y, 2, 1);
        const struct NAME(rows) grad_u = ROWS(grad_u, 3, a->accumulate);
        const struct NAME(rows) grad_delta = ROWS(grad_delta, 4, a->accumulate);
#undef ROWS
        NAME(skip_of)(a, block, width, skip);
        EACH_WIDTH (backward_line, chunk.rows, a->states, a->periodic, a->mirror, TABLE(block),
                    (REAL *)a->grad_decay + (table_row + block) * BLOCK_STATES, skip,
                    (REAL *)a->grad_d + (table_row + block) * LANES, u, delta, b, c, grad_y, grad_u,
                    grad_delta, grad_b, grad_c, span, a->accumulate, tape);
        NAME(unpack)(&a->grad_u, job->line.batch, channel, width, &chunk, grad_u,
                     packed + 3 * LINE * LANES);
        NAME(unpack)(&a->grad_delta, job->line.batch, channel, width, &chunk, grad_delta,
                     packed + 4 * LINE * LANES);
    }
    NAME(put_states)(a, &a->grad_b, job, &chunk, grad_b, span, a->accumulate);
    NAME(put_states)(a, &a->grad_c, job, &chunk, grad_c, span, a->accumulate);
}

static void NAME(lines)(const struct scan_args *a, int backward) {
    NAME(fill_table)(a);
#pragma omp parallel for schedule(static) num_threads(a->threads) if (a->threads > 1)
    for (int64_t index = 0; index < jobs(a); index++) {
        const struct NAME(job) job = NAME(job_at)(a, index);
        if (backward)
            NAME(backward_whole)(a, &job);
        else
            NAME(forward_whole)(a, &job);
    }
}

static void NAME(run_forward)(const struct scan_args *a) {
    if (a->both)
        NAME(lines)(a, 0);
    else
        NAME(forward)(a);
}

static void NAME(run_backward)(const struct scan_args *a) {
    if (a->both)
        NAME(lines)(a, 1);
    else
        NAME(backward)(a);
}

static int64_t NAME(run_workspace)(const struct scan_args *a) {
    return a->both ? NAME(line_workspace)(a) : NAME(workspace)(a);
}
