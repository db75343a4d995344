/* All functions on vectors of WIDTH elements of REAL; WIDE(x) is a function's name for this width. */

/* The states that a loop keeps in registers: their independent chains hide each other's latency.
 * An instruction on half an AVX-512 vector takes half the time, so twice as many chains fit. */
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
#include "vectors.h"
#include "walk_block.h"
#include "segment_block.h"
#include "line_block.h"
#undef LEAST
#undef MOST
#undef CHAINS
#undef PASTED
#undef PASTE
#undef VEC
#undef IVEC
