/* The table for avx2. */
#if defined(__x86_64__) && !defined(SPEC_PORTABLE)
#include "target.h"

SPEC_TARGET_BEGIN("avx2,f16c")

#define SPEC_ISA "avx2"
#define SPEC_WIDTH 8
#define SPEC_TABLE spec_ops_avx2
#include "table.inc"

SPEC_TARGET_END
#endif
