/* Jobs and their memory. A job is one group of channel blocks in one segment of one line. */

struct job {
    struct line line;
    int64_t thread, group, segment;
    int64_t first_block, end_block; /* channel blocks */
    int64_t first, end;             /* steps, in scan order */
};

static inline int64_t blocks_of(const struct scan_args *a) { return (a->channels + LANES - 1) / LANES; }

static inline int width_of(const struct scan_args *a, int64_t block) {
    const int64_t left = a->channels - block * LANES;
    return left < LANES ? (int)left : LANES;
}

static inline struct job job_at(const struct scan_args *a, int64_t index) {
    const int64_t blocks = blocks_of(a), steps = segment_steps(a), all = length(a);
    struct job job = {.segment = index % a->segments, .thread = thread_number()};
    index /= a->segments;
    job.group = index % a->groups;
    job.line = line_at(a, index / a->groups);
    job.first_block = job.group * blocks / a->groups;
    job.end_block = (job.group + 1) * blocks / a->groups;
    job.first = job.segment * steps < all ? job.segment * steps : all;
    job.end = job.first + steps < all ? job.first + steps : all;
    return job;
}

#define BLOCK_STATES (a->states * LANES)
#define TABLE(block) ((const REAL *)a->table + (block) * 3 * BLOCK_STATES)

/* A thread's sums of one block of channels; `job` is the thread's. */
#define BLOCK_OF_THREAD(block) (job->thread * blocks_of(a) + (block))
#define GRAD_DECAY(block) ((REAL *)a->grad_decay + BLOCK_OF_THREAD(block) * BLOCK_STATES)
#define GRAD_D(block) ((REAL *)a->grad_d + BLOCK_OF_THREAD(block) * LANES)

/* The number of blocks that walk through a chunk together: their states fit into the L2 cache. */
static inline int64_t tile_of(const struct scan_args *a) {
    const int64_t tile = (1 << 15) / (3 * BLOCK_STATES);
    const int64_t blocks = blocks_of(a);
    return tile < 1 ? 1 : tile < blocks ? tile : blocks;
}

/* The elements that a thread needs: packed b and c and their gradients; the states or the adjoint of a
 * tile; the states before a chunk of one block; and three spare blocks of states. */
static int64_t job_workspace(const struct scan_args *a) {
    return 4 * CHUNK * a->states + (tile_of(a) + 4) * BLOCK_STATES;
}

static inline REAL *own_workspace(const struct scan_args *a, const struct job *job) {
    return (REAL *)a->workspace + job->thread * job_workspace(a);
}

/* The three spare blocks of states, at the end of the thread's workspace. */
static inline REAL *spare(const struct scan_args *a, const struct job *job) {
    return own_workspace(a, job) + job_workspace(a) - 3 * BLOCK_STATES;
}

/* Computes each block's decay, inverse and rate; idle lanes decay at 1. */
static void fill_table(const struct scan_args *a) {
    REAL *to = (REAL *)a->table;
    for (int64_t block = 0; block < blocks_of(a); block++)
        for (int64_t n = 0; n < a->states; n++, to += 3 * LANES)
            for (int lane = 0; lane < LANES; lane++) {
                const int64_t channel = block * LANES + lane;
                const REAL decay =
                    channel < a->channels ? ((const REAL *)a->decay)[n * a->channels + channel] : 1;
                to[lane] = decay;
                to[LANES + lane] = 1 / decay;
                to[2 * LANES + lane] = decay * (REAL)(1 / LN2);
            }
}

/* Loads a block's d, or zeros where d is absent, as it is for all walks but the first. */
static inline void skip_of(const struct scan_args *a, int64_t block, int width, REAL *skip) {
    for (int lane = 0; lane < LANES; lane++)
        skip[lane] = a->d && lane < width ? ((const REAL *)a->d)[block * LANES + lane] : 0;
}
