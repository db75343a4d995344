/* Nodal analysis of many resistor networks on one grid: what Python passes and what each vector
 * width exports. */
#ifndef CHONN_NETWORK_H
#define CHONN_NETWORK_H

#include <stdint.h>

/* A tensor (batches, planes, rows, columns, channels) of any strides, which count elements. */
struct network_field {
    void *at;
    int64_t batch, node[3], channel;
    int64_t type; /* a DTYPE_* of _library.CONSTANTS */
};

/* __init__.py reads this struct. Axes of one node come first in `grid` where it is a line, and in the
 * middle where it is a plane. A network is one channel of one batch. */
struct network_args {
    int64_t batches, channels, grid[3];
    int32_t periodic[3], threads, iterations_max;
    int32_t alone; /* one network after the other by all threads, slabs in the lanes, see grid.h */
    double tolerance;
    double strength[3]; /* typical conductance along each axis: strong axes are halved first */
    struct network_field source, leak, edges[3], potential;
    int32_t *iterations; /* (batches, channels) */
    int32_t *label;      /* (batches, channels, nodes), of chonn_network_cut_off alone */
    const int64_t *ends; /* (2, num_edges): of a graph, whose nodes are grid[2]; NULL for grids */
    int64_t num_edges;
    double *deviation;   /* (batches, channels), see stopping.h; eliminated: the relative residual */
    void *workspace;     /* see _library.c */
};

/* The element of a tensor that is the first node of a network. */
static inline int64_t first_element(const struct network_args *a, const struct network_field *f,
                                    int64_t network) {
    return network / a->channels * f->batch + network % a->channels * f->channel;
}

/* What kernel.c defines. */
struct network_kernel {
    void (*solve)(const struct network_args *);
    int64_t (*workspace)(const struct network_args *);
    int lanes;
};

#endif
