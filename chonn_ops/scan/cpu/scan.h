/* The selective Kirchhoff scan on CPUs: what Python passes and what each instruction set exports. */
#ifndef CHONN_SCAN_H
#define CHONN_SCAN_H

#include <stdint.h>

enum {
    CHUNK = 32, /* steps: a chunk's arrays stay in the L1 cache */
    LINE = 512, /* steps: both ways of a line up to here go in one pass, within the L2 cache */
};

enum scan_type { SCAN_REAL, SCAN_BFLOAT16, SCAN_FLOAT16 };

/* A tensor (batches, positions, channels or states), the last dimension contiguous; strides count
 * elements. Outputs are of the kernel's precision. */
struct scan_stream {
    void *at;
    int64_t batch, position;
    int64_t type; /* enum scan_type */
};

/* Nested loops over positions, outermost first. */
struct scan_loops {
    int64_t size[2], stride[2];
};

/* Mirrored field by field in binding.py. One call is one walk: every line of every batch. Tensors
 * without strides are contiguous; NULL marks an absent one. */
struct scan_args {
    int64_t batches, channels, states;
    struct scan_loops lines, steps;
    int64_t groups;   /* channel groups, each a job of its own, and its own grad_b and grad_c */
    int64_t segments; /* pieces of a line, each a job of its own */
    int64_t spacing;  /* chunks between two checkpoints */
    int32_t reverse, accumulate, ring, threads;
    int32_t both;   /* one pass for both ways of lines of at most LINE steps, without checkpoints */
    int32_t mirror; /* both: +1 (open) or -1 (short) times the first way's end starts the other */
    struct scan_stream u, delta, b, c, grad_y, y, grad_u, grad_delta;
    struct scan_stream grad_b, grad_c;  /* groups > 1: their batches follow each other */
    const void *decay;                  /* (states, channels) */
    const void *d, *initial_state;      /* (channels), (lines, channels, states) */
    void *state, *checkpoints;          /* (lines, channels, states), (lines, kept, states, channels) */
    const void *grad_state;             /* like state */
    void *grad_initial_state;           /* like state */
    void *grad_decay, *grad_d;          /* (threads, blocks, states, lanes), (threads, blocks, lanes) */
    void *table;                        /* (blocks, states, 3, lanes): decay, its inverse, rate */
    void *ends, *times;                 /* segments > 1: (lines, segments, blocks, states, lanes),
                                           (lines, segments, blocks, lanes) */
    void *workspace;                    /* (threads, elements that chonn_scan_workspace returns) */
};

struct scan_kernel {
    void (*forward)(const struct scan_args *);
    void (*backward)(const struct scan_args *);
    int64_t (*workspace)(const struct scan_args *);
    int lanes;
};

/* Index 0: float, 1: double. */
extern const struct scan_kernel chonn_scan_generic[2];
extern const struct scan_kernel chonn_scan_avx2[2];
extern const struct scan_kernel chonn_scan_avx512[2];

#endif
