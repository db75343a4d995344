#include <immintrin.h>

#define KERNEL chonn_scan_avx2
#define VECTOR_BYTES 32
#define X86_MIN(type) _mm256_min_##type
#include "kernel.h"
