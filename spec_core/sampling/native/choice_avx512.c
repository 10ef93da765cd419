/* The table for avx512. */
#if defined(__x86_64__)
#include <immintrin.h>
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx512f,avx512bw,avx512dq,avx512vl"))), apply_to = function)
#else
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,prefer-vector-width=512")
#endif

#include "choice.h"

#define CHOICE_ISA "avx512"
#define CHOICE_TABLE choice_avx512
#define ALWAYS inline __attribute__((always_inline))
#define LANES 8
#define product(a, factor) (words) _mm512_mul_epu32((__m512i)(a), _mm512_set1_epi64(factor))
#include "choice.inc"

#if defined(__clang__)
#pragma clang attribute pop
#endif
#endif
