/* Products with AVX-512 without dot products of bytes: 16 outputs by 8 rows in registers. */
#include "kernels.h"

#if SPEC_X86
#include <immintrin.h>

SPEC_TARGET_BEGIN("avx512f,avx512bw,avx512dq,avx512vl")

#define ISA "avx512"
#define TABLE spec_product_avx512
#define LANES 16
#define MAX_ROWS 8
#define ONE_WIDTH 1
#include "lanes_avx512.h"

static ALWAYS vi pairs(vi a, vi b) { return (vi)_mm512_madd_epi16((__m512i)a, (__m512i)b); }

#include "int16_rows.inc"

#include "quantise.inc"
#include "quantised_tile.inc"
#include "float_tile.inc"
#include "table.inc"

SPEC_TARGET_END
#endif
