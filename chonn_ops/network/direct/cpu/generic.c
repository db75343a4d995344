#define KERNEL chonn_direct_generic
#define VECTOR_BYTES 16
#include "kernel.h"
