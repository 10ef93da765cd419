/* The table for avx2 with dot products of bytes (AVX-VNNI). */
#include "target.h"

#if SPEC_AVXVNNI
SPEC_TARGET_BEGIN("avx2,f16c,avxvnni")

#define SPEC_ISA "avxvnni"
#define SPEC_WIDTH 8
#define SPEC_VNNI 1
#define SPEC_TABLE spec_ops_avxvnni
#include "table.inc"

SPEC_TARGET_END
#endif
