#define KERNEL chonn_network_avx512
#define VECTOR_BYTES 64
#include "kernel.h"
