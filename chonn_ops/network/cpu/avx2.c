#define KERNEL chonn_network_avx2
#define VECTOR_BYTES 32
#include "kernel.h"
