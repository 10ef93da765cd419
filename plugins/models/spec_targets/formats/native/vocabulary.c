#include "vocabulary.h"

#include <stdlib.h>
#include <string.h>

static uint32_t tag_of(uint64_t hash) { return (uint32_t)(hash >> 29); }

static size_t filter_bit(const vocabulary *v, uint64_t hash) {
    return (size_t)(hash * 0x9e3779b97f4a7c15ull >> 20) & v->filter_mask;
}

/* Adds a text whose bytes begin at ``start``. */
static void insert(vocabulary *v, int32_t id, uint32_t start, uint32_t size) {
    lookup wanted = {{v->bytes + start, size}, 0};
    wanted.hash = vocabulary_hash(v, 0, wanted.text);
    if (vocabulary_find(v, wanted) >= 0) {
        v->repeated = 1;
        return;
    }
    size_t at = (size_t)wanted.hash & v->mask, bit = filter_bit(v, wanted.hash);
    while (v->slots[at].id >= 0) at = (at + 1) & v->mask;
    v->slots[at] = (vocabulary_slot){tag_of(wanted.hash), id, start, size};
    v->filter[bit / 8] |= (uint8_t)(1 << bit % 8);
}

int vocabulary_build(vocabulary *v, const text_view *texts, int32_t count, uint64_t seed) {
    size_t room = 16, size = 1;
    while (room < 2 * (size_t)count) room *= 2;
    for (int32_t id = 0; id < count; id++) size += texts[id].size;
    *v = (vocabulary){.base = 257 + seed % (HASH_PRIME - 257), .mask = room - 1, .filter_mask = 4 * room - 1};
    if (size > UINT32_MAX) return 0;
    v->bytes = malloc(size);
    v->slots = malloc(room * sizeof *v->slots);
    v->filter = calloc(4 * room / 8, 1);
    if (!v->bytes || !v->slots || !v->filter) return 0;
    for (size_t i = 0; i < room; i++) v->slots[i].id = -1;
    uint32_t start = 0;
    for (int32_t id = 0; id < count; id++) {
        memcpy(v->bytes + start, texts[id].bytes, texts[id].size);
        insert(v, id, start, (uint32_t)texts[id].size);
        start += (uint32_t)texts[id].size;
    }
    return 1;
}

void vocabulary_free(vocabulary *v) {
    free(v->bytes);
    free(v->slots);
    free(v->filter);
}

uint64_t vocabulary_hash(const vocabulary *v, uint64_t hash, text_view text) {
    for (size_t i = 0; i < text.size; i++) hash = hash_append(v, hash, text.bytes[i]);
    return hash;
}

int32_t vocabulary_find(const vocabulary *v, lookup wanted) {
    size_t bit = filter_bit(v, wanted.hash);
    if (!(v->filter[bit / 8] >> bit % 8 & 1)) return -1;
    for (size_t at = (size_t)wanted.hash & v->mask; v->slots[at].id >= 0; at = (at + 1) & v->mask) {
        vocabulary_slot slot = v->slots[at];
        if (slot.tag == tag_of(wanted.hash) && slot.size == wanted.text.size &&
            !memcmp(v->bytes + slot.start, wanted.text.bytes, slot.size))
            return slot.id;
    }
    return -1;
}
