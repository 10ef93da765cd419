/* Merges of a vocabulary: the list of a file, and the merges that SentencePiece's scores imply. */
#include "vocabulary.h"

#include <stdlib.h>
#include <string.h>

enum {
    PIECE_CHARS = 256, /* longer pieces are not made by merges */
    PIECE_BYTES = 4 * PIECE_CHARS,
    TRIED_CHARS = 32, /* longer pieces keep all their splits */
};

typedef struct {
    const vocabulary *v;
    const int32_t *rank;
    uint64_t power[PIECE_BYTES + 1]; /* of the hash's base */
    int32_t letters[128];            /* tokens of single characters */
    const char *bytes;
    int chars;
    int start[PIECE_CHARS + 1];     /* byte of every character, and the end */
    uint64_t hash[PIECE_CHARS + 1]; /* of the text before it */
} piece;

/* A piece as two others. left, right: characters of the sides. */
typedef struct {
    merge_pair pair;
    int32_t made;
    int left, right;
} split;

static int continues(char byte) { return ((uint8_t)byte & 0xc0) == 0x80; }

int merge_append(merge_list *list, int32_t left, int32_t right) {
    if (list->count == list->room) {
        size_t room = list->room ? 2 * list->room : 4096;
        merge_pair *pairs = realloc(list->pairs, room * sizeof *pairs);
        if (!pairs) return 0;
        list->pairs = pairs, list->room = room;
    }
    list->pairs[list->count++] = (merge_pair){left, right};
    return 1;
}

int merge_split(const vocabulary *v, text_view text, merge_list *out) {
    size_t first = 1; /* the left side may begin with a space */
    while (first < text.size && continues(text.bytes[first])) first++;
    const char *space = first < text.size ? memchr(text.bytes + first, ' ', text.size - first) : NULL;
    if (!space) return 1;
    lookup left = {{text.bytes, (size_t)(space - text.bytes)}, 0};
    lookup right = {{space + 1, text.size - left.text.size - 1}, 0}, whole = {{NULL, text.size - 1}, 0};
    left.hash = vocabulary_hash(v, 0, left.text);
    right.hash = vocabulary_hash(v, 0, right.text);
    whole.hash = vocabulary_hash(v, left.hash, right.text);
    vocabulary_prefetch(v, right.hash);
    vocabulary_prefetch(v, whole.hash);
    int32_t left_id = vocabulary_find(v, left);
    int32_t right_id = left_id < 0 ? -1 : vocabulary_find(v, right);
    if (right_id < 0) return 1;
    char *bytes = malloc(text.size);
    if (!bytes) return 0;
    memcpy(bytes, text.bytes, left.text.size);
    memcpy(bytes + left.text.size, right.text.bytes, right.text.size);
    whole.text.bytes = bytes;
    int known = vocabulary_find(v, whole) >= 0;
    free(bytes);
    return known ? merge_append(out, left_id, right_id) : 1;
}

/* ---- Merges by score */

/* Finds the characters of a piece, and the hashes before them; 0 if it is too long. */
static int piece_open(piece *p, text_view text) {
    uint64_t hash = 0;
    p->bytes = text.bytes, p->chars = 0;
    for (size_t i = 0; i < text.size; i++) {
        if (!continues(text.bytes[i])) {
            if (p->chars == PIECE_CHARS) return 0;
            p->start[p->chars] = (int)i, p->hash[p->chars++] = hash;
        }
        hash = hash_append(p->v, hash, text.bytes[i]);
    }
    p->start[p->chars] = (int)text.size, p->hash[p->chars] = hash;
    return 1;
}

/* The characters from ... to - 1, whose place in memory is read ahead. */
static lookup piece_part(const piece *p, int from, int to) {
    text_view text = {p->bytes + p->start[from], (size_t)(p->start[to] - p->start[from])};
    uint64_t before = hash_product(p->hash[from], p->power[text.size]);
    lookup part = {text, hash_reduce(p->hash[to] + HASH_PRIME - before)};
    vocabulary_prefetch(p->v, part.hash);
    return part;
}

static int contains(text_view text, text_view part) {
    for (size_t at = 0; at + part.size <= text.size; at++)
        if (!memcmp(text.bytes + at, part.bytes, part.size)) return 1;
    return 0;
}

/* Below 0 if a comes before b, of equal scores: longer left side, longer right side, smaller id. */
static int compare_sizes(const void *first, const void *second) {
    const split *a = first, *b = second;
    if (a->left != b->left) return b->left - a->left;
    if (a->right != b->right) return b->right - a->right;
    return (a->made > b->made) - (a->made < b->made);
}

/* Below 0 if a is merged before b. */
static int compare(const piece *p, const split *a, const split *b) {
    int ranks = p->rank[a->made] - p->rank[b->made];
    return ranks ? ranks : compare_sizes(a, b);
}

/* The merge of the neighbours [from, middle) and [middle, to); made is -1 if there is none. */
static split merge_of(const piece *p, int from, int middle, int to, int32_t left, int32_t right) {
    split s = {{left, right}, -1, middle - from, to - middle};
    if (left >= 0 && right >= 0) s.made = vocabulary_find(p->v, piece_part(p, from, to));
    if (s.made >= 0 && p->rank[s.made] < 0) s.made = -1;
    return s;
}

