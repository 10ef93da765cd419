/* Products in plain C with the compiler's vector extensions, for any processor: 4 outputs by 4 rows in registers. */
#include "kernels.h"

#if SPEC_X86
#include <emmintrin.h>
#endif

#define ISA "generic"
#define TABLE spec_product_generic
#define LANES 4
#define MAX_ROWS 4
#define ONE_WIDTH 1

typedef int32_t vi __attribute__((vector_size(16), may_alias));
typedef uint32_t vu __attribute__((vector_size(16), may_alias));
typedef float vf __attribute__((vector_size(16), may_alias));

static ALWAYS vf half_lanes(const uint8_t *at) {
    vf x;
    for (int i = 0; i < LANES; i++) x[i] = spec_half_float(spec_read16(at + 2 * i));
    return x;
}

static ALWAYS vf bfloat_lanes(const uint8_t *at) {
    vf x;
    for (int i = 0; i < LANES; i++) x[i] = spec_bfloat_float(spec_read16(at + 2 * i));
    return x;
}

static ALWAYS vf u8_lanes(const uint8_t *at) { return (vf){(float)at[0], (float)at[1], (float)at[2], (float)at[3]}; }

static ALWAYS vf s8_lanes(const uint8_t *at) {
    const int8_t *x = (const int8_t *)at;
    return (vf){(float)x[0], (float)x[1], (float)x[2], (float)x[3]};
}

static ALWAYS vi larger(vi a, vi b) {
    vi first = a > b;
    return (a & first) | (b & ~first);
}

static ALWAYS int32_t largest_lane(vi x) {
    int32_t top = x[0];
    for (int i = 1; i < LANES; i++) top = x[i] > top ? x[i] : top;
    return top;
}

static ALWAYS void half_sums(const vi *q, int32_t *sums) {
    for (int h = 0; h < 2; h++) {
        vi sum = q[4 * h] + q[4 * h + 1] + q[4 * h + 2] + q[4 * h + 3];
        sums[h] = sum[0] + sum[1] + sum[2] + sum[3];
    }
}

static ALWAYS vi pairs(vi a, vi b) {
#if SPEC_X86
    return (vi)_mm_madd_epi16((__m128i)a, (__m128i)b); /* SSE2: every x86-64 has it */
#else
    return (a << 16 >> 16) * (b << 16 >> 16) + (a >> 16) * (b >> 16);
#endif
}

#include "int16_rows.inc"

#include "quantise.inc"
#include "quantised_tile.inc"
#include "float_tile.inc"
#include "table.inc"
