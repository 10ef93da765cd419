/* The table for avx512 with its dot products of bytes. */
#if defined(__x86_64__) && !defined(SPEC_PORTABLE)
#include "target.h"

SPEC_TARGET_BEGIN("avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,f16c")

#define SPEC_ISA "avx512vnni"
#define SPEC_WIDTH 16
#define SPEC_VNNI 1
#define SPEC_TABLE spec_ops_avx512vnni
#include "table.inc"

SPEC_TARGET_END
#endif
