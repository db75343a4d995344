/* How fast exponentials can be on this processor: exp(x) for -87 < x <= 0 with a relative
 * error below 4e-6 and nothing else: no special values, no memory beyond the cache. Vectorised by
 * the compiler. */
#include <stdint.h>
#include <string.h>

void exponentials(const float *restrict x, float *restrict y, int64_t n, int64_t repeats) {
    for (int64_t repeat = 0; repeat < repeats; repeat++) {
        for (int64_t i = 0; i < n; i++) {
            const float t = x[i] * 1.44269504f;
            const float shifted = t + 12582912.0f; /* 1.5 * 2^23: rounds to whole numbers */
            const float f = t - (shifted - 12582912.0f);
            /* 2^f on [-1/2, 1/2]. */
            float p = 1.3398874e-3f;
            p = p * f + 9.6184374e-3f;
            p = p * f + 5.5503324e-2f;
            p = p * f + 2.4022648e-1f;
            p = p * f + 6.9314720e-1f;
            p = p * f + 1.0f;
            int32_t power, bits;
            memcpy(&power, &shifted, 4);
            memcpy(&bits, &p, 4);
            bits += (int32_t)((uint32_t)power << 23);
            memcpy(&y[i], &bits, 4);
        }
        __asm__ volatile("" ::: "memory"); /* every repeat counts */
    }
}
