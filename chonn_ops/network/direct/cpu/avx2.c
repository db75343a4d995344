#define KERNEL chonn_direct_avx2
#define VECTOR_BYTES 32
#include "kernel.h"
