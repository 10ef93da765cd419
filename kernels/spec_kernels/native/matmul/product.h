/* Products of rows with matrices that keep the blocks of their file.
 *
 *     y[r][o] = sum over i of W[o][i] * x[r][i]
 *
 * A matrix is repacked once into tiles of 16 outputs (tiles.h documents their layout).
 * Rows are quantised once per width (8 or 15 bits) and multiplied with any number of matrices.
 *
 * The bits of y[r] depend on W and x[r] alone: not on other rows, the tiles computed in one call, the thread or the
 * instruction set. Integer sums are exact; floats are added block after block, multiplied and added, never fused.
 *
 * These functions allocate nothing, keep nothing and check nothing: the caller must meet the documented conditions. */
#ifndef SPEC_PRODUCT_H
#define SPEC_PRODUCT_H

#include <stddef.h>
#include <stdint.h>

/* Outputs of a tile. */
#define SPEC_TILE 16

enum spec_type {
    SPEC_Q8_0,
    SPEC_Q4_0,
    SPEC_Q4_1,
    SPEC_Q5_0,
    SPEC_Q5_1,
    SPEC_Q4_K,
    SPEC_Q5_K,
    SPEC_Q6_K,
    SPEC_F16,
    SPEC_BF16,
    SPEC_F32,
    SPEC_TYPES
};

/* A matrix [n, k] in tiles: tile t holds the outputs 16 t ... 16 t + 15, those from n on are zeros.
 * tiles = ceil(n / 16); tile_bytes = spec_tile_bytes(type, k), a multiple of 64; data is 64-byte aligned and holds
 * tiles * tile_bytes bytes. */
typedef struct {
    int32_t type, n, k, tiles;
    size_t tile_bytes;
    const uint8_t *data;
} spec_weight;

/* ---- Matrices (repack.c, dequantise.c): the same on every instruction set */

/* Bytes of one tile; 0 if the type does not support k inputs, k < 1, or the type is unknown.
 * Q4_K, Q5_K, Q6_K: k a multiple of 256. Other quantised types: of 32. Floats: any. k at most 2^24. */
size_t spec_tile_bytes(int type, int k);

/* Bytes of a row of k inputs in a file; 0 as above. */
size_t spec_row_bytes(int type, int k);

/* Converts a file's rows to tiles. tiles: ceil(n / 16) * spec_tile_bytes(type, k) bytes; all are written.
 * rows: the first row; rows are row_bytes apart (at least spec_row_bytes), at any alignment, little-endian.
 * order: indices of the n rows to take, -1 for a row of zeros; NULL: 0 ... n - 1.
 * Returns 0, or -1 if spec_tile_bytes is 0 or n < 1. */
int spec_repack(int type, const uint8_t *rows, size_t row_bytes, const int32_t *order, int n, int k, uint8_t *tiles);

/* Converts rows of floats to Q8_0 tiles: d = amax / 127 as float16, q = x / d rounded half away from zero, like ggml.
 * stride: floats from row to row. A block with an infinity or a NaN becomes NaN. Otherwise as spec_repack. */
int spec_requantise_q8_0(const float *rows, size_t stride, const int32_t *order, int n, int k, uint8_t *tiles);

/* Row `row` (0 <= row < 16 * tiles) as k floats, bit for bit the dequantised blocks of the file. */
void spec_row(const spec_weight *w, int row, float *out);

/* ---- Rows and products: one table per instruction set */

/* qrows are quantised rows. Their bits:
 *   8, 15  for quantised types; k a multiple of 32. Per block of 32: d = amax / 127 or amax / 16319, q = rne(x / d).
 *          A block with amax below 1e-30 is zero; a block with an infinity or a NaN makes the row's outputs NaN.
 *   32     for F16, BF16, F32: the floats unchanged; any k. The product is summed in float32.
 * Their layout depends on the table that made them; they are 64-byte aligned. */
typedef struct {
    const char *isa;

    /* Bytes of `rows` quantised rows, a multiple of 64. */
    size_t (*rows_bytes)(int k, int bits, int rows);

    /* x: rows of k floats, stride floats apart, to quantised rows. rows >= 1. */
    void (*quantise)(const float *x, size_t stride, int rows, int k, int bits, void *qrows);

    /* Copies the quantised rows which[0 .. count-1] of `rows` rows (experts select their rows this way).
     * count >= 1; which may repeat; out does not overlap qrows. */
    void (*gather)(const void *qrows, int rows, int k, int bits, const int32_t *which, int count, void *out);

    /* y[t - first][r][16] for the tiles t = first ... first + count - 1 and all rows; padded outputs are 0 (NaN in
     * a row that has one). y: any alignment. qrows: w->k inputs, bits 8 or 15 for quantised types and 32 for floats.
     * Prefetches w->data beyond its end, too, so weights should be stored in the order in which they are used. */
    void (*product)(const spec_weight *w, int first, int count, const void *qrows, int bits, int rows, float *y);
} spec_product_table;

/* isa: "avx512vnni", "avx512", "avxvnni", "avx2", "i8mm", "neon" (with dot products), "generic", or NULL for the best
 * one of this processor. Returns NULL if the processor or the build does not support it. Tables are never freed. */
const spec_product_table *spec_products(const char *isa);

#endif
