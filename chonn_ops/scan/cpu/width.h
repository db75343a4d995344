/* Everything of one width of vectors, WIDTH elements of REAL; WIDE(x) names it. */

/* States in registers at a time: their chains hide each other's latency. Half of an AVX-512 vector
 * takes half the time of a whole one, so it takes twice the chains. */
#if WIDTH * REAL_BYTES == 32 && VECTOR_BYTES == 64
#define CHAINS 4
#else
#define CHAINS 2
#endif
#define VEC WIDE(vec)
#define IVEC WIDE(ivec)
#define PASTE(a, b) a##b
#define PASTED(a, b) PASTE(a, b)
#ifdef X86
#if WIDTH * REAL_BYTES == 64
#define LEAST PASTED(_mm512_min_, X86_TYPE)
#define MOST PASTED(_mm512_max_, X86_TYPE)
#elif WIDTH * REAL_BYTES == 32
#define LEAST PASTED(_mm256_min_, X86_TYPE)
#define MOST PASTED(_mm256_max_, X86_TYPE)
#else
#define LEAST PASTED(_mm_min_, X86_TYPE)
#define MOST PASTED(_mm_max_, X86_TYPE)
#endif
#endif
#include "zoh.h"
#include "lane_sums.h"
#include "forward_block.h"
#include "backward_block.h"
#include "line_block.h"
#undef LEAST
#undef MOST
#undef CHAINS
#undef PASTED
#undef PASTE
#undef VEC
#undef IVEC
