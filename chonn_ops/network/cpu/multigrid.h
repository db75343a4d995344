/* Conjugate gradients that black-box multigrid preconditions, for one form of vectors. An element
 * is the value of NETWORKS networks at one node: of one, so that a vector holds the elements of WIDTH
 * neighbouring nodes, or of as many as a vector has lanes, so that WIDTH is 1. Only loads and
 * stores, sums over nodes and the order of sweeps within a row tell the two from each other. */
#define WIDTH (LANES / NETWORKS)

#include "element.h"
#include "level.h"
#include "pack.h"
#include "eliminate.h"
#include "smooth.h"
#include "transfer.h"
#include "coarsen.h"
#include "solve.h"

#undef WIDTH
