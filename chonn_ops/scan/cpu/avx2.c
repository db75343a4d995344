#include <immintrin.h>

#define KERNEL chonn_scan_avx2
#define VECTOR_BYTES 32
#define X86
#include "kernel.h"
