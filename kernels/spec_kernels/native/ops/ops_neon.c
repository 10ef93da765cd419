/* The table for NEON, which every aarch64 has. */
#if defined(__aarch64__) && !defined(SPEC_PORTABLE)
#define SPEC_ISA "neon"
#define SPEC_WIDTH 4
#define SPEC_NEON 1
#define SPEC_TABLE spec_ops_neon
#include "table.inc"
#endif
