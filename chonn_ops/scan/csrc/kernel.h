/* The whole kernel for one instruction set: the including file defines KERNEL and VECTOR_BYTES. */

#include <string.h>

#include "scan.h"

#ifdef _OPENMP
#include <omp.h>
static inline int thread_number(void) { return omp_get_thread_num(); }
#else
static inline int thread_number(void) { return 0; }
#endif

#define LANES ((int)(VECTOR_BYTES / sizeof(REAL)))
#define VEC NAME(vec)
#define IVEC NAME(ivec)

/* Q of zoh.h. Float: minimax, relative error of exp(r) - 1 below 3e-8. */
#define REAL float
#define INTEGER int32_t
#define NAME(x) x##_float
#define Z_MAX 87.0
#define ROUNDER 12582912.0
#define MANTISSA_BITS 23
#define EXPONENT_ONE (127 << 23)
#ifdef X86_MIN
#define LEAST X86_MIN(ps)
#endif
#define Q(r)                                                                                  \
    (0.5f - r * (0.16666576266288757f - r * (0.04166655242443085f -                           \
                 r * (0.00836323294788599f - r * 0.0013926250394433737f))))
#include "zoh.h"
#include "forward.h"
#include "backward.h"
#undef REAL
#undef INTEGER
#undef NAME
#undef Z_MAX
#undef ROUNDER
#undef MANTISSA_BITS
#undef EXPONENT_ONE
#undef Q
#undef LEAST

/* Double: the Taylor series, truncated below 1e-16. */
#define REAL double
#define INTEGER int64_t
#define NAME(x) x##_double
#define Z_MAX 708.0
#define ROUNDER 6755399441055744.0
#define MANTISSA_BITS 52
#define EXPONENT_ONE ((int64_t)1023 << 52)
#ifdef X86_MIN
#define LEAST X86_MIN(pd)
#endif
#define Q(r)                                                                                  \
    (0.5 - r * (1 / 6.0 - r * (1 / 24.0 - r * (1 / 120.0 - r * (1 / 720.0 - r * (1 / 5040.0 - \
     r * (1 / 40320.0 - r * (1 / 362880.0 - r * (1 / 3628800.0 - r * (1 / 39916800.0 -        \
     r * (1 / 479001600.0 - r * (1 / 6227020800.0))))))))))))
#include "zoh.h"
#include "forward.h"
#include "backward.h"

const struct scan_kernel KERNEL[2] = {
    {forward_float, backward_float, VECTOR_BYTES / sizeof(float)},
    {forward_double, backward_double, VECTOR_BYTES / sizeof(double)},
};
