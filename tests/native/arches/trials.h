/* Trials of random numbers that give a hash of what came out, for one instruction set and for one seed.
 *
 * Only integers and products with powers of two are drawn, so that every machine draws the same; an expression draws
 * once, for which of two draws comes first is the compiler's choice. */
#ifndef TRIALS_H
#define TRIALS_H

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define SETS 7

/* A part of the native code. run: 0 where this processor has no such instruction set. */
typedef struct {
    const char *name;
    uint64_t seeds;
    uint64_t (*run)(const char *isa, uint64_t seed);
} part;

extern const part products, operators, choices, forwards;

/* ---- random numbers (splitmix64) */

typedef struct {
    uint64_t state;
} draws;

static inline draws draws_of(uint64_t seed) { return (draws){seed * 0x2545f4914f6cdd1dull + 1}; }

static inline uint64_t word(draws *d) {
    uint64_t z = d->state += 0x9e3779b97f4a7c15ull;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ z >> 27) * 0x94d049bb133111ebull;
    return z ^ z >> 31;
}

/* low ... high */
static inline int between(draws *d, int low, int high) { return low + (int)(word(d) >> 33) % (high - low + 1); }

static inline int toss(draws *d) { return between(d, 0, 1); }

static inline int one_of(draws *d, const int *from, int count) { return from[between(d, 0, count - 1)]; }

/* -1 ... 1 in steps of 2^-23 */
static inline float number(draws *d) { return (float)between(d, -(1 << 23), 1 << 23) * 0x1p-23f; }

/* ---- memory: 64-byte aligned, and freed together by forget() */

void *room(size_t bytes);
void forget(void);

static inline float *numbers(draws *d, size_t count, float size) {
    float *made = room(count * sizeof *made);
    for (size_t i = 0; i < count; i++) made[i] = number(d) * size;
    return made;
}

/* The same with some that are much larger, infinite, NaN, subnormal or zeros of both signs. */
static inline float *odd_numbers(draws *d, size_t count, float size) {
    static const uint32_t odd[] = {0x7f800000, 0xff800000, 0x7fc00000, 1,          0x80000001,
                                   0x007fffff, 0,          0x80000000, 0x477fe000, 0x477ff000,
                                   0xc77ff000, 0x33000000, 0x33000001, 0x38800000, 0x387fffff};
    float *made = numbers(d, count, size);
    for (size_t i = 0; i < count; i++) {
        int kind = between(d, 0, 9);
        if (kind == 0) memcpy(made + i, &odd[between(d, 0, sizeof odd / sizeof *odd - 1)], 4);
        if (kind == 1) made[i] *= 1024;
    }
    return made;
}

/* ---- hashes (FNV-1a); one NaN is as good as another, for processors make different ones */

static inline uint64_t hash_bytes(uint64_t hash, const void *bytes, size_t count) {
    for (size_t i = 0; i < count; i++) hash = (hash ^ ((const uint8_t *)bytes)[i]) * 0x100000001b3ull;
    return hash;
}

static inline uint64_t hash_floats(uint64_t hash, const float *x, size_t count) {
    for (size_t i = 0; i < count; i++) {
        uint32_t bits = 0x7fc00000;
        if (x[i] == x[i]) memcpy(&bits, x + i, 4);
        hash = hash_bytes(hash, &bits, 4);
    }
    return hash;
}

static inline uint64_t hash_doubles(uint64_t hash, const double *x, size_t count) {
    for (size_t i = 0; i < count; i++) {
        uint64_t bits = 0x7ff8ull << 48;
        if (x[i] == x[i]) memcpy(&bits, x + i, 8);
        hash = hash_bytes(hash, &bits, 8);
    }
    return hash;
}

#define HASH 0xcbf29ce484222325ull

#endif
