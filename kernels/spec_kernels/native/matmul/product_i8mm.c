/* Products with NEON and its products of 2 by 8 bytes with 8 by 2 (i8mm, optional from Armv8.2 on): 4 outputs by 8 rows
 * in registers, as pairs of rows. An odd last row takes the dot products of product_neon.c. */
#include "kernels.h"

#if SPEC_I8MM
#include <arm_neon.h>

#if defined(__clang__)
SPEC_TARGET_BEGIN("dotprod,i8mm")
#else
SPEC_TARGET_BEGIN("arch=armv8.2-a+dotprod+i8mm")
#endif

#define ISA "i8mm"
#define TABLE spec_product_i8mm
#define LANES 4
#define MAX_ROWS 8
#define ONE_WIDTH 0
#define SIGNED_CODES 1
#define ROW_PAIRS 1
#define TOGETHER 4
#include "lanes_neon.h"

/* Row 0 with outputs 0 and 1, then row 1 with the same outputs: sums of 8 products of bytes. */
static ALWAYS vi multiply_pairs(vi sum, const uint8_t *two_rows, vu two_outputs) {
    return (vi)vmmlaq_s32((int32x4_t)sum, vld1q_s8((const int8_t *)two_rows), (int8x16_t)two_outputs);
}

/* Code vectors of inputs 4 j ... and 4 j + 4 ... to 8 inputs of outputs 0 and 1, or of 2 and 3. */
static ALWAYS vu first_outputs(vu a, vu b) { return (vu)vzip1q_u32((uint32x4_t)a, (uint32x4_t)b); }

static ALWAYS vu last_outputs(vu a, vu b) { return (vu)vzip2q_u32((uint32x4_t)a, (uint32x4_t)b); }

/* One row of a pair: outputs 0 and 1 from a, 2 and 3 from b. */
static ALWAYS vi even_row(vi a, vi b) { return (vi)vzip1q_s64((int64x2_t)a, (int64x2_t)b); }

static ALWAYS vi odd_row(vi a, vi b) { return (vi)vzip2q_s64((int64x2_t)a, (int64x2_t)b); }

#include "quantise.inc"
#include "row_pairs.inc"
#include "quantised_tile.inc"
#include "float_tile.inc"
#include "table.inc"

SPEC_TARGET_END
#endif
