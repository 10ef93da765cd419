/* Every trial on every instruction set of this processor: those of a trial must agree, and the one line that is printed
 * for it must be the same on every architecture.
 *
 *     trials [SEEDS]      number of trials of each part, all by default
 *
 * Prints "PART SEED HASH"; to stderr the instruction sets of each part. Exits with 1 where two of them differ. */
#include <stdio.h>

#include "trials.h"

static const char *const sets[SETS] = {"generic", "avx512vnni", "avx512", "avxvnni", "avx2", "i8mm", "neon"};
static void *held[4096];
static int count;

void *room(size_t bytes) {
    void *made = NULL;
    size_t size = (bytes + 127) / 64 * 64;
    if (count == sizeof held / sizeof *held || posix_memalign(&made, 64, size)) abort();
    return memset(held[count++] = made, 0, size);
}

void forget(void) {
    while (count) free(held[--count]);
}

/* One seed on every instruction set: how many differ from the first. */
static int one_of_all(const part *p, uint64_t seed, int *have) {
    uint64_t expected = 0;
    int wrong = 0;
    for (int i = 0; i < SETS; i++) {
        uint64_t got = p->run(sets[i], seed);
        forget();
        if (i == 0) expected = got;
        if (got && got != expected) fprintf(stderr, "%s %d: %s differs\n", p->name, (int)seed, sets[i]), wrong++;
        have[i] |= got != 0;
    }
    printf("%s %d %016llx\n", p->name, (int)seed, (unsigned long long)expected);
    return wrong;
}

static int all_of(const part *p, uint64_t seeds) {
    int wrong = 0, have[SETS] = {0};
    for (uint64_t seed = 0; seed < p->seeds && seed < seeds; seed++) wrong += one_of_all(p, seed, have);
    fprintf(stderr, "%s:", p->name);
    for (int i = 0; i < SETS; i++)
        if (have[i]) fprintf(stderr, " %s", sets[i]);
    fprintf(stderr, "\n");
    return wrong;
}

int main(int argc, char **argv) {
    const part *parts[] = {&products, &operators, &choices, &forwards};
    uint64_t seeds = argc > 1 ? strtoull(argv[1], NULL, 10) : UINT64_MAX;
    int wrong = 0;
    for (int i = 0; i < 4; i++) wrong += all_of(parts[i], seeds);
    return wrong != 0;
}
