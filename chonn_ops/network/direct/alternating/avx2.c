#define KERNEL chonn_alternating_avx2
#define VECTOR_BYTES 32
#include "kernel.h"
