/* How a loop that drafts asks for its next tokens. Who chooses hands this over in a capsule of the name below, who
 * drafts reads it there: neither has to know the other. The same file lies on both sides; a test holds them to each
 * other, and a change of it is a new number in the name. */
#ifndef SPEC_CHOOSER_H
#define SPEC_CHOOSER_H

#include <stdint.h>

#define SPEC_CHOOSER "spec.chooser.2"

/* A row of logits [n] and the drafted tokens [depth] before it. ids: the token of every logit, NULL where they are all
 * tokens, in order. */
typedef struct {
    const int64_t *path;
    int32_t depth, n;
    const float *logits;
    const int64_t *ids;
} spec_choice;

/* Chooses the tokens of one draft. Both functions need no lock of the interpreter, and are called by one thread at a
 * time; they return NULL, or in words why nothing was chosen. A chance is that of being accepted. */
typedef struct {
    void *context;
    /* One token, always: of a row that is no distribution one with chance 0. */
    const char *(*choose)(void *context, const spec_choice *where, int64_t *token, double *chance);
    /* The tokens that may follow, the best first: `found` of them, at most `most`, 0 where the row is no distribution.
     */
    const char *(*rank)(void *context, const spec_choice *where, int32_t most, int64_t *tokens, double *chances,
                        int32_t *found);
} spec_chooser;

#endif
