/* Tables of instruction sets that the processor of the tests lacks: there to be linked, never asked for. */
#include "matmul/kernels.h"
#include "ops/ops.h"

#ifdef NO_PRODUCT_AVX2
const spec_product_table spec_product_avx2 = {.isa = "avx2"};
#endif
#ifdef NO_PRODUCT_AVX512
const spec_product_table spec_product_avx512 = {.isa = "avx512"};
#endif
#ifdef NO_PRODUCT_AVXVNNI
const spec_product_table spec_product_avxvnni = {.isa = "avxvnni"};
#endif
#ifdef NO_PRODUCT_AVX512VNNI
const spec_product_table spec_product_avx512vnni = {.isa = "avx512vnni"};
#endif

#ifdef NO_OPS_AVX2
extern const spec_ops_table spec_ops_avx2;
const spec_ops_table spec_ops_avx2 = {.isa = "avx2"};
#endif
#ifdef NO_OPS_AVX512
extern const spec_ops_table spec_ops_avx512;
const spec_ops_table spec_ops_avx512 = {.isa = "avx512"};
#endif
#ifdef NO_OPS_AVXVNNI
extern const spec_ops_table spec_ops_avxvnni;
const spec_ops_table spec_ops_avxvnni = {.isa = "avxvnni"};
#endif
#ifdef NO_OPS_AVX512VNNI
extern const spec_ops_table spec_ops_avx512vnni;
const spec_ops_table spec_ops_avx512vnni = {.isa = "avx512vnni"};
#endif
