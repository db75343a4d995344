/* The exported functions of the scan. The build defines HAVE_AVX2 and HAVE_AVX512 where it contains
 * these kernels, and CHONN_INTERFACE, the digest that chonn_ops/_library.py computes. */

#include "scan.h"

#include "_library.h"

/* The kernel, or NULL where the build or this processor lacks the instruction set. */
static const struct scan_kernel *kernel(int isa, int is_double) {
    if (isa > processor_isa()) return NULL;
    switch (isa) {
    case GENERIC: return &chonn_scan_generic[is_double];
#ifdef HAVE_AVX2
    case AVX2: return &chonn_scan_avx2[is_double];
#endif
#ifdef HAVE_AVX512
    case AVX512: return &chonn_scan_avx512[is_double];
#endif
    default: return NULL;
    }
}

/* The digest of all C sources. Python refuses a library that was built from other sources than those
 * beside it. */
EXPORT int64_t chonn_interface_version(void) { return CHONN_INTERFACE; }

/* The size of the struct in bytes, which the caller compares with the size of its mirror. */
EXPORT int64_t chonn_scan_arguments(void) { return sizeof(struct scan_args); }

/* The channels that a vector holds, or 0 where the instruction set is missing. */
EXPORT int32_t chonn_scan_lanes(int32_t isa, int32_t is_double) {
    const struct scan_kernel *k = kernel(isa, is_double);
    return k ? k->lanes : 0;
}

/* The elements of workspace that one thread needs for a call. */
EXPORT int64_t chonn_scan_workspace(int32_t isa, int32_t is_double, const struct scan_args *a) {
    return kernel(isa, is_double)->workspace(a);
}

EXPORT void chonn_scan_forward(int32_t isa, int32_t is_double, const struct scan_args *a) {
    kernel(isa, is_double)->forward(a);
}

EXPORT void chonn_scan_backward(int32_t isa, int32_t is_double, const struct scan_args *a) {
    kernel(isa, is_double)->backward(a);
}
