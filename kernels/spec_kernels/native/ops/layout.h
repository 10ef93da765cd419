/* Layout of a cache and of scratch memory. */
#ifndef SPEC_LAYOUT_H
#define SPEC_LAYOUT_H

#include "ops.h"
#include "round_up.h"

#define SPEC_QUERIES 32   /* query rows for which a cache is read once */
#define SPEC_WIDENED 4096 /* elements of keys or values converted for them at once: a tile of SPEC_MAX_HEAD */
#define SPEC_COLUMNS 64   /* columns of a gated delta state computed at once */
#define SPEC_Q8_BLOCK 32  /* dimensions of a cache of kind Q8 that share a scale */

static inline int spec_blocks(int dim) { return (dim + SPEC_Q8_BLOCK - 1) / SPEC_Q8_BLOCK; }

/* Bytes of a tile of 16 keys, and of one row of values. */
static inline size_t spec_key_tile(int kind, int dim) {
    size_t numbers = (size_t)dim * SPEC_LANES;
    if (kind == SPEC_CACHE_Q8) return numbers + (size_t)spec_blocks(dim) * SPEC_LANES * 2;
    return numbers * (kind == SPEC_CACHE_F32 ? 4 : 2);
}

static inline size_t spec_value_row(int kind, int dim) {
    size_t numbers = spec_round_up((size_t)dim, SPEC_LANES);
    if (kind == SPEC_CACHE_Q8) return spec_round_up(numbers + (size_t)spec_blocks(dim) * 2, 4);
    return numbers * (kind == SPEC_CACHE_F32 ? 4 : 2);
}

/* Stride of rows of scores: a multiple of 16, but not of the page size, which would cause cache conflicts. */
static inline size_t spec_scores(int places) { return spec_round_up((size_t)places, 512) + 16; }

#endif
