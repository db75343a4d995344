#define KERNEL chonn_scan_generic
#define VECTOR_BYTES 16
#include "kernel.h"
