/* Layout of a tile: 16 outputs of a matrix, k inputs.
 *
 * Quantised types: the scales, padded to 64 bytes, then the integers, block after block of 32 inputs. The 32-bit lane o
 * of a 64-byte vector belongs to output o, so that a dot product of bytes sums within an output.
 *
 *   codes      byte 4 o + i of code vector j (0 ... 7) is output o, input 4 j + i of the block
 *   Q8_0       8 vectors: code = weight + 128
 *   nibbles    4 vectors: vector v has code vector v in its low nibbles and v + 4 in its high ones
 *   Q5_*       nibbles, then 1 vector: bit j of a byte is the fifth bit of code vector j
 *   Q6_K       nibbles, then 2 vectors: bits 2 g and 2 g + 1 of vector u are bits 4 and 5 of code vector 4 u + g
 *
 *   scales     d is the scale of a block: [16] float16
 *     Q8_0, Q4_0, Q5_0    per block: d
 *     Q4_1, Q5_1          per block: d, m
 *     Q4_K, Q5_K          per 256: d, dmin, then 8 times (scale [16] uint8, min [16] uint8)
 *     Q6_K                per 256: d, then 16 times scale [16] int8, one per 16 inputs
 *
 * Floats: [k, rounded up to a multiple of 2][16]. */
#ifndef SPEC_TILES_H
#define SPEC_TILES_H

#include "product.h"
#include "round_up.h"

#define SPEC_BLOCK 32
#define SPEC_MAX_INPUTS (1 << 24)

/* inputs, bytes: of a block of the file; scales: bytes of its scales in a tile; codes: bytes of 32 inputs of a tile. */
typedef struct {
    int inputs, bytes, scales, codes;
} spec_format;

static const spec_format spec_formats[SPEC_TYPES] = {
    [SPEC_Q8_0] = {32, 34, 32, 512},    [SPEC_Q4_0] = {32, 18, 32, 256},    [SPEC_Q4_1] = {32, 20, 64, 256},
    [SPEC_Q5_0] = {32, 22, 32, 320},    [SPEC_Q5_1] = {32, 24, 64, 320},    [SPEC_Q4_K] = {256, 144, 320, 256},
    [SPEC_Q5_K] = {256, 176, 320, 320}, [SPEC_Q6_K] = {256, 210, 288, 384}, [SPEC_F16] = {1, 2, 0, 0},
    [SPEC_BF16] = {1, 2, 0, 0},         [SPEC_F32] = {1, 4, 0, 0},
};

static inline int spec_is_float(int type) { return type >= SPEC_F16; }

/* Offset of the integers in a tile of a quantised type. */
static inline size_t spec_scale_bytes(int type, int k) {
    return spec_round_up((size_t)(k / spec_formats[type].inputs) * (size_t)spec_formats[type].scales, 64);
}

#endif
