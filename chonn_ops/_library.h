/* Export and processor detection for every operator; the Python side is _library.py. */
#ifndef CHONN_LIBRARY_H
#define CHONN_LIBRARY_H

#include <stddef.h>
#include <stdint.h>

#ifdef _WIN32
#define EXPORT __declspec(dllexport)
#else
#define EXPORT __attribute__((visibility("default")))
#endif

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

#endif
