/* Products with NEON and its dot products of bytes (Armv8.2): 4 outputs by 8 rows in registers.
 *
 * vdot multiplies signed bytes with signed bytes, so codes of signed types are converted to their values
 * (code - 128, which flips the top bit), and their sums start at zero. It uses one of the four 32-bit lanes of a
 * register for all outputs: 16 inputs of a row are loaded at once and used with 4 code vectors. */
#include "kernels.h"

#if SPEC_ARM
#include <arm_neon.h>

#if defined(__clang__)
SPEC_TARGET_BEGIN("dotprod")
#else
SPEC_TARGET_BEGIN("arch=armv8.2-a+dotprod")
#endif

#define ISA "neon"
#define TABLE spec_product_neon
#define LANES 4
#define MAX_ROWS 8
#define ONE_WIDTH 0
#define SIGNED_CODES 1
#define TOGETHER 4
#include "lanes_neon.h"

#include "quantise.inc"
#include "quantised_tile.inc"
#include "float_tile.inc"
#include "table.inc"

SPEC_TARGET_END
#endif
