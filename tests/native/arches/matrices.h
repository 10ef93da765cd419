/* Random matrices of any stored type, in tiles. */
#ifndef MATRICES_H
#define MATRICES_H

#include "matmul/product.h"
#include "trials.h"

/* Where a block of a type has float16 numbers; -1 is none. */
static const struct {
    int inputs, bytes, halves[2];
} blocks[SPEC_TYPES] = {
    [SPEC_Q8_0] = {32, 34, {0, -1}},  [SPEC_Q4_0] = {32, 18, {0, -1}},     [SPEC_Q4_1] = {32, 20, {0, 2}},
    [SPEC_Q5_0] = {32, 22, {0, -1}},  [SPEC_Q5_1] = {32, 24, {0, 2}},      [SPEC_Q4_K] = {256, 144, {0, 2}},
    [SPEC_Q5_K] = {256, 176, {0, 2}}, [SPEC_Q6_K] = {256, 210, {208, -1}}, [SPEC_F16] = {1, 2, {0, -1}},
    [SPEC_BF16] = {1, 2, {-1, -1}},   [SPEC_F32] = {1, 4, {-1, -1}},
};

/* A file's rows: any codes, and scales of about 2^-10, of both signs; with `any` whatever bytes there are. The first
 * row of float32 is subnormal: a forward takes it for zeros, a product alone does not. */
static inline uint8_t *file_rows(draws *d, int type, int n, int k, int any) {
    size_t bytes = spec_row_bytes(type, k) * (size_t)n;
    uint8_t *rows = room(bytes);
    for (size_t i = 0; i < bytes; i++) rows[i] = (uint8_t)(word(d) >> 40);
    for (size_t i = 0; i < bytes && !any; i += (size_t)blocks[type].bytes) {
        for (int h = 0; h < 2; h++)
            if (blocks[type].halves[h] >= 0) {
                uint16_t half = (uint16_t)between(d, 0x1000, 0x17ff);
                if (toss(d)) half |= 0x8000;
                if (type == SPEC_F16) half = (uint16_t)(half + 0x1800); /* the number itself: about 2^-4 */
                memcpy(rows + i + blocks[type].halves[h], &half, 2);
            }
        if (type == SPEC_BF16 || type == SPEC_F32) {
            float x = number(d) * (type == SPEC_F32 && i < spec_row_bytes(type, k) ? 0x1p-135f : 0x1p-4f);
            memcpy(rows + i, (uint8_t *)&x + 4 - blocks[type].bytes, (size_t)blocks[type].bytes);
        }
    }
    return rows;
}

static inline spec_weight matrix(draws *d, int type, int n, int k, int any) {
    spec_weight w = {.type = type, .n = n, .k = k, .tiles = (n + 15) / 16, .tile_bytes = spec_tile_bytes(type, k)};
    uint8_t *tiles = room((size_t)w.tiles * w.tile_bytes);
    if (spec_repack(type, file_rows(d, type, n, k, any), spec_row_bytes(type, k), NULL, n, k, tiles)) abort();
    w.data = tiles;
    return w;
}

#endif
