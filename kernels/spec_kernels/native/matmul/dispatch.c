/* Which table of products this machine uses. */
#include "kernels.h"
#include "processor.h"

#if SPEC_ARM && defined(__linux__)
#include <sys/auxv.h>
#define DOT_PRODUCT (1ul << 20)   /* HWCAP_ASIMDDP, missing in old headers */
#define BYTE_MATRICES (1ul << 13) /* HWCAP2_I8MM */
#elif SPEC_ARM && defined(__APPLE__)
#include <sys/sysctl.h>

static int reports(const char *feature) {
    int has = 0;
    size_t size = sizeof has;
    return sysctlbyname(feature, &has, &size, NULL, 0) == 0 && has;
}
#endif

#if SPEC_ARM
static int runs_neon(void) {
#if defined(__linux__)
    return (getauxval(AT_HWCAP) & DOT_PRODUCT) != 0;
#elif defined(__APPLE__)
    return reports("hw.optional.arm.FEAT_DotProd");
#elif defined(__ARM_FEATURE_DOTPROD)
    return 1; /* the state of the other registers is enabled, too */
#else
    return 0;
#endif
}
#endif

#if SPEC_I8MM
static int runs_i8mm(void) {
#if defined(__linux__)
    return runs_neon() && (getauxval(AT_HWCAP2) & BYTE_MATRICES) != 0;
#elif defined(__APPLE__)
    return runs_neon() && reports("hw.optional.arm.FEAT_I8MM");
#elif defined(__ARM_FEATURE_MATMUL_INT8)
    return runs_neon();
#else
    return 0;
#endif
}
#endif

static int runs_generic(void) { return 1; }

/* Best first. */
static const struct {
    const spec_product_table *table;
    int (*runs)(void);
} choices[] = {
#if SPEC_X86
    {&spec_product_avx512vnni, spec_runs_avx512vnni},
    {&spec_product_avx512, spec_runs_avx512},
#if SPEC_AVXVNNI
    {&spec_product_avxvnni, spec_runs_avxvnni},
#endif
    {&spec_product_avx2, spec_runs_avx2},
#endif
#if SPEC_I8MM
    {&spec_product_i8mm, runs_i8mm},
#endif
#if SPEC_ARM
    {&spec_product_neon, runs_neon},
#endif
    {&spec_product_generic, runs_generic},
};

const spec_product_table *spec_products(const char *isa) {
    for (size_t i = 0; i < sizeof choices / sizeof *choices; i++)
        if ((!isa || strcmp(isa, choices[i].table->isa) == 0) && choices[i].runs()) return choices[i].table;
    return NULL;
}
