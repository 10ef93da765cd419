/* Writes the sum of the lanes of a to sums[0] and that of b to sums[1]. Needs AVX2. */
static ALWAYS void fold_two(__m256i a, __m256i b, int32_t *sums) {
    __m256i both = _mm256_hadd_epi32(a, b);
    __m128i two = _mm_add_epi32(_mm256_castsi256_si128(both), _mm256_extracti128_si256(both, 1));
    _mm_storel_epi64((__m128i *)(void *)sums, _mm_hadd_epi32(two, two));
}
