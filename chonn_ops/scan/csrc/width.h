/* Everything of one width of vectors, WIDTH elements of REAL; WIDE(x) names it. */

#define VEC WIDE(vec)
#define IVEC WIDE(ivec)
#define PASTE(a, b) a##b
#define PASTED(a, b) PASTE(a, b)
#ifdef X86
#if WIDTH * REAL_BYTES == 64
#define LEAST PASTED(_mm512_min_, X86_TYPE)
#elif WIDTH * REAL_BYTES == 32
#define LEAST PASTED(_mm256_min_, X86_TYPE)
#else
#define LEAST PASTED(_mm_min_, X86_TYPE)
#endif
#endif
#include "zoh.h"
#include "fold.h"
#include "forward_block.h"
#include "backward_block.h"
#undef LEAST
#undef PASTED
#undef PASTE
#undef VEC
#undef IVEC
