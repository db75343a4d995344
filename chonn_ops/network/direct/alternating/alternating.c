/* The exported functions. HAVE_AVX2 and HAVE_AVX512 say which kernels the build contains. */

#include "alternating.h"

#include "_library.h"

/* NULL where the build or this processor lacks the instruction set. */
static const struct alternating_kernel *kernel(int isa, int is_double) {
    if (isa > processor_isa()) return NULL;
    switch (isa) {
    case GENERIC: return &chonn_alternating_generic[is_double];
#ifdef HAVE_AVX2
    case AVX2: return &chonn_alternating_avx2[is_double];
#endif
#ifdef HAVE_AVX512
    case AVX512: return &chonn_alternating_avx512[is_double];
#endif
    default: return NULL;
    }
}

/* Bytes: the caller's mirror of the struct must have as many. */
EXPORT int64_t chonn_alternating_arguments(void) { return sizeof(struct alternating_args); }

/* Networks that a vector holds; 0 where the instruction set is missing. */
EXPORT int32_t chonn_alternating_lanes(int32_t isa, int32_t is_double) {
    const struct alternating_kernel *k = kernel(isa, is_double);
    return k ? k->lanes : 0;
}

/* Bytes of workspace a call needs, all threads together. */
EXPORT int64_t chonn_alternating_workspace(int32_t isa, int32_t is_double,
                                      const struct alternating_args *a) {
    return kernel(isa, is_double)->workspace(a);
}

/* a->call says what. */
EXPORT void chonn_alternating_run(int32_t isa, int32_t is_double, const struct alternating_args *a) {
    kernel(isa, is_double)->run(a);
}
