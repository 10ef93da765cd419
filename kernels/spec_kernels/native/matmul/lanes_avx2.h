/* Vectors of 8 lanes in one AVX2 register. */
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

/* 16 integers in the range of int16, in order. */
static ALWAYS __m256i words_of(vi a, vi b) {
    return _mm256_permute4x64_epi64(_mm256_packs_epi32((__m256i)a, (__m256i)b), 0xd8);
}
