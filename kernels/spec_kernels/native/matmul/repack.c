/* Converts rows of a file's blocks to tiles (layout: tiles.h). */
#include <string.h>

#include "half.h"
#include "tiles.h"

static int possible(int type, int k) {
    return type >= 0 && type < SPEC_TYPES && k >= 1 && k <= SPEC_MAX_INPUTS && k % spec_formats[type].inputs == 0;
}

size_t spec_row_bytes(int type, int k) {
    if (!possible(type, k)) return 0;
    return (size_t)(k / spec_formats[type].inputs) * (size_t)spec_formats[type].bytes;
}

size_t spec_tile_bytes(int type, int k) {
    if (!possible(type, k)) return 0;
    if (spec_is_float(type)) return spec_round_up((size_t)k, 2) * SPEC_TILE * (size_t)spec_formats[type].bytes;
    return spec_scale_bytes(type, k) + (size_t)(k / SPEC_BLOCK) * (size_t)spec_formats[type].codes;
}

/* ---- One block of 32 inputs of one output: writes its codes to the lane at `lane` */

/* 4 bytes to each of count vectors. */
static void put_vectors(uint8_t *lane, const uint8_t *bytes, int count) {
    for (int v = 0; v < count; v++) memcpy(lane + 64 * v, bytes + 4 * v, 4);
}

/* codes: 32; their low four bits are used. */
static void put_nibbles(uint8_t *lane, const uint8_t *codes) {
    uint8_t bytes[16];
    for (int i = 0; i < 16; i++) bytes[i] = (uint8_t)((codes[i] & 15) | codes[16 + i] << 4);
    put_vectors(lane, bytes, 4);
}

/* Bits 4 j + i of fifth, j = 0 ... 7, as one byte: byte i of a lane. */
static uint8_t every_fourth(uint32_t fifth, int i) {
    uint32_t bits = fifth >> i & 0x11111111;
    bits = (bits | bits >> 3) & 0x03030303;
    bits = (bits | bits >> 6) & 0x000f000f;
    return (uint8_t)(bits | bits >> 12);
}

/* fifth: bit i is the fifth bit of input i. */
static void put_fifth(uint8_t *lane, uint32_t fifth) {
    uint8_t bytes[4];
    for (int i = 0; i < 4; i++) bytes[i] = every_fourth(fifth, i);
    put_vectors(lane + 256, bytes, 1);
}

/* codes: 32 of six bits each. */
static void put_six(uint8_t *lane, const uint8_t *codes) {
    uint8_t bytes[8];
    put_nibbles(lane, codes);
    for (int u = 0; u < 2; u++)
        for (int i = 0; i < 4; i++) {
            const uint8_t *c = codes + 16 * u + i;
            bytes[4 * u + i] = (uint8_t)(c[0] >> 4 | c[4] >> 4 << 2 | c[8] >> 4 << 4 | c[12] >> 4 << 6);
        }
    put_vectors(lane + 256, bytes, 2);
}

/* ---- One block of a file: writes its scales to column o of `scales`, its codes to `lane` */

static void put_q8_0(const uint8_t *block, uint8_t *scales, uint8_t *lane, int o) {
    uint8_t codes[32];
    memcpy(scales + 2 * o, block, 2);
    for (int i = 0; i < 32; i++) codes[i] = block[2 + i] ^ 0x80;
    put_vectors(lane, codes, 8);
}

static void put_q4_0(const uint8_t *block, uint8_t *scales, uint8_t *lane, int o) {
    memcpy(scales + 2 * o, block, 2);
    put_vectors(lane, block + 2, 4);
}

static void put_q4_1(const uint8_t *block, uint8_t *scales, uint8_t *lane, int o) {
    memcpy(scales + 2 * o, block, 2);
    memcpy(scales + 32 + 2 * o, block + 2, 2);
    put_vectors(lane, block + 4, 4);
}

static uint32_t read32(const uint8_t *p) { return spec_read16(p) | (uint32_t)spec_read16(p + 2) << 16; }

static void put_q5_0(const uint8_t *block, uint8_t *scales, uint8_t *lane, int o) {
    memcpy(scales + 2 * o, block, 2);
    put_fifth(lane, read32(block + 2));
    put_vectors(lane, block + 6, 4);
}

