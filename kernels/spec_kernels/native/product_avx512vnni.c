/* Products with AVX-512 and its dot products of bytes (VNNI): 16 outputs by 8 rows in registers. */
#include "kernels.h"

#if SPEC_X86
#include <immintrin.h>

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512vnni"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")
#endif

#define ISA "avx512vnni"
#define TABLE spec_product_avx512vnni
#define LANES 16
#define MOST_ROWS 8
#define ONE_WIDTH 0
#include "lanes512.h"

static ALWAYS size_t plane_bytes(int bits) {
    return bits == 8 ? 32 : 64;
}

/* 8 bits: q. 15 bits: 32 high bytes, then 32 low ones; q = 128 high + low, low from -64 to 63. */
static ALWAYS void put_planes(const int32_t *q, int bits, uint8_t *to) {
    uint8_t *low = to + (bits == 8 ? 0 : 32);
    for (int i = 0; i < SPEC_BLOCK; i += 16) {
        __m512i all = _mm512_loadu_si512(q + i), high = _mm512_setzero_si512();
        if (bits != 8) {
            high = _mm512_srai_epi32(_mm512_add_epi32(all, _mm512_set1_epi32(64)), 7);
            _mm_storeu_si128((__m128i *)(void *)(to + i), _mm512_cvtepi32_epi8(high));
        }
        __m512i rest = _mm512_sub_epi32(all, _mm512_slli_epi32(high, 7));
        _mm_storeu_si128((__m128i *)(void *)(low + i), _mm512_cvtepi32_epi8(rest));
    }
}

typedef struct {
    vi low, high;
} sums;

static ALWAYS sums first_sums(vi start) {
    return (sums){start, (vi){0}};
}

static ALWAYS vi dot_bytes(vi sum, vu w, const uint8_t *x) {
    int32_t four;
    memcpy(&four, x, 4);
    return (vi)_mm512_dpbusd_epi32((__m512i)sum, (__m512i)w, _mm512_set1_epi32(four));
}

static ALWAYS void dot(sums *s, vu w, const uint8_t *x, int j, int bits) {
    s->low = dot_bytes(s->low, w, x + (bits == 8 ? 0 : 32) + 4 * j);
    if (bits != 8)
        s->high = dot_bytes(s->high, w, x + 4 * j);
}

static ALWAYS vi total(sums s, int bits) {
    if (bits == 8)
        return s.low;
    return (s.high << 7) + s.low;
}

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
