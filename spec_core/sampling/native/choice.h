/* The seeded choice of a token, and other functions of a row of logits.
 *
 * The same in Python: spec_core/sampling/reference.py. Every number is computed by the same IEEE operations in the same
 * order, or is an integer, so both choose the same tokens, bit for bit, on every machine. */
#ifndef SPEC_CHOICE_H
#define SPEC_CHOICE_H

#include <stdint.h>

enum { CHOICE_FLOAT32, CHOICE_FLOAT64 };

/* A row [n] of float32 or float64. */
typedef struct {
    const void *data;
    int kind;
    int32_t n;
} choice_row;

typedef struct {
    double temperature, top_p, min_p;
    int64_t top_k;
} choice_cuts;

/* Noise: the key, and three words of the counter; the fourth is that of the token. */
typedef struct {
    uint32_t key[2], t, stream, domain;
} choice_source;

typedef struct {
    double z;
    int32_t id;
} choice_place;

/* Scratch memory of a call, for rows of up to n. adjusted: a row with bias and penalties; counts: zeros. */
typedef struct {
    int32_t n;
    choice_place *order;
    double *z, *adjusted;
    int32_t *ids, *some, *weights, *counts;
} choice_scratch;

/* The chosen token and its logit, which is NaN or infinite if nothing can be chosen. lead: difference of its score to
 * the second best. */
typedef struct {
    int32_t id;
    double logit, lead;
} choice_made;

typedef struct {
    const char *isa;
    /* lead: whether to compute it. The row has bias and penalties already. */
    choice_made (*choose)(choice_row row, const choice_cuts *cuts, const choice_source *source, int lead,
                          choice_scratch *scratch);
    /* The `count` best by the sum of z and noise, best first, with that sum, in scratch->order; returns their number.
       Temperature above 0. Banned tokens are left out. */
    int32_t (*best)(choice_row row, const choice_cuts *cuts, const choice_source *source, int32_t count,
                    choice_scratch *scratch);
    /* The support: scratch->ids, ascending, and scratch->z; returns its size. */
    int32_t (*support)(choice_row row, const choice_cuts *cuts, choice_scratch *scratch);
    /* The largest logit, its id, and the sum of all fine weights. */
    choice_made (*mass)(choice_row row, int64_t *total);
    /* The `count` likeliest, best first, in scratch->order. Returns the sum of all weights; 0 if the row is not a
       distribution. */
    uint64_t (*likeliest)(choice_row row, int32_t count, choice_scratch *scratch);
    int32_t (*weight)(double z);
    /* Gumbel noise of all ids below n, or of the given ids. */
    void (*gumbel)(const choice_source *source, const int64_t *ids, int64_t n, double *out);
} choice_table;

/* NULL if unknown or not supported by this processor. isa NULL: the best. */
const choice_table *choice_of(const char *isa);

/* Bits of a fine weight: exp(z) is rounded to a multiple of 2^-bits, so that sums of n are exact in 63 bits. */
static inline int choice_bits(int32_t n) {
    int length = n ? 32 - __builtin_clz((unsigned)n) : 0;
    return 62 - length < 50 ? 62 - length : 50;
}

#endif
