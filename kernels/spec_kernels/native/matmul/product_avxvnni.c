/* Products with AVX2 and dot products of bytes (AVX-VNNI, for processors without AVX-512): 8 outputs by 8 rows in
 * registers. */
#include "kernels.h"

#if SPEC_AVXVNNI
#include <immintrin.h>

SPEC_TARGET_BEGIN("avx2,f16c,avxvnni")

#define ISA "avxvnni"
#define TABLE spec_product_avxvnni
#define LANES 8
#define MAX_ROWS 8
#define ONE_WIDTH 0
#include "lanes_avx2.h"

static ALWAYS size_t qrow_block_bytes(int bits) { return bits == 8 ? 32 : 64; }

/* 32 integers as bytes, in order. */
static ALWAYS void put_bytes(const vi *q, uint8_t *to) {
    const __m256i bytes = _mm256_packs_epi16(words_of(q[0], q[1]), words_of(q[2], q[3]));
    _mm256_storeu_si256((__m256i *)(void *)to, _mm256_permute4x64_epi64(bytes, 0xd8));
}

/* 8 bits: q. 15 bits: 32 high bytes, then 32 low ones; q = 128 high + low, low from -64 to 63. */
static ALWAYS void put_qrows(const vi *q, int bits, uint8_t *to) {
    if (bits == 8) {
        put_bytes(q, to);
        return;
    }
    vi high[4], low[4];
    UNROLL for (int p = 0; p < 4; p++) {
        high[p] = (q[p] + 64) >> 7;
        low[p] = q[p] - (high[p] << 7);
    }
    put_bytes(high, to);
    put_bytes(low, to + 32);
}

typedef struct {
    vi low, high;
} sums;

static ALWAYS sums first_sums(vi start) { return (sums){start, (vi){0}}; }

static ALWAYS vi dot_bytes(vi sum, vu w, const uint8_t *x) {
    int32_t four;
    memcpy(&four, x, 4);
    return (vi)_mm256_dpbusd_avx_epi32((__m256i)sum, (__m256i)w, _mm256_set1_epi32(four));
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
