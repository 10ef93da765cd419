#include "vocabulary.h"

#include <stdlib.h>
#include <string.h>

static uint32_t tag_of(uint64_t hash) { return (uint32_t)(hash >> 29); }

static size_t filter_bit(const vocabulary *v, uint64_t hash) {
    return (size_t)(hash * 0x9e3779b97f4a7c15ull >> 20) & v->filter_mask;
}

static void insert(vocabulary *v, int32_t id) {
    uint64_t hash = vocabulary_hash(v, 0, v->texts[id]);
    if (vocabulary_find(v, v->texts[id], hash) >= 0) {
        v->repeated = 1;
        return;
    }
    size_t at = (size_t)hash & v->mask, bit = filter_bit(v, hash);
    while (v->slots[at].id >= 0) at = (at + 1) & v->mask;
    v->slots[at] = (vocabulary_slot){tag_of(hash), id};
    v->filter[bit / 8] |= (uint8_t)(1 << bit % 8);
}

/* Copies the texts to one place, where a look-up seldom misses the processor's caches; 0 if there is no memory. */
static int copy_texts(vocabulary *v, const text_view *texts, int32_t count) {
    size_t size = 1;
    for (int32_t i = 0; i < count; i++) size += texts[i].size;
    v->texts = malloc(((size_t)count + 1) * sizeof *v->texts);
    char *to = v->bytes = malloc(size);
    if (!v->texts || !to) return 0;
    for (int32_t i = 0; i < count; i++, to += texts[i - 1].size) {
        memcpy(to, texts[i].bytes, texts[i].size);
        v->texts[i] = (text_view){to, texts[i].size};
    }
    return 1;
}

int vocabulary_build(vocabulary *v, const text_view *texts, int32_t count, uint64_t seed) {
    size_t room = 16;
    while (room < 2 * (size_t)count) room *= 2;
    *v = (vocabulary){.base = 257 + seed % (HASH_PRIME - 257)};
    v->mask = room - 1, v->filter_mask = 4 * room - 1;
    v->slots = malloc(room * sizeof *v->slots);
    v->filter = calloc(4 * room / 8, 1);
    if (!v->slots || !v->filter || !copy_texts(v, texts, count)) return 0;
    for (size_t i = 0; i < room; i++) v->slots[i].id = -1;
    for (int32_t id = 0; id < count; id++) insert(v, id);
    return 1;
}

void vocabulary_free(vocabulary *v) {
    free(v->texts);
    free(v->bytes);
    free(v->slots);
    free(v->filter);
}

uint64_t vocabulary_hash(const vocabulary *v, uint64_t hash, text_view text) {
    for (size_t i = 0; i < text.size; i++) hash = hash_append(v, hash, text.bytes[i]);
    return hash;
}

int32_t vocabulary_find(const vocabulary *v, text_view text, uint64_t hash) {
    size_t bit = filter_bit(v, hash);
    if (!(v->filter[bit / 8] >> bit % 8 & 1)) return -1;
    for (size_t at = (size_t)hash & v->mask; v->slots[at].id >= 0; at = (at + 1) & v->mask) {
        if (v->slots[at].tag != tag_of(hash)) continue;
        text_view found = v->texts[v->slots[at].id];
        if (found.size == text.size && !memcmp(found.bytes, text.bytes, text.size)) return v->slots[at].id;
    }
    return -1;
}
