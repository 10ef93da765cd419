/* Arguments of a choice: one row, or the rows of a draft. */
#ifndef SPEC_CHOICE_JOB_H
#define SPEC_CHOICE_JOB_H

#include "choice.h"

typedef struct {
    const uint8_t *logits; /* the first row; rows are `stride` bytes apart */
    int64_t stride;
    choice_row row;
    choice_cuts cuts;
    choice_source source;
    double repetition, presence, frequency;
    int32_t *bias_ids;
    double *bias;
    int32_t biases;
    const uint32_t *masks; /* of the first row, `words` each: bit id % 32 of word id / 32; NULL: all are allowed */
    int32_t words;
    int32_t *history; /* prompt and output, with scratch for the draft; NULL if not needed */
    int32_t prompt, length;
    int32_t *ids, *parents, drafted; /* parents NULL: a chain */
    int32_t *path, kept;             /* result: indices in the draft */
    choice_made made;
} choice_job;

/* The row under the mask at `index`, with bias and penalties: the row itself if there are none, else scratch->adjusted. */
choice_row choice_adjusted(const choice_job *job, choice_row row, int32_t index, choice_scratch *scratch);

/* Follows the choices down the draft; sets path, kept and made. */
void choice_walk(choice_job *job, const choice_table *table, choice_scratch *scratch);

/* One choice from the first row, after the whole draft, which is a chain. */
void choice_draw(choice_job *job, const choice_table *table, choice_scratch *scratch);

#endif
