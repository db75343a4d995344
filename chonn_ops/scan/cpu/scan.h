/* The selective Kirchhoff scan on CPUs: the arguments that Python passes, and the functions of each
 * instruction set. */
#ifndef CHONN_SCAN_H
#define CHONN_SCAN_H

#include <stdint.h>

/* From CONSTANTS of chonn_ops/_library.py, as are the types DTYPE_.... */
enum { CHUNK = SCAN_CHUNK, LINE = SCAN_LINE };

/* A tensor (batches, positions, channels or states) whose last dimension is contiguous. Strides count
 * elements. Inputs are bfloat16, float16 or of the kernel's precision; outputs are of the kernel's
 * precision. */
struct scan_stream {
    void *at;
    int64_t batch, position;
    int64_t type; /* DTYPE_... */
};

static inline int is_real(const struct scan_stream *s) {
    return s->type != DTYPE_BFLOAT16 && s->type != DTYPE_FLOAT16;
}

/* Nested loops over positions, outermost first. */
struct scan_loops {
    int64_t size[2], stride[2];
};

/* __init__.py reads this struct. One call is one walk through every line of every
 * batch. A tensor that is not a stream is contiguous; NULL marks an absent tensor. */
struct scan_args {
    int64_t batches, channels, states;
    struct scan_loops lines, steps;
    int64_t groups;   /* channel groups: each has its own jobs, grad_b and grad_c */
    int64_t segments; /* segments of a line: each has its own jobs */
    int32_t reverse, accumulate, periodic, threads;
    int32_t both;   /* scan lines of at most LINE steps in both directions, without checkpoints */
    int32_t mirror; /* both: the reverse scan starts from mirror times the forward scan's final state:
                       +1 for neumann, -1 for dirichlet */
    struct scan_stream u, delta, b, c, grad_y, y, grad_u, grad_delta;
    struct scan_stream grad_b, grad_c;  /* (groups, batches, positions, states) */
    const void *decay;                  /* (states, channels) */
    const void *d, *initial_state;      /* (channels), (lines, channels, states) */
    void *state, *checkpoints;          /* (lines, channels, states), (lines, kept, states, channels) */
    const void *grad_state;             /* like state */
    void *grad_initial_state;           /* like state */
    void *grad_decay, *grad_d;          /* (threads, blocks, states, lanes), (threads, blocks, lanes) */
    void *table;                        /* (blocks, states, 3, lanes): decay, its inverse, rate */
    void *ends, *times;                 /* segments > 1: (lines, segments, blocks, states, lanes),
                                           (lines, segments, blocks, lanes) */
    void *workspace;                    /* see _library.c */
};

/* What kernel.c defines. */
struct scan_kernel {
    void (*forward)(const struct scan_args *);
    void (*backward)(const struct scan_args *);
    int64_t (*workspace)(const struct scan_args *);
    int lanes;
};

#endif
