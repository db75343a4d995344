/* bfloat16 and float16 converted to float, for the kernels of every operator. The conversion uses
 * integers, because some compilers lack _Float16. */
#ifndef CHONN_HALF_H
#define CHONN_HALF_H

#include <stdint.h>
#include <string.h>

static inline float widen_bfloat16(uint16_t bits) {
    const uint32_t word = (uint32_t)bits << 16;
    float wide;
    memcpy(&wide, &word, sizeof wide);
    return wide;
}

static inline float widen_float16(uint16_t bits) {
    const uint32_t magnitude = bits & 0x7fffu;
    uint32_t word = magnitude << 13;
    float wide;
    memcpy(&wide, &word, sizeof wide);
    wide *= 0x1p112f; /* the exponents' biases differ by 112; subnormals become normal */
    memcpy(&word, &wide, sizeof word);
    if (magnitude >= 0x7c00u) word |= 0x7f800000u; /* infinities and NaN */
    word |= (uint32_t)(bits & 0x8000u) << 16;
    memcpy(&wide, &word, sizeof wide);
    return wide;
}

#endif
