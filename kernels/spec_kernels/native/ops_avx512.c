/* The table for avx512. */
#if defined(__x86_64__) && !defined(SPEC_PORTABLE)
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,f16c"))), apply_to = function)
#else
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,f16c")
#endif

#define SPEC_ISA "avx512"
#define SPEC_WIDTH 16
#define SPEC_TABLE spec_ops_avx512
#include "ops.inc"

#if defined(__clang__)
#pragma clang attribute pop
#endif
#endif
