/* One row, or the rows of a draft, to choose from: what Python gives, as numbers. */
#ifndef SPEC_CHOICE_JOB_H
#define SPEC_CHOICE_JOB_H

#include "choice.h"

typedef struct {
    const uint8_t *logits; /* of the first row; the next is `stride` bytes on */
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
    int32_t *history; /* prompt and output, with room for the draft; NULL where nothing depends on it */
    int32_t prompt, length;
    int32_t *ids, *parents, drafted; /* parents NULL: a chain */
    int32_t *path, kept;             /* found: indices of the draft */
    choice_made made;
} choice_job;

/* The row at `index` of the masks, with bias and penalties: its own memory where there are none, else room->adjusted. */
choice_row choice_adjusted(const choice_job *job, choice_row row, int32_t index, choice_room *room);

/* Follow the choices down the draft: path, kept and made. */
void choice_walk(choice_job *job, const choice_table *table, choice_room *room);

/* One choice after the whole draft, which is a chain, by the first row. */
void choice_draw(choice_job *job, const choice_table *table, choice_room *room);

#endif
