/* The selective Kirchhoff scan on CPUs: what Python passes and what each instruction set exports. */
#ifndef CHONN_SCAN_H
#define CHONN_SCAN_H

#include <stdint.h>

/* Mirrored field by field in _cpu.py. Sizes and strides count elements. Tensors are contiguous but
 * for the streams that carry (batch, step) strides, whose last dimension is contiguous. NULL marks
 * an absent d, initial_state, grad_state and their gradients. The gradients of decay and d come
 * per batch; those of b and c per channel group. The caller sums them. */
struct scan_args {
    int64_t batches, steps, channels, states;
    int64_t groups; /* backward: channel groups, each with its own grad_b and grad_c */
    int64_t spacing; /* chunks between two checkpoints */
    int32_t reverse, threads;
    int64_t u_stride[2], delta_stride[2], b_stride[2], c_stride[2], grad_y_stride[2];
    const void *u, *delta, *decay, *b, *c, *d, *initial_state;
    void *y, *state;
    void *checkpoints; /* (batches, ceil(chunks / spacing), states, channels); forward: or NULL */
    const void *grad_y, *grad_state;
    void *grad_u, *grad_delta, *grad_decay, *grad_b, *grad_c, *grad_d, *grad_initial_state;
    void *workspace; /* backward: threads * chonn_scan_workspace() elements */
};

struct scan_kernel {
    void (*forward)(const struct scan_args *);
    void (*backward)(const struct scan_args *);
    int lanes;
};

/* Index 0: float, 1: double. */
extern const struct scan_kernel chonn_scan_generic[2];
extern const struct scan_kernel chonn_scan_avx2[2];
extern const struct scan_kernel chonn_scan_avx512[2];

enum {
    CHUNK = 32, /* steps: a chunk's arrays stay in the L1 cache */
    SLICE = 16, /* states that are walked together, sharing rows and workspace */
    PAIR = 2,   /* states in registers at a time: two chains hide each other's latency */
};

#endif
