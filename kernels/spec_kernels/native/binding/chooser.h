/* How a loop that drafts asks for its next token. Who chooses hands this over in a capsule of the name below, who
 * drafts reads it there: neither has to know the other. The same file lies on both sides; a test holds them to each
 * other, and a change of it is a new number in the name. */
#ifndef SPEC_CHOOSER_H
#define SPEC_CHOOSER_H

#include <stdint.h>

#define SPEC_CHOOSER "spec.chooser.1"

/* Chooses the tokens of one draft, one after another. */
typedef struct {
    void *context;
    /* The token after a row of logits [n], and the chance that it is accepted. ids: the tokens that the row's numbers
     * are of, NULL where they are all there are, in order. Needs no lock of the interpreter, and is called by one
     * thread at a time. Returns NULL, or in words why nothing was chosen. */
    const char *(*choose)(void *context, const float *row, int32_t n, const int64_t *ids, int64_t *token,
                          double *chance);
} spec_chooser;

#endif
