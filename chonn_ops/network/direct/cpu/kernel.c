/* The direct method of real networks, for one instruction set and size of numbers.
 *
 * mode.h and what it includes are compiled once a mode, with names that MODE makes:
 *     lanes    ROWS 0   a vector is one value of every network of a group
 *     rows     ROWS 1   a vector is a piece of a row of one network's front, or LANES sources of it
 *     complex  ROWS 0   as lanes, with two vectors a value (kernel_complex.c)
 * A call runs in rows where `rows` of struct direct_args says so. The headers:
 *     numbers.h     vectors, and how networks are packed into them
 *     mode.h        elements, their sums and products; what one call does
 *     factorize.h   elimination;  substitute.h  substitution;  invert.h  entries of the inverse
 *     solve.h       potentials and drops of real networks, with tiles.h and real.h
 *     refine.h      potentials of complex networks, whose pivots may lose digits */

#define COMPLEX 0
#include "numbers.h"
#include "real.h"

const struct direct_kernel KERNEL(direct) = {run, workspace, LANES};