static void put_q5_1(const uint8_t *block, uint8_t *scales, uint8_t *lane, int o) {
    memcpy(scales + 2 * o, block, 2);
    memcpy(scales + 32 + 2 * o, block + 2, 2);
    put_fifth(lane, read32(block + 4));
    put_vectors(lane, block + 8, 4);
}

/* The 6-bit scales and mins of Q4_K and Q5_K, from the 12 bytes at p. */
static void put_k_scales(const uint8_t *block, uint8_t *scales, int o) {
    const uint8_t *p = block + 4;
    memcpy(scales + 2 * o, block, 2);
    memcpy(scales + 32 + 2 * o, block + 2, 2);
    for (int s = 0; s < 8; s++) {
        uint8_t *to = scales + 64 + 32 * s + o;
        to[0] = s < 4 ? p[s] & 63 : (uint8_t)((p[s + 4] & 15) | p[s - 4] >> 6 << 4);
        to[16] = s < 4 ? p[s + 4] & 63 : (uint8_t)(p[s + 4] >> 4 | p[s] >> 6 << 4);
    }
}

/* Nibbles of Q4_K and Q5_K: 32 bytes hold sub-block s in the low nibbles and s + 1 in the high ones. */
static void k_nibbles(const uint8_t *bytes, int s, uint8_t *codes) {
    for (int i = 0; i < 32; i++) codes[i] = (uint8_t)(bytes[32 * (s >> 1) + i] >> 4 * (s & 1) & 15);
}

static void put_q4_k(const uint8_t *block, uint8_t *scales, uint8_t *lane, int o) {
    uint8_t codes[32];
    put_k_scales(block, scales, o);
    for (int s = 0; s < 8; s++, lane += 256) {
        k_nibbles(block + 16, s, codes);
        put_nibbles(lane, codes);
    }
}

static void put_q5_k(const uint8_t *block, uint8_t *scales, uint8_t *lane, int o) {
    uint8_t codes[32];
    put_k_scales(block, scales, o);
    for (int s = 0; s < 8; s++, lane += 320) {
        uint32_t fifth = 0;
        for (int i = 0; i < 32; i++) fifth |= (uint32_t)(block[16 + i] >> s & 1) << i;
        k_nibbles(block + 48, s, codes);
        put_nibbles(lane, codes);
        put_fifth(lane, fifth);
    }
}

/* Sub-block s = 4 half + f of Q6_K: nibbles at 64 half + 32 (f & 1), low for f < 2; two bits at 32 half, f-th pair. */
static void six_codes(const uint8_t *block, int s, uint8_t *codes) {
    const uint8_t *low = block + 64 * (s >> 2) + 32 * (s & 1), *high = block + 128 + 32 * (s >> 2);
    int nibble = 4 * (s >> 1 & 1), pair = 2 * (s & 3);
    for (int i = 0; i < 32; i++) codes[i] = (uint8_t)((low[i] >> nibble & 15) | (high[i] >> pair & 3) << 4);
}

static void put_q6_k(const uint8_t *block, uint8_t *scales, uint8_t *lane, int o) {
    uint8_t codes[32];
    memcpy(scales + 2 * o, block + 208, 2);
    for (int s = 0; s < 16; s++) scales[32 + 16 * s + o] = block[192 + s];
    for (int s = 0; s < 8; s++, lane += 384) {
        six_codes(block, s, codes);
        put_six(lane, codes);
    }
}

typedef void (*put_block)(const uint8_t *block, uint8_t *scales, uint8_t *lane, int o);

static const put_block put[SPEC_F16] = {
    [SPEC_Q8_0] = put_q8_0, [SPEC_Q4_0] = put_q4_0, [SPEC_Q4_1] = put_q4_1, [SPEC_Q5_0] = put_q5_0,
    [SPEC_Q5_1] = put_q5_1, [SPEC_Q4_K] = put_q4_k, [SPEC_Q5_K] = put_q5_k, [SPEC_Q6_K] = put_q6_k,
};

/* ---- Rows */

