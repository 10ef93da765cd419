/* The seeded choice of a token, and what else is read off a row of logits.
 *
 * spec_core/sampling/reference.py says the same in Python: every number here is made by the same IEEE operations in the
 * same order, or is an integer, so that both give the same token, to the bit, on every machine. */
#ifndef SPEC_CHOICE_H
#define SPEC_CHOICE_H

#include <stdint.h>

enum { CHOICE_FLOAT32, CHOICE_FLOAT64 };

/* A row [n] of one of the two types. */
typedef struct {
    const void *data;
    int kind;
    int32_t n;
} choice_row;

typedef struct {
    double temperature, top_p, min_p;
    int64_t top_k;
} choice_cuts;

/* Of noise: the key, and three words of the counter; the fourth is the token's. */
typedef struct {
    uint32_t key[2], t, stream, domain;
} choice_source;

typedef struct {
    double z;
    int32_t id;
} choice_place;

/* Memory that a call works in, for rows of up to n. adjusted: a row with bias and penalties; counts: zeros. */
typedef struct {
    int32_t n;
    choice_place *order;
    double *z, *adjusted;
    int32_t *ids, *some, *weights, *counts;
} choice_room;

/* What was chosen: its id and its logit, which says whether it is a choice at all. lead: distance of its score to the
 * next best one. */
typedef struct {
    int32_t id;
    double logit, lead;
} choice_made;

typedef struct {
    const char *isa;
    /* lead: whether that is wanted; else it is not found. The row is adjusted already. */
    choice_made (*choose)(choice_row row, const choice_cuts *cuts, const choice_source *source, int lead,
                          choice_room *room);
    /* The `count` best by the sum of z and noise, the best first: room->order, with that sum; how many there are. For a
       temperature above 0. Tokens that are banned are none of them. */
    int32_t (*best)(choice_row row, const choice_cuts *cuts, const choice_source *source, int32_t count,
                    choice_room *room);
    /* The support: room->ids in ascending order and room->z; how many. */
    int32_t (*support)(choice_row row, const choice_cuts *cuts, choice_room *room);
    /* The largest logit, its id, and the sum of all fine weights. */
    choice_made (*mass)(choice_row row, int64_t *total);
    /* The `count` likeliest, best first: room->order. The sum of all weights; 0 where the row is no distribution. */
    uint64_t (*likeliest)(choice_row row, int32_t count, choice_room *room);
    int32_t (*weight)(double z);
    /* Gumbel noise of all ids below n, or of those given. */
    void (*gumbel)(const choice_source *source, const int64_t *ids, int64_t n, double *out);
} choice_table;

/* NULL: not known, or not that of this processor. isa NULL: the best. */
const choice_table *choice_of(const char *isa);

/* Bits of a fine weight: exp(z) is rounded to a multiple of 2^-bits, so that sums of n are exact in 63 bits. */
static inline int choice_bits(int32_t n) {
    int length = n ? 32 - __builtin_clz((unsigned)n) : 0;
    return 62 - length < 50 ? 62 - length : 50;
}

#endif