/* The token of one character, -1 if there is none. */
static int32_t letter_of(const piece *p, int at) {
    char first = p->bytes[p->start[at]];
    return (uint8_t)first < 128 ? p->letters[(uint8_t)first] : vocabulary_find(p->v, piece_part(p, at, at + 1));
}

/* The piece's last merge if it is a text of its own; made is -1 if merges do not make it. */
static split last_merge(const piece *p) {
    int ends[TRIED_CHARS + 1] = {0}, count = p->chars;
    int32_t ids[TRIED_CHARS];
    split merges[TRIED_CHARS], none = {{-1, -1}, -1, 0, 0};
    for (int i = 0; i < count; i++) ends[i + 1] = i + 1, ids[i] = letter_of(p, i);
    for (int i = 0; i + 1 < count; i++) merges[i] = merge_of(p, i, i + 1, i + 2, ids[i], ids[i + 1]);
    while (count > 2) {
        int best = -1;
        for (int i = 0; i + 1 < count; i++)
            if (merges[i].made >= 0 && (best < 0 || compare(p, &merges[i], &merges[best]) < 0)) best = i;
        if (best < 0) return none;
        ids[best] = merges[best].made;
        for (int i = best + 1; i + 1 < count; i++) {
            ends[i] = ends[i + 1], ids[i] = ids[i + 1];
            if (i + 2 < count) merges[i] = merges[i + 1];
        }
        ends[--count] = p->chars;
        if (best) merges[best - 1] = merge_of(p, ends[best - 1], ends[best], ends[best + 1], ids[best - 1], ids[best]);
        if (best + 1 < count)
            merges[best] = merge_of(p, ends[best], ends[best + 1], ends[best + 2], ids[best], ids[best + 1]);
    }
    return count == 2 ? merges[0] : none;
}

/* Whether only the last merge of the piece can ever happen: within a text, its characters are merged as if they were
 * alone, or one of them is merged with a neighbour and the piece is not made. Not if a token stands for other text. */
static int is_made_in_one_way(const piece *p, text_view text, text_view unknown) {
    static const text_view byte = {"<0x", 3};
    return !p->v->repeated && p->chars <= TRIED_CHARS && !contains(text, byte) && !contains(text, unknown);
}

/* The splits of a piece into two tokens that may happen, the longest left side first. */
static int piece_splits(piece *p, int32_t id, text_view text, text_view unknown, split *out) {
    int count = 0;
    if (!piece_open(p, text)) return 0;
    if (is_made_in_one_way(p, text, unknown)) {
        out[0] = last_merge(p);
        return out[0].made >= 0;
    }
    for (int middle = p->chars - 1; middle > 0; middle--) {
        int32_t left = vocabulary_find(p->v, piece_part(p, 0, middle));
        int32_t right = left < 0 ? -1 : vocabulary_find(p->v, piece_part(p, middle, p->chars));
        if (right >= 0) out[count++] = (split){{left, right}, id, middle, p->chars - middle};
    }
    return count;
}

typedef struct {
    split *splits;
    size_t count, room;
} split_list;

/* Sorts pieces of equal scores, and appends them. */
static int group_close(split_list *group, merge_list *out) {
    qsort(group->splits, group->count, sizeof *group->splits, compare_sizes);
    for (size_t i = 0; i < group->count; i++)
        if (!merge_append(out, group->splits[i].pair.left, group->splits[i].pair.right)) return 0;
    group->count = 0;
    return 1;
}

static int group_add(split_list *group, const split *splits, int count) {
    if (group->count + (size_t)count > group->room) {
        size_t room = 2 * group->room + PIECE_CHARS;
        split *grown = realloc(group->splits, room * sizeof *grown);
        if (!grown) return 0;
        group->splits = grown, group->room = room;
    }
    if (count) memcpy(group->splits + group->count, splits, (size_t)count * sizeof *splits);
    group->count += (size_t)count;
    return 1;
}

int merges_by_rank(const vocabulary *v, const text_view *texts, const int32_t *order, int32_t ordered,
                   const int32_t *rank, text_view unknown, merge_list *out) {
    piece p = {.v = v, .rank = rank, .power = {1}};
    split splits[PIECE_CHARS];
    split_list group = {NULL, 0, 0};
    int good = 1;
    for (int i = 0; i < PIECE_BYTES; i++) p.power[i + 1] = hash_product(p.power[i], v->base);
    for (int i = 0; i < 128; i++) {
        char letter = (char)i;
        p.letters[i] = vocabulary_find(v, (lookup){{&letter, 1}, hash_append(v, 0, letter)});
    }
    for (int32_t i = 0; good && i < ordered; i++) {
        good = group_add(&group, splits, piece_splits(&p, order[i], texts[order[i]], unknown, splits));
        int ends = i + 1 == ordered || rank[order[i]] != rank[order[i + 1]];
        if (good && ends && group.count) good = group_close(&group, out);
    }
    free(group.splits);
    return good;
}
