#define KERNEL chonn_alternating_generic
#define VECTOR_BYTES 16
#include "kernel.h"
