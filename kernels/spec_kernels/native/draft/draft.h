/* Drafts several sequences in one call: a forward, the choice of tokens from its logits, the next forward, and so on.
 *
 * A draft is a tree: every evaluated node gets up to `width` children, at every depth the `width` likeliest new nodes
 * are evaluated, and the `nodes` best nodes of all are drafted. A chain has width 1. Where a row does not depend
 * on other rows, the best nodes of any depth are evaluated, `rows` in a forward, until all of the `nodes` best
 * are; those with equal rows are evaluated once.
 * The same algorithms in Python: spec_core/toolkit/pair_tree.py, tree.py, and token_drafter.py for chains. */
#ifndef SPEC_DRAFT_H
#define SPEC_DRAFT_H

#include "binding/chooser.h"
#include "program/program.h"

#define SPEC_DEPTH 256 /* also the max nodes of a tree */
#define SPEC_BRANCHES 64

/* A token that may be drafted. parent: index in the pool, -1 for committed text. chance: probability that its whole
 * path is accepted; own: the same if its parent was accepted. row: its row among those of this draft in the cache;
 * at: its row in the last forward. */
typedef struct {
    int64_t token;
    int32_t parent, depth, row, at, done; /* done: its children are known, or computed in the current forward */
    double chance, own;
} spec_node;

/* What a row depends on: all drafted tokens before it, the last one, or none. */
enum spec_shared { SPEC_BY_PATH, SPEC_BY_TOKEN, SPEC_BY_DEPTH };

/* Tokens chosen from a row. */
typedef struct {
    int64_t before;
    int32_t depth, count;
    int64_t tokens[SPEC_BRANCHES];
    double chances[SPEC_BRANCHES];
} spec_choices;

typedef struct {
    /* max path length, max tokens, max children of a node; a path with a chance below `chance_min` is left out or ends.
     * trust: factor of every chance. chooser: NULL takes the most likely token, for a chain only. */
    int32_t depth, nodes, width;
    /* nodes in a forward of rows that do not depend on each other, 0: `width` at each depth; enum spec_shared. Then
     * only the first token of all may be less likely than chance_min. */
    int32_t rows, shared;
    double chance_min, trust;
    int64_t *stops;
    int32_t stop_count;
    const spec_chooser *chooser;
    /* tokens that the same chooser drafted before, in earlier calls */
    int64_t *before;
    int32_t before_count;
    /* whether the tree is still growing */
    spec_node *pool;
    int32_t made, room;
    int32_t order[SPEC_DEPTH], kept;       /* pool indices of the best nodes, in order */
    int32_t growing[SPEC_DEPTH], evaluate; /* nodes in the current forward, and their number */
    spec_choices *known;                   /* of rows that may be needed again */
    int32_t known_count, known_room;
    int32_t fresh;    /* the first node proposed by the current forward */
    int32_t held;     /* rows of the draft in the cache before the current forward */
    int32_t root;     /* row of the first forward that holds the last committed token */
    int64_t position; /* position of the last evaluated committed token */
} spec_tree;

/* Rows of an input for one sequence: row i is read with the tokens that have i drafted ones before them. */
typedef struct {
    const float *data;
    size_t stride;
    int32_t rows;
} spec_input_rows;

/* All drafts of a call. request: the first forward, with one row of logits per sequence. After it a forward reads its
 * own state, or for every sequence the rows of all inputs in `read`. */
typedef struct {
    spec_program *program;
    spec_request *request;
    spec_tree *trees;            /* one per sequence */
    int32_t logits, state, sure; /* taps; state, sure SPEC_NONE: there is none; sigmoid(sure) is a token's chance */
    int32_t classes;             /* logits in a row */
    spec_input_rows *read;       /* [sequences][inputs of the program], or NULL */
    const int64_t *ids;          /* [classes]: the token id of each logit, or NULL */
    int32_t keep, room;          /* keep: keep the rows of logits of all forwards; capacity of the taps in rows */
    int32_t forwards, rows;      /* number of forwards and rows, set by the call */
} spec_drafts;

/* loop.c. NULL, or an error message; spec_no_memory if an allocation fails. */
extern const char spec_no_memory[];
const char *spec_draft_all(spec_drafts *d);
void spec_drafts_free(spec_drafts *d);

/* tree.c. Starts a tree at the committed text. */
void spec_tree_begin(spec_tree *t);
/* Adds the children of node `parent`, best first; 0 if an allocation fails. */
int spec_tree_add(spec_tree *t, int32_t parent, const int64_t *tokens, const double *chances, int32_t count);
/* Stores what was chosen from the row of a node that may be needed again; 0 if an allocation fails. */
int spec_tree_learn(spec_tree *t, int32_t parent, const int64_t *tokens, const double *chances, int32_t count);
/* Selects the nodes of the next forward, after all evaluated nodes have got their children; 0 if an allocation fails. */
int spec_tree_grow(spec_tree *t);
/* The tokens on the path to a node; returns their number. */
int32_t spec_tree_path(const spec_tree *t, int32_t node, int64_t *path);

#endif
