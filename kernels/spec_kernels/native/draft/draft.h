/* Drafts of several sequences in one call: a forward, the choice of tokens from its logits, the next forward.
 *
 * A draft is a tree: after every node that is evaluated up to `width` tokens are proposed, at every depth the `width`
 * likeliest new nodes are evaluated, and the `nodes` likeliest of all are drafted. A chain has width 1.
 * spec_core/toolkit/pair_tree.py says the same in Python, and token_drafter.py of chains. */
#ifndef SPEC_DRAFT_H
#define SPEC_DRAFT_H

#include "binding/chooser.h"
#include "program/program.h"

#define SPEC_DEPTH 256 /* and the most nodes of a tree */
#define SPEC_BRANCHES 64

/* A token that may be drafted. parent: its place in the pool, -1 is committed text. chance: that its whole path is
 * accepted; own: where what it follows was. row: of the rows of this draft in the cache, at: of the last forward. */
typedef struct {
    int64_t token;
    int32_t parent, depth, row, at;
    double chance, own;
} spec_node;

typedef struct {
    /* limits: longest path, most tokens, most tokens after one; a path less likely than `least` is left out or ends.
     * trust: every chance is multiplied by it. chooser: NULL takes the most likely token, for a chain only. */
    int32_t depth, nodes, width;
    double least, trust;
    int64_t *stops;
    int32_t stop_count;
    const spec_chooser *chooser;
    /* while it grows */
    spec_node *pool;
    int32_t made, room;
    int32_t order[SPEC_DEPTH], kept;          /* places in the pool of the likeliest nodes, the likeliest first */
    int32_t growing[SPEC_BRANCHES], evaluate; /* nodes of the forward under way, and how many */
    int32_t fresh;                            /* the first node of those that it proposes */
    int32_t held;                             /* rows of the draft in the cache before the forward */
    int32_t root;                             /* row of the first forward that committed text ends with */
    int64_t position;                         /* of the last committed token that is evaluated */
} spec_tree;

/* All drafts of a call. request: the first forward, with one row of logits of each sequence. */
typedef struct {
    spec_program *program;
    spec_request *request;
    spec_tree *trees; /* one for each sequence */
    int32_t logits, state, classes; /* taps, state SPEC_NONE: the model has no input; logits of a row */
    const int64_t *ids;             /* [classes]: the token of every logit, or NULL */
    int32_t keep, room;             /* keep: rows of logits of all forwards stay; rows that taps have memory for */
    int32_t forwards, rows;         /* found: how many there were */
} spec_drafts;

/* loop.c. NULL, or in words what is wrong; spec_no_memory where memory ends. */
extern const char spec_no_memory[];
const char *spec_draft_all(spec_drafts *d);
void spec_drafts_free(spec_drafts *d);

/* tree.c. A new tree grows from committed text. */
void spec_tree_begin(spec_tree *t);
/* Tokens proposed after node `parent`, the best first; 0 where memory ends. */
int spec_tree_add(spec_tree *t, int32_t parent, const int64_t *tokens, const double *chances, int32_t count);
/* Which nodes the next forward evaluates, after all that were evaluated have proposed theirs. */
void spec_tree_grow(spec_tree *t);
/* Tokens on the path to a node; returns how many. */
int32_t spec_tree_path(const spec_tree *t, int32_t node, int64_t *path);

#endif
