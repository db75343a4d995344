/* Everything of complex numbers of one precision: vectors hold real or imaginary parts. */
#define COMPLEX 1
#define ROWS 0
#define MODE(x) NAME(x##_lanes)
#include "numbers.h"
#include "mode.h"
#undef ROWS
#undef MODE
#include "undefine.h"
