/* Layout of a cache and of scratch memory. */
#ifndef SPEC_LAYOUT_H
#define SPEC_LAYOUT_H

#include "ops.h"
#include "round_up.h"

#define SPEC_QUERIES 32   /* query rows for which a cache is read once */
#define SPEC_WIDENED 4096 /* elements of keys or values converted for them at once, but a tile at least */
#define SPEC_WIDENED_ROOM (SPEC_LANES * SPEC_MAX_HEAD)
#define SPEC_COLUMNS 64  /* columns of a gated delta state computed at once */
#define SPEC_Q8_BLOCK 32 /* dimensions of keys in a cache of kind Q8 that share a scale */
#define SPEC_Q8_CHUNK 64 /* positions whose weights share a scale in products with values of such a cache */

static inline int spec_blocks(int dim) { return (dim + SPEC_Q8_BLOCK - 1) / SPEC_Q8_BLOCK; }

/* Bytes of 16 keys, and of 16 values. */
static inline size_t spec_key_tile(int kind, int dim) {
    if (kind == SPEC_CACHE_Q8) return SPEC_LANES * (spec_round_up((size_t)dim, 4) + (size_t)spec_blocks(dim) * 2);
    return (size_t)dim * SPEC_LANES * (kind == SPEC_CACHE_F32 ? 4 : 2);
}

static inline size_t spec_value_tile(int kind, int dim) {
    size_t numbers = SPEC_LANES * spec_round_up((size_t)dim, SPEC_LANES);
    if (kind == SPEC_CACHE_Q8) return numbers + SPEC_LANES * sizeof(float);
    return numbers * (kind == SPEC_CACHE_F32 ? 4 : 2);
}

/* Bytes of one row of values; not of kind Q8, whose rows are not contiguous. */
static inline size_t spec_value_row(int kind, int dim) { return spec_value_tile(kind, dim) / SPEC_LANES; }

/* Stride of rows of scores: a multiple of 16, but not of the page size, which would cause cache conflicts. */
static inline size_t spec_scores(int places) { return spec_round_up((size_t)places, 512) + 16; }

#endif
