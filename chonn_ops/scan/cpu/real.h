/* The constants of both sizes of numbers.
 *
 * Q and HALVINGS_MAX: see vectors.h. FORGOTTEN: segment_block.h skips states with a smaller share,
 * which is no normal number; any larger one may count, because sources differ by many decades. TINY:
 * the halvings below which walk_block.h evaluates RHO, because a difference would lose digits. Float: Q
 * is a minimax polynomial; the relative error of 2^-f - 1 is below 3e-8. Double: Q is the Taylor
 * series, truncated below 1e-16. */

#define TINY 0.4
/* clang-format off */
#if REAL_BYTES == 4
#define LEAST MM(min_ps)
#define MOST MM(max_ps)
#define HALVINGS_MAX 125.5
#define DOUBLINGS_MAX 128.0
#define ROUNDER 12582912.0
#define MANTISSA_BITS 23
#define EXPONENT_ONE (127 << 23)
#define FORGOTTEN 1.2e-38
#define RHO(h) ((REAL)0.34657359027997264 - h * ((REAL)0.040037751159850116 - h * h * (REAL)0.00032060430358761587))
#define Q(f)                                                                                  \
    (0.240226507f - f * (0.05550380761f - f * (0.009618102737f -                                \
                f * (0.001338139834f - f * 0.0001544496633f))))
#else
#define LEAST MM(min_pd)
#define MOST MM(max_pd)
#define HALVINGS_MAX 1021.0
#define DOUBLINGS_MAX 1024.0
#define ROUNDER 6755399441055744.0
#define MANTISSA_BITS 52
#define EXPONENT_ONE ((int64_t)1023 << 52)
#define FORGOTTEN 2.3e-308
#define RHO(h)                                                                                \
    (0.34657359027997264 - h * (0.040037751159850116 - h * h * (0.00032060430358761587 - h * h * (3.6675072365194303e-06 - h * h * (4.4051622633814354e-08 -    \
     h * h * 5.344630015758425e-10)))))
#define Q(f) \
    (0.24022650695910069 - f * (0.055504108664821576 - f * (0.0096181291076284769 - f * \
    (0.0013333558146428441 - f * (0.00015403530393381606 - f * (1.5252733804059838e-05 - \
    f * (1.3215486790144305e-06 - f * (1.0178086009239696e-07 - f * \
    (7.0549116008211009e-09 - f * (4.4455382718708101e-10 - f * (2.5678435993488196e-11 \
    - f * (1.3691488853904124e-12))))))))))))
#endif
/* clang-format on */
