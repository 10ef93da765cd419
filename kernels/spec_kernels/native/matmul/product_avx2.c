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
#include "lanes_avx2.h"

static ALWAYS vi pairs(vi a, vi b) { return (vi)_mm256_madd_epi16((__m256i)a, (__m256i)b); }

static ALWAYS vi byte_pairs(vu codes, const uint8_t *at) {
    int32_t four;
    memcpy(&four, at, 4);
    return (vi)_mm256_maddubs_epi16((__m256i)codes, _mm256_set1_epi32(four));
}

static ALWAYS vi add_words(vi a, vi b) { return (vi)_mm256_add_epi16((__m256i)a, (__m256i)b); }

static ALWAYS vi word_pairs(vi x) { return (vi)_mm256_madd_epi16((__m256i)x, _mm256_set1_epi16(1)); }

/* Swaps the second and third of every four words. */
static ALWAYS void put_words(__m256i x, uint8_t *to) {
    x = _mm256_shufflehi_epi16(_mm256_shufflelo_epi16(x, 0xd8), 0xd8);
    _mm256_storeu_si256((__m256i *)(void *)to, x);
}

/* See int16_rows.inc: 32 words, then the same values as bytes if rows have 8 bits. */
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
