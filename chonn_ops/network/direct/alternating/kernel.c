/* The direct method for complex numbers and one instruction set: the build defines VECTOR_BYTES and
 * KERNEL.
 *
 * A vector holds one real or imaginary part of every network of a group. Factors exist in both
 * precisions; potentials and residuals are of double precision. */

#include <float.h>
#include <math.h>
#include <string.h>
#ifdef __linux__
#include <sys/mman.h>
#endif

#include "alternating.h"

#ifdef _OPENMP
#include <omp.h>
static inline int thread_number(void) { return omp_get_thread_num(); }
#else
static inline int thread_number(void) { return 0; }
#endif

#define INLINE static inline __attribute__((always_inline))
/* Big functions stay apart: inlined into each other they compile for minutes. */
#ifdef __clang__
#define APART static __attribute__((noinline))
#define UNROLL _Pragma("unroll")
#else
#define APART static __attribute__((noinline, noclone))
#define UNROLL _Pragma("GCC unroll 16")
#endif

/* Rows and columns of a block whose sums stay in registers. */
#if VECTOR_BYTES == 64
#define ROWS 4
#define COLUMNS 2
#else
#define ROWS 2
#define COLUMNS 2
#endif

enum {
    PANEL = 8, /* pivots that are eliminated one by one before later rows see them */
    PAD = 16,  /* elements behind factors and fronts that whole blocks may touch */
};

static inline int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

/* Rows k of a front's factors lie one behind the other, each from column k + 1 on: where column q
 * of row k is. */
static inline int64_t share_index(int64_t front, int64_t k, int64_t q) {
    return k * front - k * (k + 1) / 2 + q - k - 1;
}

static inline int64_t aligned(int64_t bytes) { return (bytes + 63) & ~(int64_t)63; }

static inline void ask_for_large_pages(void *at, int64_t bytes) {
#ifdef __linux__
    const uintptr_t page = 4096, first = ((uintptr_t)at + page - 1) & ~(page - 1);
    if (bytes >= (int64_t)4 << 20) madvise((void *)first, (size_t)(bytes - (int64_t)page), MADV_HUGEPAGE);
#else
    (void)at, (void)bytes;
#endif
}

/* c += s a, for numbers of either precision. */
#define ADD_PRODUCT(c, s, a)                                                                       \
    ((c).re += (s).re * (a).re, (c).im += (s).re * (a).im, (c).re -= (s).im * (a).im,              \
     (c).im += (s).im * (a).re)

#define REAL float
#define INTEGER int32_t
#define TINIEST FLT_MIN
#define FEW 3.5e-4f /* sqrt(FLT_EPSILON) */
#define ALWAYS 1    /* refinements whatever the residual: it may be far below the error */
#define NAME(x) x##_float
#include "factorize.h"
#include "solve.h"
#include "precision.h"
#undef REAL
#undef INTEGER
#undef TINIEST
#undef FEW
#undef ALWAYS
#undef NAME

#define REAL double
#define INTEGER int64_t
#define TINIEST DBL_MIN
#define FEW 1.5e-8 /* sqrt(DBL_EPSILON) */
#define ALWAYS 0
#define NAME(x) x##_double
#include "factorize.h"
#include "solve.h"
#include "precision.h"

const struct alternating_kernel KERNEL(alternating)[2] = {
    {run_float, workspace_float, VECTOR_BYTES / 4},
    {run_double, workspace_double, VECTOR_BYTES / 8},
};
