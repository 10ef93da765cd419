/* Products with AVX-512 and its dot products of bytes (VNNI): 16 outputs by 8 rows in registers. */
#include "kernels.h"

#if SPEC_X86
#include <immintrin.h>

SPEC_TARGET_BEGIN("avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")

#define ISA "avx512vnni"
#define TABLE spec_product_avx512vnni
#define LANES 16
#define MAX_ROWS 8
#define ONE_WIDTH 0
#include "lanes_avx512.h"

static ALWAYS size_t qrow_block_bytes(int bits) { return bits == 8 ? 32 : 64; }

static ALWAYS void put_bytes(vi q, uint8_t *to) {
    _mm_storeu_si128((__m128i *)(void *)to, _mm512_cvtepi32_epi8((__m512i)q));
}

/* 8 bits: q. 15 bits: 32 high bytes, then 32 low ones; q = 128 high + low, low from -64 to 63. */
static ALWAYS void put_qrows(const vi *q, int bits, uint8_t *to) {
    for (int p = 0; p < 2; p++, to += 16) {
        if (bits == 8) {
            put_bytes(q[p], to);
            continue;
        }
        vi high = (q[p] + 64) >> 7;
        put_bytes(high, to);
        put_bytes(q[p] - (high << 7), to + 32);
    }
}

typedef struct {
    vi low, high;
} sums;

static ALWAYS sums first_sums(vi start) { return (sums){start, (vi){0}}; }

typedef struct {
    int8_t x[4];
} four;

/* Inline assembly, because gcc would load the four bytes into a register first, which takes 10 % more time. Not used
 * with the address sanitiser, which does not check the memory accesses of inline assembly. */
static ALWAYS vi dot_bytes(vi sum, vu w, const uint8_t *x) {
#if defined(__clang__) || defined(__SANITIZE_ADDRESS__)
    int32_t bytes;
    memcpy(&bytes, x, 4);
    return (vi)_mm512_dpbusd_epi32((__m512i)sum, (__m512i)w, _mm512_set1_epi32(bytes));
#else
    __asm__("vpdpbusd %2%{1to16%}, %1, %0" : "+v"(sum) : "v"(w), "m"(*(const four *)(const void *)x));
    return sum;
#endif
}

static ALWAYS void dot(sums *s, vu w, const uint8_t *x, int j, int bits) {
    s->low = dot_bytes(s->low, w, x + (bits == 8 ? 0 : 32) + 4 * j);
    if (bits != 8) s->high = dot_bytes(s->high, w, x + 4 * j);
}

static ALWAYS vi total(sums s, int bits) {
    if (bits == 8) return s.low;
    return (s.high << 7) + s.low;
}

#include "quantise.inc"
#include "quantised_tile.inc"
#include "float_tile.inc"
#include "table.inc"

SPEC_TARGET_END
#endif
