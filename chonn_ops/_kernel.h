/* For the kernels of all operators: numbers, threads, and how compilers are told what to inline. The build
 * compiles a kernel once for each instruction set and each size of its numbers, and defines
 *     VECTOR_BYTES  of a vector
 *     REAL_BYTES    of a number, 4 or 8
 *     KERNEL(x)     the name of the functions that the kernel x exports. */
#ifndef CHONN_KERNEL_H
#define CHONN_KERNEL_H

#include <math.h>
#include <stdint.h>

#if REAL_BYTES == 4
typedef float REAL;
typedef int32_t INTEGER;
#else
typedef double REAL;
typedef int64_t INTEGER;
#endif
#define LANES (VECTOR_BYTES / REAL_BYTES)

#ifdef _OPENMP
#include <omp.h>
static inline int thread_number(void) { return omp_get_thread_num(); }
#else
static inline int thread_number(void) { return 0; }
#endif

/* n such that a magnitude is near 2^n, and 2^n and 2^-n are finite; 0 where there is none. */
static inline int exponent_of(REAL value) {
    const int most = sizeof(REAL) == 4 ? 126 : 1022;
    int exponent = 0;
    if (value > 0 && isfinite(value)) frexp((double)value, &exponent);
    return exponent > most ? most : exponent < -most ? -most : exponent;
}

/* Inner loops must be inlined: a call would spill every vector register to memory. */
#define INLINE static inline __attribute__((always_inline))
/* Big functions stay apart: inlined into each other they compile for minutes. */
#ifdef __clang__
#define APART static __attribute__((noinline))
#define UNROLL _Pragma("unroll")
#else
#define APART static __attribute__((noinline, noclone))
#define UNROLL _Pragma("GCC unroll 16")
#endif

#endif
