/* For the kernels of all operators: threads, and how compilers are told what to inline. */
#ifndef CHONN_KERNEL_H
#define CHONN_KERNEL_H

#ifdef _OPENMP
#include <omp.h>
static inline int thread_number(void) { return omp_get_thread_num(); }
#else
static inline int thread_number(void) { return 0; }
#endif

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
