/* The table for any processor, in plain C. */
#include "choice.h"

#define CHOICE_ISA "generic"
#define CHOICE_TABLE choice_generic
#define ALWAYS inline __attribute__((always_inline))
#define LANES 2
#if defined(__SSE2__)
#include <emmintrin.h>
#define product(a, factor) (words) _mm_mul_epu32((__m128i)(a), _mm_set1_epi64x(factor))
#else
#define product(a, factor) (((a) & 0xFFFFFFFFu) * (uint64_t)(factor))
#endif
#include "choice.inc"
