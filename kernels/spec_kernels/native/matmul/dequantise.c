/* One row of a matrix in tiles, as floats: the same operations in the same order as for the file's blocks. */
#include <string.h>

#include "half.h"
#include "tiles.h"

/* One lane of one block of 32 inputs. */
static int nibble(const uint8_t *lane, int i) { return lane[64 * (i >> 2 & 3) + (i & 3)] >> 4 * (i >> 4) & 15; }

static int fifth(const uint8_t *lane, int i) { return (lane[256 + (i & 3)] >> (i >> 2) & 1) << 4; }

static int fifth_sixth(const uint8_t *lane, int i) {
    return (lane[256 + 64 * (i >> 4) + (i & 3)] >> 2 * (i >> 2 & 3) & 3) << 4;
}

static int code(int type, const uint8_t *lane, int i) {
    switch (type) {
    case SPEC_Q8_0: return lane[64 * (i >> 2) + (i & 3)];
    case SPEC_Q5_0:
    case SPEC_Q5_1:
    case SPEC_Q5_K: return nibble(lane, i) | fifth(lane, i);
    case SPEC_Q6_K: return nibble(lane, i) | fifth_sixth(lane, i);
    default: return nibble(lane, i);
    }
}

static float half_at(const uint8_t *scales, int o) { return spec_half_float(spec_read16(scales + 2 * o)); }

/* out = d (code - zero) + m, for inputs from ... to of a block; types without a minimum have m = 0. */
static void numbers(int type, const uint8_t *lane, int from, int to, float d, int zero, float *out) {
    for (int i = from; i < to; i++) out[i] = d * (float)(code(type, lane, i) - zero);
}

static void add(float *out, float m) {
    for (int i = 0; i < SPEC_BLOCK; i++) out[i] = out[i] + m;
}

/* Q4_K, Q5_K: d scale q - dmin min, sub-block s of 8. */
static void k_block(int type, const uint8_t *scales, const uint8_t *lane, int s, int o, float *out) {
    const uint8_t *at = scales + 64 + 32 * s + o;
    numbers(type, lane, 0, SPEC_BLOCK, half_at(scales, o) * (float)at[0], 0, out);
    add(out, -(half_at(scales + 32, o) * (float)at[16]));
}

/* Q6_K: d scale (q - 32), one scale per 16 inputs. */
static void six_block(const uint8_t *scales, const uint8_t *lane, int s, int o, float *out) {
    for (int h = 0; h < 2; h++) {
        float d = half_at(scales, o) * (float)(int8_t)scales[32 + 16 * (2 * s + h) + o];
        numbers(SPEC_Q6_K, lane, 16 * h, 16 * h + 16, d, 32, out);
    }
}

static void block(int type, const uint8_t *scales, const uint8_t *lane, int s, int o, float *out) {
    switch (type) {
    case SPEC_Q8_0: numbers(type, lane, 0, SPEC_BLOCK, half_at(scales, o), 128, out); break;
    case SPEC_Q4_0: numbers(type, lane, 0, SPEC_BLOCK, half_at(scales, o), 8, out); break;
    case SPEC_Q5_0: numbers(type, lane, 0, SPEC_BLOCK, half_at(scales, o), 16, out); break;
    case SPEC_Q4_1:
    case SPEC_Q5_1:
        numbers(type, lane, 0, SPEC_BLOCK, half_at(scales, o), 0, out);
        add(out, half_at(scales + 32, o));
        break;
    case SPEC_Q6_K: six_block(scales, lane, s, o, out); break;
    default: k_block(type, scales, lane, s, o, out);
    }
}

static float float_at(int type, const uint8_t *tile, size_t at) {
    float x;
    if (type == SPEC_F16) return spec_half_float(spec_read16(tile + 2 * at));
    if (type == SPEC_BF16) return spec_bfloat_float(spec_read16(tile + 2 * at));
    memcpy(&x, tile + 4 * at, 4);
    return x;
}

void spec_row(const spec_weight *w, int row, float *out) {
    const uint8_t *tile = w->data + (size_t)(row / SPEC_TILE) * w->tile_bytes;
    int o = row % SPEC_TILE;
    if (spec_is_float(w->type)) {
        for (int i = 0; i < w->k; i++) out[i] = float_at(w->type, tile, (size_t)i * SPEC_TILE + (size_t)o);
        return;
    }
    spec_format f = spec_formats[w->type];
    const uint8_t *lane = tile + spec_scale_bytes(w->type, w->k) + 4 * o;
    int sub = f.inputs / SPEC_BLOCK;
    for (int b = 0; b < w->k / SPEC_BLOCK; b++, lane += f.codes, out += SPEC_BLOCK)
        block(w->type, tile + (size_t)(b / sub) * (size_t)f.scales, lane, b % sub, o, out);
}
