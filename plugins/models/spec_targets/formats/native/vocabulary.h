/* Texts of a vocabulary, found by their bytes, and merges of its texts. */
#ifndef SPEC_VOCABULARY_H
#define SPEC_VOCABULARY_H

#include <stddef.h>
#include <stdint.h>

typedef struct {
    const char *bytes;
    size_t size;
} text_view;

/* Text id, -1 if the slot is empty; its bytes begin at ``start``. One read of memory decides most look-ups. */
typedef struct {
    uint32_t tag;
    int32_t id;
    uint32_t start, size;
} vocabulary_slot;

typedef struct {
    char *bytes;  /* of all texts, one after the other */
    int repeated; /* whether two texts are equal; the first of them is found */
    uint64_t base;
    vocabulary_slot *slots;
    size_t mask;
    uint8_t *filter; /* one bit of every hash: most absent texts are not looked up in the slots */
    size_t filter_mask;
} vocabulary;

/* A text that is looked up. */
typedef struct {
    text_view text;
    uint64_t hash;
} lookup;

typedef struct {
    int32_t left, right;
} merge_pair;

typedef struct {
    merge_pair *pairs;
    size_t count, room;
} merge_list;

/* A hash is a polynomial over a prime field at a random place, so that a file cannot hold texts of equal hashes. */
#define HASH_PRIME ((1ull << 61) - 1)

static inline uint64_t hash_reduce(uint64_t sum) { return sum >= HASH_PRIME ? sum - HASH_PRIME : sum; }

static inline uint64_t hash_product(uint64_t a, uint64_t b) {
    unsigned __int128 wide = (unsigned __int128)a * b;
    return hash_reduce((uint64_t)(wide & HASH_PRIME) + (uint64_t)(wide >> 61));
}

static inline uint64_t hash_append(const vocabulary *v, uint64_t hash, char byte) {
    return hash_reduce(hash_product(hash, v->base) + (uint8_t)byte + 1);
}

/* Copies the texts, of 4 GiB at most; 0 if there is no memory. Free in either case. */
int vocabulary_build(vocabulary *v, const text_view *texts, int32_t count, uint64_t seed);
void vocabulary_free(vocabulary *v);

/* Hash of more bytes after those of ``hash``; 0 is the hash of no bytes. */
uint64_t vocabulary_hash(const vocabulary *v, uint64_t hash, text_view text);

/* Begins to read memory for ``vocabulary_find``. */
static inline void vocabulary_prefetch(const vocabulary *v, uint64_t hash) {
    __builtin_prefetch(&v->slots[(size_t)hash & v->mask]);
}

/* The first equal text, -1 if there is none. */
int32_t vocabulary_find(const vocabulary *v, lookup wanted);

/* 0 if there is no memory. */
int merge_append(merge_list *list, int32_t left, int32_t right);

/* Appends the sides of a merge "LEFT RIGHT", if both and the result are in the vocabulary; 0 if there is no memory. */
int merge_split(const vocabulary *v, text_view text, merge_list *out);

/* SentencePiece's merges, the first ones best; 0 if there is no memory. texts: of the vocabulary. order: the pieces that merges may make, the
 * first ones best. rank: of every piece, equal for equal scores, -1 for pieces that no merge makes. unknown: text of
 * the token for unknown characters. */
int merges_by_rank(const vocabulary *v, const text_view *texts, const int32_t *order, int32_t ordered,
                   const int32_t *rank, text_view unknown, merge_list *out);

#endif
