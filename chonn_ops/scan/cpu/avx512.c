#include <immintrin.h>

#define KERNEL chonn_scan_avx512
#define VECTOR_BYTES 64
#define X86
#include "kernel.h"
