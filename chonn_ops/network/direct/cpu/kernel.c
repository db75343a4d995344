/* The direct method of real networks, for one instruction set and size of numbers.
 *
 * An element of a front is one value of every network of a group ("lanes"), or one number, and vectors
 * are pieces of the front's rows ("rows"). kernel_complex.c has complex networks, in lanes only.
 *     numbers.h     vectors, and how networks are packed into them
 *     mode.h        elements, their sums and products; what one call does
 *     factorize.h   elimination;  substitute.h  substitution;  invert.h  entries of the inverse
 *     solve.h       potentials and drops of real networks, with tiles.h and real.h
 *     refine.h      potentials of complex networks, whose pivots may lose digits */

#define COMPLEX 0
#include "numbers.h"
#include "real.h"

const struct direct_kernel KERNEL(direct) = {run, workspace, LANES};
