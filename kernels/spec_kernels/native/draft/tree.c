/* Which nodes of a tree are evaluated, and which are drafted (EAGLE-2, 2406.16858, section 4). */
#include "draft.h"

#include <stdlib.h>

#define COMMITTED (-1)

void spec_tree_begin(spec_tree *t) {
    t->made = t->kept = t->fresh = t->held = 0;
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
        if (i == 0 || chance >= t->chance_min) keep(t, (spec_node){tokens[i], parent, depth, -1, -1, chance, own});
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

/* The likeliest new nodes, in the order of their proposal. */
void spec_tree_grow(spec_tree *t) {
    t->evaluate = 0;
    for (int32_t i = 0; i < t->kept && t->evaluate < t->width; i++) {
        int32_t node = t->order[i], at = t->evaluate;
        if (node < t->fresh || !goes_on(t, &t->pool[node])) continue;
        for (; at > 0 && t->growing[at - 1] > node; at--) t->growing[at] = t->growing[at - 1];
        t->growing[at] = node, t->evaluate++;
    }
    t->fresh = t->made;
}

int32_t spec_tree_path(const spec_tree *t, int32_t node, int64_t *path) {
    int32_t depth = node < 0 ? 0 : t->pool[node].depth;
    for (int32_t i = depth; i > 0; i--, node = t->pool[node].parent) path[i - 1] = t->pool[node].token;
    return depth;
}
