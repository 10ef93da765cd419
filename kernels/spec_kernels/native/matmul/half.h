/* Conversion of float16 and bfloat16 to float32 and back, without special instructions. */
#ifndef SPEC_HALF_H
#define SPEC_HALF_H

#include <stdint.h>
#include <string.h>

static inline uint32_t spec_float_bits(float x) {
    uint32_t bits;
    memcpy(&bits, &x, 4);
    return bits;
}

static inline float spec_bits_float(uint32_t bits) {
    float x;
    memcpy(&x, &bits, 4);
    return x;
}

static inline uint16_t spec_read16(const uint8_t *p) { return (uint16_t)(p[0] | p[1] << 8); }

/* Exact for every float16: subnormal numbers are normal in float32. A signalling NaN becomes quiet, as in hardware. */
static inline float spec_half_float(uint16_t half) {
    uint32_t sign = (uint32_t)(half & 0x8000) << 16, exponent = half >> 10 & 31, fraction = half & 1023;
    if (exponent == 31) return spec_bits_float(sign | 0x7f800000 | fraction << 13 | (fraction ? 0x400000 : 0));
    if (exponent == 0) {
        float tiny = (float)fraction * 0x1p-24f;
        return sign ? -tiny : tiny;
    }
    return spec_bits_float(sign | (exponent + 112) << 23 | fraction << 13);
}

/* Rounded to nearest, ties to even. */
static inline uint16_t spec_float_half(float x) {
    uint32_t bits = spec_float_bits(x), sign = bits >> 16 & 0x8000, size = bits & 0x7fffffff;
    if (size > 0x7f800000) return (uint16_t)(sign | 0x7e00);
    if (size >= 0x477ff000) /* 65520: half way between the largest number and the next */
        return (uint16_t)(sign | 0x7c00);
    if (size < 0x38800000) { /* subnormal, in units of 2^-24: rounded by adding a float whose last bit is that unit */
        uint32_t units = spec_float_bits(spec_bits_float(size) + 0.5f) - 0x3f000000;
        return (uint16_t)(sign | units);
    }
    uint32_t rounded = size + 0xfff + (size >> 13 & 1);
    return (uint16_t)(sign | (rounded - 0x38000000) >> 13);
}

static inline float spec_bfloat_float(uint16_t half) { return spec_bits_float((uint32_t)half << 16); }

#endif
