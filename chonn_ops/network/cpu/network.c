/* The exported functions. HAVE_AVX2 and HAVE_AVX512 say which kernels the build contains. */

#include "network.h"

#include "_library.h"

/* NULL where the build or this processor lacks the instruction set. */
static const struct network_kernel *kernel(int isa, int is_double) {
    if (isa > processor_isa()) return NULL;
    switch (isa) {
    case GENERIC: return &chonn_network_generic[is_double];
#ifdef HAVE_AVX2
    case AVX2: return &chonn_network_avx2[is_double];
#endif
#ifdef HAVE_AVX512
    case AVX512: return &chonn_network_avx512[is_double];
#endif
    default: return NULL;
    }
}

/* Bytes: the caller's mirror of the struct must have as many. */
EXPORT int64_t chonn_network_arguments(void) { return sizeof(struct network_args); }

/* Networks a vector holds; 0 where the instruction set is missing. */
EXPORT int32_t chonn_network_lanes(int32_t isa, int32_t is_double) {
    const struct network_kernel *k = kernel(isa, is_double);
    return k ? k->lanes : 0;
}

/* Bytes of workspace one thread needs for a call, a multiple of 64. */
EXPORT int64_t chonn_network_workspace(int32_t isa, int32_t is_double,
                                       const struct network_args *a) {
    return kernel(isa, is_double)->workspace(a);
}

EXPORT void chonn_network_solve(int32_t isa, int32_t is_double, const struct network_args *a) {
    kernel(isa, is_double)->solve(a);
}
