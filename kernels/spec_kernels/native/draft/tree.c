/* Which nodes of a tree are evaluated, and which are drafted (EAGLE-2, 2406.16858, section 4; DDTree, 2604.12989). */
#include "draft.h"

#include <stdlib.h>
#include <string.h>

#define COMMITTED (-1)

void spec_tree_begin(spec_tree *t) {
    t->made = t->kept = t->fresh = t->held = t->known_count = 0;
    t->growing[0] = COMMITTED, t->evaluate = 1;
}

static int room_for(spec_tree *t, int32_t more) {
    if (t->made + more <= t->room) return 1;
    int32_t room = 2 * (t->made + more);
    spec_node *grown = realloc(t->pool, (size_t)room * sizeof *grown);
    if (!grown) return 0;
    t->pool = grown, t->room = room;
    return 1;
}

/* Inserts a node among the likeliest, after equally likely ones. A node that is not among them now never will be. */
static void keep(spec_tree *t, spec_node node) {
    int32_t full = t->kept == t->nodes;
    if (full && !(node.chance > t->pool[t->order[t->kept - 1]].chance)) return;
    int32_t at = full ? t->kept - 1 : t->kept++;
    for (; at > 0 && t->pool[t->order[at - 1]].chance < node.chance; at--) t->order[at] = t->order[at - 1];
    t->order[at] = t->made;
    t->pool[t->made++] = node;
}

/* The first node is drafted whatever its chance, because its forward has been computed. */
int spec_tree_add(spec_tree *t, int32_t parent, const int64_t *tokens, const double *chances, int32_t count) {
    if (!room_for(t, count)) return 0;
    double before = parent < 0 ? 1 : t->pool[parent].chance;
    int32_t depth = parent < 0 ? 1 : t->pool[parent].depth + 1;
    for (int32_t i = 0; i < count; i++) {
        double own = chances[i] > 0 ? (chances[i] < 1 ? chances[i] : 1) : 0;
        double chance = before * (own * t->trust);
        int always = i == 0 && (!t->rows || parent < 0);
        if (always || chance >= t->chance_min) keep(t, (spec_node){tokens[i], parent, depth, -1, -1, 0, chance, own});
    }
    return 1;
}

static int stops(const spec_tree *t, int64_t token) {
    for (int32_t i = 0; i < t->stop_count; i++)
        if (t->stops[i] == token) return 1;
    return 0;
}

static int goes_on(const spec_tree *t, const spec_node *node) {
    return node->chance >= t->chance_min && node->depth < t->depth && !stops(t, node->token);
}

/* The depth of the row after a node, and what it depends on there. */
static spec_choices row_after(const spec_tree *t, int32_t node) {
    spec_choices row = {.before = -1, .depth = node < 0 ? 0 : t->pool[node].depth};
    if (t->shared == SPEC_BY_TOKEN && node >= 0) row.before = t->pool[node].token;
    return row;
}

static int is_row(const spec_choices *a, const spec_choices *b) {
    return a->depth == b->depth && a->before == b->before;
}

int spec_tree_learn(spec_tree *t, int32_t parent, const int64_t *tokens, const double *chances, int32_t count) {
    if (t->shared == SPEC_BY_PATH || !t->rows) return 1;
    if (t->known_count == t->known_room) {
        int32_t room = 2 * t->known_room + 8;
        spec_choices *grown = realloc(t->known, (size_t)room * sizeof *grown);
        if (!grown) return 0;
        t->known = grown, t->known_room = room;
    }
    spec_choices *row = &t->known[t->known_count++];
    *row = row_after(t, parent), row->count = count;
    memcpy(row->tokens, tokens, (size_t)count * sizeof *tokens);
    memcpy(row->chances, chances, (size_t)count * sizeof *chances);
    return 1;
}

/* Whether a row is among the rows of the next forward. */
static int is_growing(const spec_tree *t, const spec_choices *row) {
    for (int32_t i = 0; i < t->evaluate && t->shared != SPEC_BY_PATH; i++) {
        spec_choices other = row_after(t, t->growing[i]);
        if (is_row(&other, row)) return 1;
    }
    return 0;
}

/* Gives a node the children that a known row has; 0 if there is none, -1 if an allocation fails. */
static int take_known(spec_tree *t, int32_t node) {
    spec_choices row = row_after(t, node);
    for (int32_t i = 0; i < t->known_count && t->shared != SPEC_BY_PATH; i++) {
        const spec_choices *known = &t->known[i];
        if (!is_row(known, &row)) continue;
        t->pool[node].done = 1;
        return spec_tree_add(t, node, known->tokens, known->chances, known->count) ? 1 : -1;
    }
    return 0;
}

static int grow_best(spec_tree *t) {
    t->evaluate = 0;
    for (int32_t i = 0; i < t->kept; i++) {
        int32_t node = t->order[i];
        if (t->pool[node].done || !goes_on(t, &t->pool[node])) continue;
        int taken = take_known(t, node);
        if (taken < 0) return 0;
        if (taken) i = -1; /* its children may be likelier than the nodes before */
    }
    for (int32_t i = 0; i < t->kept && t->evaluate < t->rows; i++) {
        int32_t node = t->order[i];
        if (t->pool[node].done || !goes_on(t, &t->pool[node])) continue;
        spec_choices row = row_after(t, node);
        if (is_growing(t, &row)) continue;
        t->pool[node].done = 1, t->growing[t->evaluate++] = node;
    }
    return 1;
}

/* The likeliest new nodes, in the order of their proposal. */
int spec_tree_grow(spec_tree *t) {
    if (t->rows) return grow_best(t);
    t->evaluate = 0;
    for (int32_t i = 0; i < t->kept && t->evaluate < t->width; i++) {
        int32_t node = t->order[i], at = t->evaluate;
        if (node < t->fresh || !goes_on(t, &t->pool[node])) continue;
        for (; at > 0 && t->growing[at - 1] > node; at--) t->growing[at] = t->growing[at - 1];
        t->growing[at] = node, t->evaluate++;
    }
    t->fresh = t->made;
    return 1;
}

int32_t spec_tree_path(const spec_tree *t, int32_t node, int64_t *path) {
    int32_t depth = node < 0 ? 0 : t->pool[node].depth;
    for (int32_t i = depth; i > 0; i--, node = t->pool[node].parent) path[i - 1] = t->pool[node].token;
    return depth;
}
