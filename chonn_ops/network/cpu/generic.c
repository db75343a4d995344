#define KERNEL chonn_network_generic
#define VECTOR_BYTES 16
#include "kernel.h"
