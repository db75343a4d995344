/* The direct method of complex networks, whose vectors hold real or imaginary parts; see kernel.c. */
#define COMPLEX 1
#define ROWS 0
#define MODE(x) x
#include "numbers.h"
#include "mode.h"

const struct direct_kernel KERNEL(direct_complex) = {run, workspace, LANES};
