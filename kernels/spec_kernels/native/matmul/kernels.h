/* Shared by the files of all instruction sets: their tables, prefetch distances and compiler options. */
#ifndef SPEC_KERNELS_H
#define SPEC_KERNELS_H

#include <string.h>

#include "half.h"
#include "target.h"
#include "tiles.h"

/* Prefetch distance in bytes from the current tile: for more than two rows, and for up to two. */
#define AHEAD 16384
#define AHEAD_FEW 8192
/* Bytes of tiles that all groups of rows use in turn while the tiles are in the L1 cache. */
#define CACHED 16384

/* Compilers that can enable dot products of bytes for one file, or have them enabled everywhere. */
#if defined(__aarch64__) && !defined(SPEC_PORTABLE) && \
    (!defined(__clang__) || __clang_major__ >= 16 || defined(__ARM_FEATURE_DOTPROD))
#define SPEC_ARM 1
#endif

/* Compilers that support i8mm. */
#if SPEC_ARM && (defined(__clang__) || __GNUC__ >= 10)
#define SPEC_I8MM 1
extern const spec_product_table spec_product_i8mm;
#endif

#if SPEC_AVXVNNI
extern const spec_product_table spec_product_avxvnni;
#endif
#if SPEC_X86
extern const spec_product_table spec_product_avx512vnni, spec_product_avx512, spec_product_avx2;
#endif
#if SPEC_ARM
extern const spec_product_table spec_product_neon;
#endif
extern const spec_product_table spec_product_generic;

/* A kernel is compiled as one function for each type, number of bits and number of rows. */
#define ALWAYS inline __attribute__((always_inline))
#if defined(__clang__)
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 8")
#endif

#endif
