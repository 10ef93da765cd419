/* The table for NEON, which every aarch64 has. */
#if defined(__aarch64__)
#include <arm_neon.h>

#include "choice.h"

#define CHOICE_ISA "neon"
#define CHOICE_TABLE choice_neon
#define ALWAYS inline __attribute__((always_inline))
#define LANES 2
#define product(a, factor) (words) vmull_n_u32(vmovn_u64((uint64x2_t)(a)), factor)
#include "choice.inc"
#endif
