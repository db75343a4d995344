/* The exported functions. HAVE_AVX2 and HAVE_AVX512 say which kernels the build contains,
 * CHONN_INTERFACE is the digest of all C sources that chonn_ops/_library.py takes. */

#include <stddef.h>

#include "scan.h"

#define EXPORT __attribute__((visibility("default")))

/* 0: generic, 1: avx2, 2: avx512. NULL where the build or this processor lacks it. */
static const struct scan_kernel *kernel(int isa, int is_double) {
    switch (isa) {
    case 0:
        return &chonn_scan_generic[is_double];
#ifdef HAVE_AVX2
    case 1:
        if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
            return &chonn_scan_avx2[is_double];
        return NULL;
#endif
#ifdef HAVE_AVX512
    case 2:
        if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
            __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("fma"))
            return &chonn_scan_avx512[is_double];
        return NULL;
#endif
    default:
        return NULL;
    }
}

/* Of the whole library: what was built from other sources than lie beside it is not run. */
EXPORT int64_t chonn_interface_version(void) { return CHONN_INTERFACE; }

/* Bytes: the caller's mirror of the struct must have as many. */
EXPORT int64_t chonn_scan_arguments(void) { return sizeof(struct scan_args); }

/* Channels a vector holds; 0 where the instruction set is missing. */
EXPORT int32_t chonn_scan_lanes(int32_t isa, int32_t is_double) {
    const struct scan_kernel *k = kernel(isa, is_double);
    return k ? k->lanes : 0;
}

/* Elements of workspace one thread needs for a call. */
EXPORT int64_t chonn_scan_workspace(int32_t isa, int32_t is_double, const struct scan_args *a) {
    return kernel(isa, is_double)->workspace(a);
}

EXPORT void chonn_scan_forward(int32_t isa, int32_t is_double, const struct scan_args *a) {
    kernel(isa, is_double)->forward(a);
}

EXPORT void chonn_scan_backward(int32_t isa, int32_t is_double, const struct scan_args *a) {
    kernel(isa, is_double)->backward(a);
}
