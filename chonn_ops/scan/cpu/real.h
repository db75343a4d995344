/* Everything of one precision: on whole vectors, on half ones for narrow blocks, and the jobs. */

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
#include "forward.h"
#include "backward.h"
#include "lines.h"
