#define KERNEL chonn_scan_avx512
#define VECTOR_BYTES 64
#include "kernel.h"
