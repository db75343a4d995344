/* The direct method for complex numbers: what Python passes and what each vector width exports. */
#ifndef CHONN_ALTERNATING_H
#define CHONN_ALTERNATING_H

#include <stdint.h>

enum alternating_call {
    ALTERNATING_FACTORIZE,
    ALTERNATING_SOLVE,
    ALTERNATING_ONCE, /* both; factors are those of threads, not of items */
};

/* What `status` says of a network besides the node that has no way to ground. */
enum alternating_status {
    ALTERNATING_DETERMINED = -1,
    ALTERNATING_NOT_FINITE = -2,
    ALTERNATING_RAISED = -3, /* determined, and a pivot of few digits was raised */
};

/* binding.py reads this struct. A network is one channel of one batch. Fields are complex
 * numbers (batches, nodes, channels) without gaps, nodes in row-major order; sources, potentials and
 * drops (batches, sources, nodes, channels). An item is a group of as many networks as a vector has
 * lanes. */
struct alternating_args {
    int64_t batches, channels, sources, nodes, regions, largest_front, stack;
    int64_t item_shares; /* elements from the shares of one item to those of the next */
    int64_t axes, grid[3], closed[3]; /* sizes, and whether an edge joins the last node and the first */
    /* The plan, see ../plan.py. */
    const int64_t *first, *pivots, *width, *boundary_at, *edge_at, *share_at, *kids;
    const int32_t *node, *boundary, *place, *edge, *row, *column;
    int64_t refinements; /* most steps after the first solve */
    int32_t threads, call;
    int64_t single;      /* sources, potentials and drops are complex64, not complex128 */
    double tol;          /* relative residual at which refinement stops */
    const void *leak, *conductance[3]; /* of the precision of the factors */
    void *shares;        /* (items, item_shares) elements: what a pivot hands to each later node */
    void *inverse;       /* (items, nodes) elements: of the pivots, by position; 0: no network */
    void *scale;         /* (networks,) powers of two that conductances were multiplied by */
    int64_t *status;     /* (networks,): a node of a part without leak, or enum alternating_status */
    const void *source;
    void *potential;
    void *drop[3];       /* NULL or for each axis: a node's potential less the next one's */
    double *residual;    /* (batches, sources, channels): relative, of these potentials */
    void *workspace;     /* (bytes that chonn_alternating_workspace returns), 64-byte aligned */
};

/* What kernel.c defines, for float at index 0 and for double at 1. */
struct alternating_kernel {
    void (*run)(const struct alternating_args *);
    int64_t (*workspace)(const struct alternating_args *);
    int lanes;
};

#endif
