/* The table for avx2. */
#if defined(__x86_64__) && !defined(SPEC_PORTABLE)
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,f16c"))), apply_to = function)
#else
#pragma GCC target("avx2,f16c")
#endif

#define SPEC_ISA "avx2"
#define SPEC_WIDTH 8
#define SPEC_TABLE spec_ops_avx2
#include "ops.inc"

#if defined(__clang__)
#pragma clang attribute pop
#endif
#endif
