/* The scan for one instruction set and size of numbers. */

#include <string.h>
#if VECTOR_BYTES > 16
#include <immintrin.h>
#if VECTOR_BYTES == 64
#define MM(x) _mm512_##x
#else
#define MM(x) _mm256_##x
#endif
#endif

#include "_half.h"
#include "_kernel.h"
#include "scan.h"

#define LN2 0.69314718055994531

/* The states that a loop keeps in registers: their independent chains hide each other's latency. */
enum { CHAINS = 2 };

/* Row t of the field x of `f`. */
#define ROW(x) load(f.x.at + t * f.x.step)
/* Element i of row t of b or c. */
#define OF_STATE(x) f.x.at[t * f.x.step + i]

/* The states n .. n + count - 1 in turn; b and c of the fields `f` begin at state n. */
#define EACH_STATE                                                                   \
    for (int64_t n = 0, count; count = states - n < CHAINS ? 1 : CHAINS, n < states; \
         n += count, f.b.at += count, f.c.at += count)

/* Calls with a constant count of states, 1 or CHAINS, and a constant flag, so that the compiler unrolls
 * the loops over states and drops what the flag leaves out. */
#define WITH_CONSTANTS(call, count, flag) \
    do {                                  \
        if (count == 1 && flag)           \
            call(1, 1);                   \
        else if (count == 1)              \
            call(1, 0);                   \
        else if (flag)                    \
            call(CHAINS, 1);              \
        else                              \
            call(CHAINS, 0);              \
    } while (0)

/* The positions of one chunk's steps, in scan order. */
struct chunk {
    int rows;
    int evenly; /* whether the positions are evenly spaced */
    int64_t position[LINE];
};

struct line {
    const struct scan_args *args;
    int64_t index, batch, origin; /* origin: position of the line's first step in the field */
};

static inline int64_t lines_a_batch(const struct scan_args *a) {
    return a->lines.size[0] * a->lines.size[1];
}

static inline int64_t length(const struct scan_args *a) { return a->steps.size[0] * a->steps.size[1]; }

static inline struct line line_at(const struct scan_args *a, int64_t index) {
    const int64_t within = index % lines_a_batch(a);
    const struct line line = {
        .args = a,
        .index = index,
        .batch = index / lines_a_batch(a),
        .origin = within / a->lines.size[1] * a->lines.stride[0] +
                  within % a->lines.size[1] * a->lines.stride[1],
    };
    return line;
}

/* The chunk of steps first .. end - 1, or of its first `most` steps. */
static inline void chunk_at(struct chunk *chunk, const struct line *line, int64_t first, int64_t end,
                            int most) {
    const struct scan_args *a = line->args;
    const int64_t last = length(a) - 1, inner = a->steps.size[1];
    const int64_t start = a->reverse ? last - first : first, sign = a->reverse ? -1 : 1;
    int64_t outer_step = start / inner, inner_step = start % inner;
    chunk->rows = end - first < most ? (int)(end - first) : most;
    chunk->evenly = a->reverse ? inner_step >= chunk->rows - 1 : inner_step + chunk->rows <= inner;
    for (int t = 0; t < chunk->rows; t++) {
        chunk->position[t] =
            line->origin + outer_step * a->steps.stride[0] + inner_step * a->steps.stride[1];
        inner_step += sign;
        if (inner_step < 0 || inner_step == inner) {
            outer_step += sign;
            inner_step = sign > 0 ? 0 : inner - 1;
        }
    }
}

static inline int64_t jobs(const struct scan_args *a) {
    return a->batches * lines_a_batch(a) * a->groups * a->segments;
}

/* Steps of a segment, whole chunks. */
static inline int64_t segment_steps(const struct scan_args *a) {
    const int64_t chunks = (length(a) + CHUNK - 1) / CHUNK;
    return (chunks + a->segments - 1) / a->segments * CHUNK;
}

#include "real.h"
#include "rows.h"
#include "vectors.h"
#include "walk_block.h"
#include "segment_block.h"
#include "line_block.h"
#include "jobs.h"
#include "segments.h"
#include "walks.h"

const struct scan_kernel KERNEL(scan) = {run_forward, run_backward, run_workspace, LANES};
