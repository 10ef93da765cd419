/* The loop over the depths of all drafts of a call. */
#include "draft.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define PIECE 256

const char spec_no_memory[] = "no memory for a draft";

/* A forward of draft rows, and the memory of its arrays.
 * above: the parent row of each row of a tree, -1 for committed text; the rows of tree s start at begin[s]. parents:
 * the same for spec_sequence, `behind` entries later. */
typedef struct {
    spec_request request;
    int64_t *tokens, *positions;
    spec_sequence *sequence;
    spec_slot *memory;
    int32_t *held, *above, *parents, *begin;
    int32_t behind;
    float *inputs[SPEC_INPUTS], **taps;
} next_forward;

/* ---- the choice of tokens */

/* exp(z_best) / sum of exp(z); NaN if a logit is NaN. Eight independent sums, because one would wait for every
 * addition. */
static float chance_of(const spec_program *p, const float *z, int count, int best) {
    float piece[PIECE];
    double sums[8] = {0}, sum = 0;
    for (int i = 0; i < count; i += PIECE) {
        int n = spec_min(PIECE, count - i);
        for (int j = 0; j < n; j++) piece[j] = z[i + j] - z[best];
        p->ops_table->apply(SPEC_EXP, piece, (size_t)n, piece);
        for (int j = n; j % 8; j++) piece[j] = 0;
        for (int j = 0; j < n; j += 8)
            for (int k = 0; k < 8; k++) sums[k] += (double)piece[j + k];
    }
    for (int k = 0; k < 8; k++) sum += sums[k];
    return (float)(1.0 / sum);
}

/* NaN logits: confidence 0. */
static void most_likely(const spec_drafts *d, const float *z, int64_t *token, double *chance) {
    int best = d->program->ops_table->argmax(z, d->classes);
    *chance = (double)chance_of(d->program, z, d->classes, best), *token = d->ids ? d->ids[best] : best;
    if (*chance != *chance) *chance = 0;
}

/* The same in Python: sigmoid in model/drafts.py. NaN: 0. */
static double sigmoid(float score) { return score > -700 ? 1 / (1 + exp(-(double)score)) : 0; }

/* The best token has the head's own chance, the others have the rest by their own ones. */
static void share_chance(double sure, double *chances, int32_t count) {
    double others = 0;
    for (int32_t i = 1; i < count; i++) others += chances[i];
    for (int32_t i = 1; i < count; i++) chances[i] *= (1 - sure) / (others > 1 ? others : 1);
    chances[0] = sure;
}

/* Adds the children of node `parent`, chosen from its row of logits. sure: NULL, or the score of its only child. */
static const char *propose(const spec_drafts *d, spec_tree *t, int32_t parent, const float *z, const float *sure) {
    int64_t path[SPEC_DEPTH], tokens[SPEC_BRANCHES];
    double chances[SPEC_BRANCHES];
    int32_t found = 1;
    const char *wrong = NULL;
    if (t->chooser) {
        if (t->before_count) memcpy(path, t->before, (size_t)t->before_count * sizeof *path);
        int32_t length = t->before_count + spec_tree_path(t, parent, path + t->before_count);
        spec_choice where = {path, length, d->classes, z, d->ids};
        void *context = t->chooser->context;
        if (t->width == 1) wrong = t->chooser->choose(context, &where, tokens, chances);
        else wrong = t->chooser->rank(context, &where, t->width, tokens, chances, &found);
    } else {
        most_likely(d, z, tokens, chances);
    }
    if (wrong) return wrong;
    if (sure) share_chance(sigmoid(*sure), chances, found);
    for (int32_t i = 0; d->program->vocabulary && i < found; i++)
        if (tokens[i] < 0 || tokens[i] >= d->program->vocabulary)
            return "a row of logits has token ids outside the vocabulary";
    if (!spec_tree_learn(t, parent, tokens, chances, found)) return spec_no_memory;
    return spec_tree_add(t, parent, tokens, chances, found) ? NULL : spec_no_memory;
}

