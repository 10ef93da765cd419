/* The table for avx2. */
#if defined(__x86_64__)
#include <immintrin.h>
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2"))), apply_to = function)
#else
#pragma GCC target("avx2")
#endif

#include "choice.h"

#define CHOICE_ISA "avx2"
#define CHOICE_TABLE choice_avx2
#define ALWAYS inline __attribute__((always_inline))
#define LANES 4
#define product(a, factor) (words) _mm256_mul_epu32((__m256i)(a), _mm256_set1_epi64x(factor))
#include "choice.inc"

#if defined(__clang__)
#pragma clang attribute pop
#endif
#endif