static void put_row(int type, const uint8_t *row, int k, uint8_t *tile, int o) {
    spec_format f = spec_formats[type];
    uint8_t *scales = tile, *lane = tile + spec_scale_bytes(type, k) + 4 * o;
    for (int i = 0; i < k; i += f.inputs) {
        put[type](row, scales, lane, o);
        row += f.bytes;
        scales += f.scales;
        lane += f.codes * (f.inputs / SPEC_BLOCK);
    }
}

static void put_float_row(int size, const uint8_t *row, int k, uint8_t *tile, int o) {
    if (size == 4)
        for (int i = 0; i < k; i++) memcpy(tile + 64 * (size_t)i + 4 * o, row + 4 * (size_t)i, 4);
    else
        for (int i = 0; i < k; i++) memcpy(tile + 32 * (size_t)i + 2 * o, row + 2 * (size_t)i, 2);
}

/* The file's row of output o, or -1 for a row of zeros. */
static int32_t source(const int32_t *order, int n, int o) {
    if (o >= n) return -1;
    return order ? order[o] : o;
}

int spec_repack(int type, const uint8_t *rows, size_t row_bytes, const int32_t *order, int n, int k, uint8_t *tiles) {
    size_t bytes = spec_tile_bytes(type, k);
    if (!bytes || n < 1) return -1;
    for (int first = 0; first < n; first += SPEC_TILE, tiles += bytes) {
        memset(tiles, 0, bytes);
        for (int o = 0; o < SPEC_TILE; o++) {
            int32_t from = source(order, n, first + o);
            if (from < 0) continue;
            const uint8_t *row = rows + (size_t)from * row_bytes;
            if (spec_is_float(type)) put_float_row(spec_formats[type].bytes, row, k, tiles, o);
            else put_row(type, row, k, tiles, o);
        }
    }
    return 0;
}

/* ---- Floats to Q8_0 */

/* To the nearest integer, halves away from zero; |x| < 2^31. The difference of x and its integer part is exact. */
static int nearest(float x) {
    int whole = (int)x;
    float rest = x - (float)whole;
    return whole + (rest >= 0.5f) - (rest <= -0.5f);
}

static uint32_t largest(const float *x) {
    uint32_t top = 0;
    for (int i = 0; i < SPEC_BLOCK; i++) {
        uint32_t size = spec_float_bits(x[i]) & 0x7fffffff;
        top = size > top ? size : top;
    }
    return top;
}

/* 32 floats as a block of a file. Compared as bits: NaN > infinity > every number. */
static void quantise_block(const float *x, uint8_t *block) {
    uint32_t top = largest(x);
    int finite = top < 0x7f800000;
    float d = finite ? spec_bits_float(top) / 127.0f : spec_bits_float(0x7fc00000);
    float inverse = finite && d != 0.0f ? 1.0f / d : 0.0f;
    uint16_t half = spec_float_half(d);
    memcpy(block, &half, 2);
    for (int i = 0; i < SPEC_BLOCK; i++) {
        float q = finite ? x[i] * inverse : 0.0f;
        /* The inverse of a subnormal d may be infinite. */
        block[2 + i] = (uint8_t)(int8_t)(q > -128.0f && q < 128.0f ? nearest(q) : 0);
    }
}

int spec_requantise_q8_0(const float *rows, size_t stride, const int32_t *order, int n, int k, uint8_t *tiles) {
    size_t bytes = spec_tile_bytes(SPEC_Q8_0, k), codes = spec_scale_bytes(SPEC_Q8_0, k >= 1 ? k : 1);
    uint8_t block[34];
    if (!bytes || n < 1) return -1;
    for (int first = 0; first < n; first += SPEC_TILE, tiles += bytes) {
        memset(tiles, 0, bytes);
        for (int o = 0; o < SPEC_TILE; o++) {
            int32_t from = source(order, n, first + o);
            if (from < 0) continue;
            for (int b = 0; b < k / SPEC_BLOCK; b++) {
                quantise_block(rows + (size_t)from * stride + SPEC_BLOCK * (size_t)b, block);
                put_q8_0(block, tiles + 32 * (size_t)b, tiles + codes + 512 * (size_t)b + 4 * o, o);
            }
        }
    }
    return 0;
}
