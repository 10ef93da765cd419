/* What the files of all instruction sets share: their tables, how far they prefetch, how they are compiled. */
#ifndef SPEC_KERNELS_H
#define SPEC_KERNELS_H

#include <string.h>

#include "half.h"
#include "target.h"
#include "tiles.h"

/* Bytes from the tile in use to the memory that is prefetched: for more than two rows, and for up to two. */
#define AHEAD 16384
#define AHEAD_FEW 8192
/* Bytes of tiles that groups of rows pass over in turn while they are in the first cache. */
#define CACHED 16384

/* SPEC_PORTABLE leaves everything out that is not plain C: tests compare it with the rest. */
#if defined(__x86_64__) && !defined(SPEC_PORTABLE)
#define SPEC_X86 1
#endif

/* Where a compiler can be told to use dot products of bytes in one file, or uses them everywhere. */
#if defined(__aarch64__) && !defined(SPEC_PORTABLE) && \
    (!defined(__clang__) || __clang_major__ >= 16 || defined(__ARM_FEATURE_DOTPROD))
#define SPEC_ARM 1
#endif

/* Compilers that know i8mm. */
#if SPEC_ARM && (defined(__clang__) || __GNUC__ >= 10)
#define SPEC_I8MM 1
extern const spec_product_table spec_product_i8mm;
#endif

/* Compilers that know AVX-VNNI. */
#if SPEC_X86 && (defined(__clang__) ? __clang_major__ >= 12 : __GNUC__ >= 11)
#define SPEC_AVXVNNI 1
extern const spec_product_table spec_product_avxvnni;
#endif

#if SPEC_X86
extern const spec_product_table spec_product_avx512vnni, spec_product_avx512, spec_product_avx2;
#endif
#if SPEC_ARM
extern const spec_product_table spec_product_neon;
#endif
extern const spec_product_table spec_product_generic;

/* A kernel is one function: what its types, bits and rows decide is decided when it is compiled. */
#define ALWAYS inline __attribute__((always_inline))
#if defined(__clang__)
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 8")
#endif

#endif
