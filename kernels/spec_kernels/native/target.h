/* Compiles a part of a file for instructions that some processors lack.
 *
 *     SPEC_TARGET_BEGIN("avx2,f16c")
 *     ... functions; include headers with intrinsics before ...
 *     SPEC_TARGET_END
 *
 * The dispatchers call such functions only where the processor has the instructions. */
#ifndef SPEC_TARGET_H
#define SPEC_TARGET_H

/* SPEC_PORTABLE compiles plain C only; tests compare it with the rest. */
#if defined(__x86_64__) && !defined(SPEC_PORTABLE)
#define SPEC_X86 1
#endif

/* Compilers that support AVX-VNNI. */
#if SPEC_X86 && (defined(__clang__) ? __clang_major__ >= 12 : __GNUC__ >= 11)
#define SPEC_AVXVNNI 1
#endif

#define SPEC_PRAGMA(...) _Pragma(#__VA_ARGS__)
#if defined(__clang__)
#define SPEC_TARGET_BEGIN(features) \
    SPEC_PRAGMA(clang attribute push(__attribute__((target(features))), apply_to = function))
#define SPEC_TARGET_END SPEC_PRAGMA(clang attribute pop)
#else
#define SPEC_TARGET_BEGIN(features) SPEC_PRAGMA(GCC push_options) SPEC_PRAGMA(GCC target(features))
#define SPEC_TARGET_END SPEC_PRAGMA(GCC pop_options)
#endif

#endif
