/* The table for any processor, in plain C. */
#define SPEC_ISA "generic"
#define SPEC_WIDTH 4
#define SPEC_TABLE spec_ops_generic
#include "table.inc"
