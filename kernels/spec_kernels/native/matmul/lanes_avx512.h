/* Vectors of 16 lanes in one AVX-512 register. */
typedef int32_t vi __attribute__((vector_size(64), may_alias));
typedef uint32_t vu __attribute__((vector_size(64), may_alias));
typedef float vf __attribute__((vector_size(64), may_alias));

static ALWAYS vf half_lanes(const uint8_t *at) {
    return (vf)_mm512_cvtph_ps(_mm256_load_si256((const __m256i *)(const void *)at));
}

static ALWAYS vf bfloat_lanes(const uint8_t *at) {
    __m512i wide = _mm512_cvtepu16_epi32(_mm256_load_si256((const __m256i *)(const void *)at));
    return (vf)_mm512_slli_epi32(wide, 16);
}

static ALWAYS vf u8_lanes(const uint8_t *at) {
    return (vf)_mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_load_si128((const __m128i *)(const void *)at)));
}

static ALWAYS vf s8_lanes(const uint8_t *at) {
    return (vf)_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_load_si128((const __m128i *)(const void *)at)));
}

static ALWAYS vi larger(vi a, vi b) { return (vi)_mm512_max_epi32((__m512i)a, (__m512i)b); }

static ALWAYS int32_t largest_lane(vi x) { return _mm512_reduce_max_epi32((__m512i)x); }

#include "sums_avx2.h"

static ALWAYS __m256i halved(vi x) {
    return _mm256_add_epi32(_mm512_castsi512_si256((__m512i)x), _mm512_extracti32x8_epi32((__m512i)x, 1));
}

static ALWAYS void half_sums(const vi *q, int32_t *sums) { fold_two(halved(q[0]), halved(q[1]), sums); }
