/* The functions that every operator exports, and the choice of its kernel by instruction set. The
 * build compiles the kernels of each operator once for each instruction set and size of numbers, and
 * defines HAVE_AVX2 and HAVE_AVX512 where the library contains these instruction sets. The Python side
 * is _library.py. */

#include "_library.h"

#include <stddef.h>
#include <stdint.h>

#include "models/cpu/carry.h"
#include "network/solve/cpu/network.h"
#include "network/direct/cpu/direct.h"
#include "scan/cpu/scan.h"

/* In the order of ISAS in _library.py: each instruction set includes those before it. */
enum isa { GENERIC, AVX2, AVX512 };

#ifdef __x86_64__
#include <cpuid.h>

/* Replaces __builtin_cpu_supports, whose data clang for Windows does not link. */
static enum isa find_processor_isa(void) {
    const unsigned avx512 = bit_AVX512F | bit_AVX512DQ | bit_AVX512VL;
    unsigned a, b, c, d, saved, unused;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_OSXSAVE) || !(c & bit_FMA)) return GENERIC;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || !(b & bit_AVX2)) return GENERIC;
    /* The system must save the registers XMM and YMM; for AVX-512 also opmask and both parts of ZMM. */
    __asm__("xgetbv" : "=a"(saved), "=d"(unused) : "c"(0));
    if ((saved & 0x06) != 0x06) return GENERIC;
    return (b & avx512) == avx512 && (saved & 0xe6) == 0xe6 ? AVX512 : AVX2;
}
#else
static enum isa find_processor_isa(void) { return GENERIC; }
#endif

/* The last instruction set that this processor runs. The result is cached, because virtual machines
 * take microseconds to emulate cpuid. Threads that race to set it write the same value. */
static int processor_isa(void) {
    static int known = -1;
    if (known < 0) known = find_processor_isa();
    return known;
}

#ifdef HAVE_AVX2
#define IF_AVX2(...) __VA_ARGS__
#else
#define IF_AVX2(...) NULL
#endif
#ifdef HAVE_AVX512
#define IF_AVX512(...) __VA_ARGS__
#else
#define IF_AVX512(...) NULL
#endif

/* The kernels of x for one instruction set, by kind: of float and of double. */
#define REALS(x, isa) &chonn_##x##_##isa##_float, &chonn_##x##_##isa##_double
#define DECLARE(type, x)                                                            \
    extern const struct type chonn_##x##_generic_float, chonn_##x##_generic_double, \
        chonn_##x##_avx2_float, chonn_##x##_avx2_double, chonn_##x##_avx512_float,  \
        chonn_##x##_avx512_double;
DECLARE(scan_kernel, scan)
DECLARE(network_kernel, network)
DECLARE(direct_kernel, direct)
DECLARE(direct_kernel, direct_complex)
DECLARE(carry_kernel, carry)
#define KINDS_scan(isa) REALS(scan, isa)
#define KINDS_network(isa) REALS(network, isa)
#define KINDS_carry(isa) REALS(carry, isa)
#define KINDS_direct(isa) REALS(direct, isa), REALS(direct_complex, isa)

/* Defines for the operator x:
 * - x_kernel, NULL where the build or this processor lacks the instruction set;
 * - the bytes of the argument struct, which the caller compares with the size of its mirror;
 * - the elements that a vector holds, 0 where the instruction set is missing;
 * - the size of `workspace`, which the caller allocates for a call:
 *       scan, carry  elements, for each thread
 *       network      bytes, for each thread, `alone` for all together; zeros, 64-byte aligned
 *       direct       bytes, for all threads; 64-byte aligned */
#define OPERATOR(x)                                                                             \
    static const struct x##_kernel *x##_kernel(int isa, int kind) {                             \
        static const struct x##_kernel *const kernels[][4] = {                                  \
            {KINDS_##x(generic)}, {IF_AVX2(KINDS_##x(avx2))}, {IF_AVX512(KINDS_##x(avx512))}};  \
        return isa <= processor_isa() ? kernels[isa][kind] : NULL;                              \
    }                                                                                           \
    EXPORT int64_t chonn_##x##_arguments(void) { return sizeof(struct x##_args); }              \
    EXPORT int32_t chonn_##x##_lanes(int32_t isa, int32_t kind) {                               \
        const struct x##_kernel *kernel = x##_kernel(isa, kind);                                \
        return kernel ? kernel->lanes : 0;                                                      \
    }                                                                                           \
    EXPORT int64_t chonn_##x##_workspace(int32_t isa, int32_t kind, const struct x##_args *a) { \
        return x##_kernel(isa, kind)->workspace(a);                                             \
    }

#define CALL(x, call)                                                                     \
    EXPORT void chonn_##x##_##call(int32_t isa, int32_t kind, const struct x##_args *a) { \
        x##_kernel(isa, kind)->call(a);                                                   \
    }

OPERATOR(scan)
CALL(scan, forward)
CALL(scan, backward)

OPERATOR(network)
CALL(network, solve)

OPERATOR(direct)
CALL(direct, run)

OPERATOR(carry)
CALL(carry, forward)
CALL(carry, backward)
CALL(carry, fastest)

/* The digest of all C sources. Python refuses a library that was built from other sources than those
 * beside it. */
EXPORT int64_t chonn_interface_version(void) { return CHONN_INTERFACE; }
