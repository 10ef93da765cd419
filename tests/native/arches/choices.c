/* The choice of a token, what is left of a row, and the noise. */
#include "choice.h"
#include "trials.h"

static choice_scratch scratch_of(int n) {
    size_t count = (size_t)n + 64;
    return (choice_scratch){.n = n,
                            .order = room(count * sizeof(choice_place)),
                            .z = room(count * sizeof(double)),
                            .adjusted = room(count * sizeof(double)),
                            .ids = room(count * sizeof(int32_t)),
                            .some = room(count * sizeof(int32_t)),
                            .weights = room(count * sizeof(int32_t)),
                            .counts = room(count * sizeof(int32_t))};
}

/* Logits with ties, and now and then with numbers that are none. */
static choice_row row_of(draws *d, int n) {
    float size = (float)(1 << between(d, 0, 5));
    float *x = between(d, 0, 9) ? numbers(d, (size_t)n, size) : odd_numbers(d, (size_t)n, size);
    for (int i = 0; i < n / 8; i++) {
        int from = between(d, 0, n - 1);
        x[between(d, 0, n - 1)] = x[from];
    }
    if (toss(d)) return (choice_row){x, CHOICE_FLOAT32, n};
    double *wide = room((size_t)n * sizeof *wide);
    for (int i = 0; i < n; i++) wide[i] = (double)x[i] * (1 + (double)between(d, 0, 999) * 0x1p-40);
    return (choice_row){wide, CHOICE_FLOAT64, n};
}

static uint64_t hash_made(uint64_t hash, choice_made made) {
    hash = hash_bytes(hash, &made.id, sizeof made.id);
    return hash_doubles(hash_doubles(hash, &made.logit, 1), &made.lead, 1);
}

static uint64_t hash_places(uint64_t hash, const choice_place *order, int count) {
    for (int i = 0; i < count; i++)
        hash = hash_doubles(hash_bytes(hash, &order[i].id, sizeof order[i].id), &order[i].z, 1);
    return hash;
}

static choice_cuts cuts_of(draws *d, int n) {
    static const double shares[] = {0.1, 0.5, 0.9, 0.95, 1, 1}, floors[] = {0, 0, 0.01, 0.3};
    static const double temperatures[] = {0, 0.3, 0.8, 1, 1.7};
    choice_cuts cuts = {.temperature = temperatures[between(d, 0, 4)]};
    cuts.top_p = shares[between(d, 0, 5)];
    cuts.min_p = floors[between(d, 0, 3)];
    cuts.top_k = between(d, 1, 2 * n) % (n + 1);
    return cuts;
}

static uint64_t run(const char *isa, uint64_t seed) {
    const choice_table *t = choice_of(isa);
    draws d = draws_of(seed);
    if (!t) return 0;
    int n = seed % 8 ? between(&d, 1, 700) : between(&d, 700, 6000), count = between(&d, 1, n < 90 ? n : 90);
    choice_row row = row_of(&d, n);
    choice_cuts cuts = cuts_of(&d, n);
    choice_source source = {{1, (uint32_t)word(&d)}, 12345, 3, 1};
    choice_scratch scratch = scratch_of(n);
    uint64_t hash = hash_made(HASH, t->choose(row, &cuts, &source, toss(&d), &scratch)), weighed;
    int64_t total;
    hash = hash_made(hash, t->mass(row, &total));
    hash = hash_bytes(hash, &total, sizeof total);
    weighed = t->likeliest(row, count, &scratch);
    hash = hash_places(hash_bytes(hash, &weighed, sizeof weighed), scratch.order, weighed ? count : 0);
    double *noise = room((size_t)n * sizeof *noise);
    t->gumbel(&source, NULL, n, noise);
    hash = hash_doubles(hash, noise, (size_t)n);
    int64_t ids[5] = {0, between(&d, 0, 1 << 20), n, 63, 64};
    t->gumbel(&source, ids, 5, noise);
    hash = hash_doubles(hash, noise, 5);
    int32_t weight = t->weight((double)number(&d) * 20 - 20);
    hash = hash_bytes(hash, &weight, sizeof weight);
    if (!weighed || cuts.temperature == 0) return hash; /* no distribution, or one token: there is no support */
    int32_t best = t->best(row, &cuts, &source, count, &scratch);
    hash = hash_places(hash_bytes(hash, &best, sizeof best), scratch.order, best);
    int32_t left = t->support(row, &cuts, &scratch);
    hash = hash_bytes(hash, scratch.ids, (size_t)left * sizeof(int32_t));
    return hash_doubles(hash, scratch.z, (size_t)left);
}

const part choices = {"choices", 400, run};
