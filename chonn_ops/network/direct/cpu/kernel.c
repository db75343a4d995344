/* The direct method for one instruction set: the build defines VECTOR_BYTES and KERNEL.
 *
 * Everything exists twice for each precision: an element of a front is one value of every network
 * of a group ("lanes"), or one number, and vectors are pieces of the front's rows ("rows"). */

#include <float.h>
#include <math.h>
#include <string.h>
#ifdef __linux__
#include <sys/mman.h>
#endif

#include "direct.h"

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

enum {
    WORTH_SHARING = 4000000, /* multiply-adds of an update for which threads are woken */
    PANEL = 8, /* pivots that are eliminated one by one before later rows see them */
    PAD = 16,  /* elements behind factors and fronts that whole blocks may touch */
};

static inline int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

/* Rows k of a front's factors lie one behind the other, each from column k + 1 on: where column q
 * of row k is. */
static inline int64_t share_index(int64_t front, int64_t k, int64_t q) {
    return k * front - k * (k + 1) / 2 + q - k - 1;
}

/* Where row i of an update of `width` nodes and ground begins, its first column being i + 1. */
static inline int64_t update_row(int64_t width, int64_t i) { return i * width - i * (i - 1) / 2; }

static inline int64_t aligned(int64_t bytes) { return (bytes + 63) & ~(int64_t)63; }

static inline void ask_for_large_pages(void *at, int64_t bytes) {
#ifdef __linux__
    const uintptr_t page = 4096, first = ((uintptr_t)at + page - 1) & ~(page - 1);
    if (bytes >= (int64_t)4 << 20) madvise((void *)first, (size_t)(bytes - (int64_t)page), MADV_HUGEPAGE);
#else
    (void)at, (void)bytes;
#endif
}

#define REAL float
#define INTEGER int32_t
#define TINIEST FLT_MIN
#define EPSILON FLT_EPSILON
#define NAME(x) x##_float
#include "real.h"
#undef REAL
#undef INTEGER
#undef TINIEST
#undef EPSILON
#undef NAME

#define REAL double
#define INTEGER int64_t
#define TINIEST DBL_MIN
#define EPSILON DBL_EPSILON
#define NAME(x) x##_double
#include "real.h"

const struct direct_kernel KERNEL(direct)[2] = {
    {run_float, workspace_float, VECTOR_BYTES / 4},
    {run_double, workspace_double, VECTOR_BYTES / 8},
};
