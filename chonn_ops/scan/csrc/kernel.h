/* The whole kernel for one instruction set: the including file defines KERNEL and VECTOR_BYTES. */

#include <string.h>

#include "scan.h"

#ifdef _OPENMP
#include <omp.h>
static inline int thread_number(void) { return omp_get_thread_num(); }
#else
static inline int thread_number(void) { return 0; }
#endif

#define LN2 0.69314718055994531
#define LANES ((int)(VECTOR_BYTES / sizeof(REAL)))
#define VEC NAME(vec)
#define IVEC NAME(ivec)

/* Q of zoh.h. Float: minimax, relative error of 2^-f - 1 below 3e-8. */
#define REAL float
#define INTEGER int32_t
#define NAME(x) x##_float
#define HALVINGS_MAX 125.5
#define ROUNDER 12582912.0
#define MANTISSA_BITS 23
#define EXPONENT_ONE (127 << 23)
#ifdef X86_MIN
#define LEAST X86_MIN(ps)
#endif
#define Q(f)                                                                                  \
    (0.240226507f - f * (0.05550380761f - f * (0.009618102737f -                                \
                f * (0.001338139834f - f * 0.0001544496633f))))
#include "zoh.h"
#include "forward.h"
#include "backward.h"
#undef REAL
#undef INTEGER
#undef NAME
#undef HALVINGS_MAX
#undef ROUNDER
#undef MANTISSA_BITS
#undef EXPONENT_ONE
#undef Q
#undef LEAST

/* Double: the Taylor series, truncated below 1e-16. */
#define REAL double
#define INTEGER int64_t
#define NAME(x) x##_double
#define HALVINGS_MAX 1021.0
#define ROUNDER 6755399441055744.0
#define MANTISSA_BITS 52
#define EXPONENT_ONE ((int64_t)1023 << 52)
#ifdef X86_MIN
#define LEAST X86_MIN(pd)
#endif
#define Q(f) \
    (0.24022650695910069 - f * (0.055504108664821576 - f * (0.0096181291076284769 - f * \
    (0.0013333558146428441 - f * (0.00015403530393381606 - f * (1.5252733804059838e-05 - \
    f * (1.3215486790144305e-06 - f * (1.0178086009239696e-07 - f * \
    (7.0549116208011209e-09 - f * (4.4455382718708101e-10 - f * (2.5678435993488196e-11 \
    - f * (1.3691488853904124e-12))))))))))))
#include "zoh.h"
#include "forward.h"
#include "backward.h"

const struct scan_kernel KERNEL[2] = {
    {forward_float, backward_float, VECTOR_BYTES / sizeof(float)},
    {forward_double, backward_double, VECTOR_BYTES / sizeof(double)},
};
