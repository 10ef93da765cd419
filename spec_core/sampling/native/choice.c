/* Selects a table. */
#include "choice.h"

#include <stddef.h>
#include <string.h>

extern const choice_table choice_generic;
#if defined(__x86_64__)
extern const choice_table choice_avx512, choice_avx2;

static int has_avx512(void) {
    __builtin_cpu_init();
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}

static int has_avx2(void) {
    __builtin_cpu_init();
    return __builtin_cpu_supports("avx2");
}
#endif
#if defined(__aarch64__)
extern const choice_table choice_neon;
#endif

const choice_table *choice_of(const char *isa) {
#if defined(__x86_64__)
    if ((!isa || !strcmp(isa, "avx512")) && has_avx512()) return &choice_avx512;
    if ((!isa || !strcmp(isa, "avx2")) && has_avx2()) return &choice_avx2;
#endif
#if defined(__aarch64__)
    if (!isa || !strcmp(isa, "neon")) return &choice_neon;
#endif
    return !isa || !strcmp(isa, "generic") ? &choice_generic : NULL;
}
