#define KERNEL chonn_direct_avx512
#define VECTOR_BYTES 64
#include "kernel.h"
