#define KERNEL chonn_scan_avx2
#define VECTOR_BYTES 32
#include "kernel.h"
