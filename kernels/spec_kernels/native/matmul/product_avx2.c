/* Products with AVX2 and F16C: 8 outputs by 8 rows in registers. */
#include "kernels.h"

#if SPEC_X86
#include <immintrin.h>

SPEC_TARGET_BEGIN("avx2,f16c")

#define ISA "avx2"
#define TABLE spec_product_avx2
#define LANES 8
#define MAX_ROWS 8
#define ONE_WIDTH 0
#define BYTE_PAIRS 1

typedef int32_t vi __attribute__((vector_size(32), may_alias));
typedef uint32_t vu __attribute__((vector_size(32), may_alias));
typedef float vf __attribute__((vector_size(32), may_alias));

static ALWAYS vf half_lanes(const uint8_t *at) {
    return (vf)_mm256_cvtph_ps(_mm_load_si128((const __m128i *)(const void *)at));
}

static ALWAYS vf bfloat_lanes(const uint8_t *at) {
    __m256i wide = _mm256_cvtepu16_epi32(_mm_load_si128((const __m128i *)(const void *)at));
    return (vf)_mm256_slli_epi32(wide, 16);
}

static ALWAYS vf u8_lanes(const uint8_t *at) {
    return (vf)_mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)at)));
}

static ALWAYS vf s8_lanes(const uint8_t *at) {
    return (vf)_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)at)));
}

static ALWAYS vi larger(vi a, vi b) { return (vi)_mm256_max_epi32((__m256i)a, (__m256i)b); }

static ALWAYS int32_t largest_lane(vi x) {
    __m128i top = _mm_max_epi32(_mm256_castsi256_si128((__m256i)x), _mm256_extracti128_si256((__m256i)x, 1));
    top = _mm_max_epi32(top, _mm_shuffle_epi32(top, 0x4e));
    return _mm_cvtsi128_si32(_mm_max_epi32(top, _mm_shuffle_epi32(top, 0xb1)));
}

#include "sums_avx2.h"

static ALWAYS void half_sums(const vi *q, int32_t *sums) {
    fold_two((__m256i)(q[0] + q[1]), (__m256i)(q[2] + q[3]), sums);
}

static ALWAYS vi pairs(vi a, vi b) { return (vi)_mm256_madd_epi16((__m256i)a, (__m256i)b); }

static ALWAYS vi byte_pairs(vu codes, const uint8_t *at) {
    int32_t four;
    memcpy(&four, at, 4);
    return (vi)_mm256_maddubs_epi16((__m256i)codes, _mm256_set1_epi32(four));
}

static ALWAYS vi add_words(vi a, vi b) { return (vi)_mm256_add_epi16((__m256i)a, (__m256i)b); }

static ALWAYS vi word_pairs(vi x) { return (vi)_mm256_madd_epi16((__m256i)x, _mm256_set1_epi16(1)); }

/* 16 integers that fit int16, in order. */
static ALWAYS __m256i words_of(vi a, vi b) {
    return _mm256_permute4x64_epi64(_mm256_packs_epi32((__m256i)a, (__m256i)b), 0xd8);
}

/* In every four words the second and the third change places. */
static ALWAYS void put_words(__m256i x, uint8_t *to) {
    x = _mm256_shufflehi_epi16(_mm256_shufflelo_epi16(x, 0xd8), 0xd8);
    _mm256_storeu_si256((__m256i *)(void *)to, x);
}

/* As int16_rows.inc says: 32 words, and behind them the same as bytes where rows have 8 bits. */
#define VECTOR_ROWS 1
static ALWAYS void put_qrows(const vi *q, int bits, uint8_t *to) {
    const __m256i first = words_of(q[0], q[1]), last = words_of(q[2], q[3]);
    put_words(first, to);
    put_words(last, to + 32);
    if (bits != 8) return;
    const __m256i bytes = _mm256_permute4x64_epi64(_mm256_packs_epi16(first, last), 0xd8);
    _mm256_storeu_si256((__m256i *)(void *)(to + 64), bytes);
}

#include "int16_rows.inc"

#include "quantise.inc"
#include "quantised_tile.inc"
#include "float_tile.inc"
#include "table.inc"

SPEC_TARGET_END
#endif
