/* Products with AVX-512 without dot products of bytes: 16 outputs by 8 rows in registers. */
#include "kernels.h"

#if SPEC_X86
#include <immintrin.h>

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx512f,avx512bw,avx512dq,avx512vl"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl")
#endif

#define ISA "avx512"
#define TABLE spec_product_avx512
#define LANES 16
#define MOST_ROWS 8
#define ONE_WIDTH 1
#include "lanes512.h"

static ALWAYS vi pairs(vi a, vi b) {
    return (vi)_mm512_madd_epi16((__m512i)a, (__m512i)b);
}

#include "words.inc"

#include "planes.inc"
#include "integers.inc"
#include "floats.inc"
#include "table.inc"

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#endif