/* A forward has the rows of all growing trees, one tree after another. */
static const char *take(const spec_drafts *d, const spec_request *q, next_forward *n) {
    size_t stride = q->tap_strides[d->logits], sure_stride = d->sure == SPEC_NONE ? 0 : q->tap_strides[d->sure];
    float *z = q->taps[d->logits], *sure = d->sure == SPEC_NONE ? NULL : q->taps[d->sure];
    for (int32_t s = 0; s < d->request->sequences; s++) {
        spec_tree *t = &d->trees[s];
        for (int32_t i = 0; i < t->evaluate; i++, z += stride) {
            const char *wrong = propose(d, t, t->growing[i], z, sure);
            if (wrong) return wrong;
            if (sure) sure += sure_stride;
        }
        if (t->evaluate && !spec_tree_grow(t)) return spec_no_memory;
    }
    if (d->keep) n->taps[d->logits] = z;
    return NULL;
}

/* ---- the next forward */

/* The inputs of one row: the state of the row before it, or rows of its depth. */
static void fill_inputs(const spec_drafts *d, next_forward *n, const spec_tree *t, const spec_node *node) {
    const spec_request *q = d->request;
    int32_t count = d->program->inputs, before = node->parent < 0 ? t->root : t->pool[node->parent].at;
    for (int32_t i = 0; i < count; i++) {
        const spec_input_rows *all = d->read ? &d->read[(t - d->trees) * count + i] : NULL;
        const float *from = all ? all->data + (size_t)node->depth * all->stride
                                : q->taps[d->state] + (size_t)before * q->tap_strides[d->state];
        size_t width = (size_t)d->program->input_widths[i];
        memcpy(n->inputs[i] + (size_t)node->at * width, from, width * sizeof(float));
    }
}

/* The rows of one tree, starting at row `row` of the batch. Layers that read another model's cache store nothing: a
 * chain stays where its first row was. */
static void fill_rows(const spec_drafts *d, next_forward *n, spec_tree *t, int32_t *above, int32_t row) {
    for (int32_t i = 0; i < t->evaluate; i++, row++) {
        spec_node *node = &t->pool[t->growing[i]];
        const spec_node *before = node->parent < 0 ? NULL : &t->pool[node->parent];
        int32_t stays = d->program->memory.borrowed || t->rows;
        above[t->held + i] = before && !stays ? before->row : -1;
        node->row = t->held + i, node->at = row;
        n->tokens[row] = node->token, n->positions[row] = t->position + (stays ? 0 : node->depth);
        fill_inputs(d, n, t, node);
    }
}

/* Row i of a tree has place start + i in the cache, after the committed text; the first `held` rows are already there.
 * The parent of a row that follows committed text is a number below that of the sequence's first row. */
static void fill_sequence(const spec_drafts *d, next_forward *n, int32_t s, int32_t to, int32_t row) {
    const spec_tree *t = &d->trees[s];
    const spec_sequence *committed = &d->request->sequence[s];
    const int32_t *above = n->above + n->begin[s];
    int32_t first = row - t->held, rows = t->held + t->evaluate, at = n->behind + n->begin[s], chain = 0;
    for (int32_t i = 0; i < rows; i++) n->parents[at + i] = above[i] < 0 ? INT32_MIN : first + above[i];
    while (chain < rows && above[chain] == chain - 1) chain++;
    n->sequence[to] = (spec_sequence){.first = first,
                                      .rows = rows,
                                      .start = committed->start + committed->rows - d->program->memory.borrowed,
                                      .chain = chain,
                                      .causal = 1,
                                      .parents = n->parents + (at - first)};
    n->held[to] = t->held, n->memory[to] = d->request->memory[s];
}

/* Number of rows of the next forward; 0 if every draft is finished. */
static int32_t fill(const spec_drafts *d, next_forward *n) {
    int32_t rows = 0, to = 0;
    for (int32_t s = 0; s < d->request->sequences; s++) {
        spec_tree *t = &d->trees[s];
        if (!t->evaluate) continue;
        fill_rows(d, n, t, n->above + n->begin[s], rows);
        fill_sequence(d, n, s, to++, rows);
        rows += t->evaluate, t->held += d->program->memory.borrowed || t->rows ? 0 : t->evaluate;
    }
    n->request.rows = rows, n->request.sequences = to;
    return rows;
}

static int claim(void **array, size_t count, size_t size) { return (*array = calloc(count, size)) != NULL; }

