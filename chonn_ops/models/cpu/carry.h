/* Limited fluxes of one channel: the arguments that Python passes, and the functions of each
 * instruction set. The equations are those of `CHONNStep2d` in models/step.py. */
#ifndef CHONN_CARRY_H
#define CHONN_CARRY_H

#include <stdint.h>

enum { CARRY_AXES = 3 };

/* models/carry.py reads this struct. Fields are (batches, grid) and contiguous. */
struct carry_args {
    int64_t batches, grid[3], steps;
    int32_t ring[3], threads;
    double first[3], second[3]; /* cells that are crossed in a step: first + second * u along each axis */
    double low, high; /* u in this sum stays between these bounds */
    void *states; /* (steps + 1, batches, grid): `forward` writes all but the first */
    void *grad; /* gradient of the last state, which `backward` makes that of the first */
    double *grad_speeds; /* (batches, 3, 2), zero before `backward`: of first and second */
    double *fastest; /* (1): `fastest` writes the most cells, all axes together */
    void *workspace; /* see _library.c */
};

/* What kernel.c defines. */
struct carry_kernel {
    void (*forward)(const struct carry_args *);
    void (*backward)(const struct carry_args *);
    void (*fastest)(const struct carry_args *);
    int64_t (*workspace)(const struct carry_args *);
    int lanes;
};

#endif
