/* The direct method: what Python passes and what each vector width exports. */
#ifndef CHONN_DIRECT_H
#define CHONN_DIRECT_H

#include <stdint.h>

enum direct_call {
    DIRECT_FACTORIZE, /* and solve, if there is a source */
    DIRECT_SOLVE,
    DIRECT_SAMPLE,
    DIRECT_INVERT,
    DIRECT_PAIRS, /* effective resistances between pairs of nodes */
    DIRECT_ONCE, /* factorize and solve; factors are those of threads, not of items */
};

/* What `status` says of a network besides the node that has no way to ground. */
enum direct_status { DIRECT_DETERMINED = -1, DIRECT_NOT_FINITE = -2 };

/* Kinds of numbers of a call. */
enum direct_kind { DIRECT_FLOAT, DIRECT_DOUBLE, DIRECT_COMPLEX_FLOAT, DIRECT_COMPLEX_DOUBLE };

/* Edges whose entries follow one another in the conductances of one axis, as do the nodes where they
 * begin; all end at the node `far` behind. */
struct direct_run {
    int64_t axis, entry, node, far, count;
};

/* __init__.py reads this struct. A network is one channel of one batch. Leaks are (batches, nodes,
 * channels) without gaps, sources and potentials (batches, sources, nodes, channels). Conductances are
 * one field an axis, (batches, entries, channels): a grid has as many entries as nodes, an edge to the
 * next node along the axis each, and a graph one axis whose entries are its edges. Drops are alike,
 * (batches, sources, entries, channels). All are of the kind of the call, but see `single`.
 *
 * An item is what one thread works on: a group of as many networks as a vector has lanes, or with
 * `rows` a single network, whose fronts' rows fill the vectors. Factors are those of item after
 * item. */
struct direct_args {
    int64_t batches, channels, sources, nodes, regions, largest_front, num_shares, stack;
    int64_t item_shares; /* elements from the shares of one item to those of the next */
    int64_t waiting;     /* most boundary nodes of regions that wait for their turn */
    int64_t axes, entries;
    int64_t num_runs; /* all edges, ordered by their lower nodes */
    const struct direct_run *runs;
    /* The plan, see plan.py. */
    const int64_t *first, *pivots, *width, *boundary_at, *edge_at, *share_at, *kids;
    const int32_t *node, *position, *boundary, *place, *edge, *row, *column;
    /* Subtrees that may be eliminated side by side, each with its stack; none where items are. */
    int64_t parts;
    const int64_t *part_first, *part_last, *part_stack, *part_group;
    /* Tiles of the plan, NULL where there are none: the plan of one, and groups, which end where the next
     * begins. Factors of groups follow those of regions, `group_size` vectors each. Positions and edges by
     * group, -1 where there is none. See tiles.py. */
    const struct direct_args *tile;
    int64_t groups, group_at, group_size;
    const int64_t *group_first, *tile_region;
    const int32_t *tile_position, *tile_edge, *rim;
    int32_t rows, threads, call;
    /* Read for complex networks: whether sources, potentials and drops are of single precision, whatever
     * the factors are; and the relative residual at which refinement stops. */
    int32_t single;
    double tol;
    const void *leak, *conductance[3];
    /* (items, item_shares) elements, for DIRECT_ONCE a thread's: what a pivot hands to each later node. */
    void *shares;
    void *inverse; /* (items, nodes) elements: 1 over the pivots, by position; 0 where there is none */
    /* (items, nodes) elements: what a pivot hands to ground; just 1 where it hands all; 0 where there is
     * none. */
    void *grounded;
    /* (items, nodes) elements of doubles, where factors are of single precision: 1 over the sum of a
     * pivot's shares and ground's, which their rounding makes of it. */
    void *over_sum;
    void *own_leak; /* (items, nodes) elements: leaks before the elimination, by position, scaled */
    void *scale; /* (networks,) powers of two that conductances were multiplied by */
    int64_t *status; /* (networks,): a node of a part without leak, or enum direct_status */
    /* NULL where nothing is solved; for DIRECT_PAIRS int64_t, (sources, 2): positions of each pair. */
    const void *source;
    void *potential; /* for DIRECT_PAIRS the resistances, (batches, sources, channels) */
    void *drop[3]; /* NULL, or for each axis the drop of the potential along each edge, 0 elsewhere */
    double *residual; /* (batches, sources, channels) or NULL: |s - A v| / |s|, 0 at rounding size */
    /* Entries of the inverse of real networks: at nodes, and at the two nodes of each edge. */
    void *diagonal, *entry[3];
    void *workspace; /* see _library.c */
};

/* The axis of an entry of the conductances. */
static inline int axis_of(const struct direct_args *a, int64_t edge) {
    return (edge >= a->entries) + (edge >= 2 * a->entries);
}

/* Nodes of a tile's rim. */
static inline int64_t rim_of(const struct direct_args *a) {
    return a->tile ? a->tile->width[a->tile->regions - 1] : 0;
}

/* What kernel.c defines for each `direct_kind`. */
struct direct_kernel {
    void (*run)(const struct direct_args *);
    int64_t (*workspace)(const struct direct_args *);
    int lanes;
};

#endif
