/* What an x86-64 processor can run. */
#ifndef SPEC_PROCESSOR_H
#define SPEC_PROCESSOR_H

#include "target.h"

#if SPEC_X86
#if SPEC_AVXVNNI
#include <cpuid.h>
#endif

/* Every processor with AVX2 has F16C, but not every emulator. */
static inline int spec_runs_avx2(void) {
    __builtin_cpu_init();
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("f16c");
}

static inline int spec_runs_avx512(void) {
    __builtin_cpu_init();
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}

static inline int spec_runs_avx512vnni(void) { return spec_runs_avx512() && __builtin_cpu_supports("avx512vnni"); }

#if SPEC_AVXVNNI
/* Leaf 7.1, EAX bit 4: some compilers' __builtin_cpu_supports does not know the name. */
static inline int spec_runs_avxvnni(void) {
    unsigned a, b, c, d;
    return spec_runs_avx2() && __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a >> 4 & 1);
}
#endif
#endif

#endif
