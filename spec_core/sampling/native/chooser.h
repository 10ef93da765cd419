/* How a draft loop asks for its next tokens. The side that chooses tokens passes this struct in a capsule with the name
 * below, and the draft loop reads it from there, so neither includes the other's headers. Both sides have a copy of
 * this file; a test compares the copies, and every change needs a new number in the name. */
#ifndef SPEC_CHOOSER_H
#define SPEC_CHOOSER_H

#include <stdint.h>

#define SPEC_CHOOSER "spec.chooser.2"

/* A row of logits [n] and the drafted tokens [depth] before it. ids: the token id of each logit; NULL if logit i
 * belongs to token i. */
typedef struct {
    const int64_t *path;
    int32_t depth, n;
    const float *logits;
    const int64_t *ids;
} spec_choice;

/* Chooses the tokens of one draft. Both functions run without the interpreter's lock and are called by one thread at a
 * time. They return NULL, or an error message if nothing was chosen. A chance is a probability of acceptance. */
typedef struct {
    void *context;
    /* Exactly one token; its chance is 0 if the row is not a distribution. */
    const char *(*choose)(void *context, const spec_choice *where, int64_t *token, double *chance);
    /* Candidates for the next token, best first: `found` of them, at most `count_max`; none if the row is not a
     * distribution. */
    const char *(*rank)(void *context, const spec_choice *where, int32_t count_max, int64_t *tokens, double *chances,
                        int32_t *found);
} spec_chooser;

#endif
