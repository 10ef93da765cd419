/* Rounding up, for all native code. */
#ifndef SPEC_ROUND_UP_H
#define SPEC_ROUND_UP_H

#include <stddef.h>

/* n rounded up to a multiple of `multiple`. */
static inline size_t spec_round_up(size_t n, size_t multiple) { return (n + multiple - 1) / multiple * multiple; }

#endif
