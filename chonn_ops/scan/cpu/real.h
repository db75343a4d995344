/* All functions of one precision: on whole vectors, on half vectors for narrow blocks, and the
 * jobs that call them. */

#include "rows.h"

#define WIDE FULL
#define WIDTH LANES
#include "width.h"
#undef WIDE
#undef WIDTH
#ifdef HALF
#define WIDE HALF
#define WIDTH (LANES / 2)
#include "width.h"
#undef WIDE
#undef WIDTH
#endif

#include "jobs.h"
#include "segments.h"
#include "walks.h"
#include "lines.h"