static int prepare(const spec_drafts *d, next_forward *n) {
    spec_request *q = &n->request;
    size_t sequences = (size_t)d->request->sequences, rows = 0, places = 0, rows_max = 0;
    if (!claim((void **)&n->begin, sequences, sizeof *n->begin)) return 0;
    for (size_t s = 0; s < sequences; s++) {
        const spec_tree *t = &d->trees[s];
        size_t width = (size_t)(t->rows ? t->rows : t->width), mine = t->rows ? width : width * (size_t)t->depth;
        n->begin[s] = (int32_t)places;
        rows += width, places += mine, rows_max = mine > rows_max ? mine : rows_max;
    }
    *q = *d->request, n->behind = (int32_t)rows;
    if (!claim((void **)&n->tokens, rows, sizeof *n->tokens) ||
        !claim((void **)&n->positions, rows, sizeof *n->positions) ||
        !claim((void **)&n->sequence, sequences, sizeof *n->sequence) ||
        !claim((void **)&n->memory, sequences, sizeof *n->memory) ||
        !claim((void **)&n->held, sequences, sizeof *n->held) || !claim((void **)&n->above, places, sizeof *n->above) ||
        !claim((void **)&n->parents, rows + places + rows_max, sizeof *n->parents) ||
        !claim((void **)&n->taps, (size_t)d->program->taps, sizeof *n->taps))
        return 0;
    for (int i = 0; i < d->program->inputs; i++) {
        size_t width = (size_t)d->program->input_widths[i];
        if (!claim((void **)&n->inputs[i], rows * width, sizeof(float))) return 0;
        q->inputs[i] = n->inputs[i], q->input_strides[i] = width;
    }
    n->taps[d->logits] = d->request->taps[d->logits];
    if (d->state != SPEC_NONE) n->taps[d->state] = d->request->taps[d->state];
    if (d->sure != SPEC_NONE) n->taps[d->sure] = d->request->taps[d->sure];
    q->tokens = n->tokens, q->positions = n->positions, q->each = 1, q->given = NULL;
    q->sequence = n->sequence, q->memory = n->memory, q->held = n->held, q->parents = NULL, q->taps = n->taps;
    for (int i = 0; i < SPEC_PICKS; i++) q->picks[i] = NULL;
    return !spec_reserve(d->program, (int)spec_round_up(rows, 16));
}

static void release(next_forward *n) {
    free(n->tokens), free(n->positions), free(n->sequence), free(n->memory), free(n->held);
    free(n->above), free(n->parents), free(n->begin), free(n->taps);
    for (int i = 0; i < SPEC_INPUTS; i++) free(n->inputs[i]);
}

/* ---- the loop */

/* Where the state of a row lies among the requested ones. */
static int32_t root_of(const spec_request *q, int32_t row) {
    int32_t at = 0;
    if (!q->picks[0]) return row;
    while (at < q->picked[0] && q->picks[0][at] < row) at++;
    return at;
}

/* Every tree starts at the last row of its sequence in the first forward. */
static void begin(const spec_drafts *d) {
    const spec_request *q = d->request;
    for (int32_t s = 0; s < q->sequences; s++) {
        spec_tree *t = &d->trees[s];
        const spec_sequence *committed = &q->sequence[s];
        spec_tree_begin(t);
        t->root = root_of(q, committed->first + committed->rows - 1);
        t->position = q->positions ? q->positions[committed->first + committed->rows - 1] : 0;
    }
}

static const char *grown(spec_drafts *d, next_forward *n) {
    const char *wrong = NULL;
    spec_request *q = d->request;
    begin(d);
    do {
        if (spec_run(d->program, q)) return spec_no_memory;
        d->forwards++, d->rows += q->rows;
        wrong = take(d, q, n);
        q = &n->request;
    } while (!wrong && fill(d, n));
    return wrong;
}

const char *spec_draft_all(spec_drafts *d) {
    next_forward n = {0};
    const char *wrong = prepare(d, &n) ? grown(d, &n) : spec_no_memory;
    release(&n);
    return wrong;
}

void spec_drafts_free(spec_drafts *d) {
    for (int32_t s = 0; d->trees && s < d->request->sequences; s++)
        free(d->trees[s].stops), free(d->trees[s].before), free(d->trees[s].pool), free(d->trees[s].known);
    free(d->trees), free(d->read);
}
