#define KERNEL chonn_alternating_avx512
#define VECTOR_BYTES 64
#include "kernel.h"
