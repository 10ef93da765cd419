/* Every function of a table of operators, on rows of odd sizes with odd numbers among them. */
#include "ops/ops.h"
#include "trials.h"

#define KINDS 3

typedef const spec_ops_table *table;

static float *result(size_t count) { return room(count * sizeof(float)); }

static uint64_t norms(table t, draws *d) {
    int rows = between(d, 1, 4), heads = between(d, 1, 4), dim = between(d, 1, 260), width = heads * dim;
    int rotated = between(d, 0, dim / 2) * 2;
    size_t size = (size_t)(rows * width);
    float *x = numbers(d, size, 8), *z = numbers(d, size, 20), *weight = numbers(d, (size_t)width, 2),
          *y = result(size);
    float *turn = numbers(d, (size_t)(2 * rows * 130), 1);
    t->norm(x, (size_t)width, toss(d) ? weight : NULL, 1e-6f, rows, width, y, (size_t)width);
    uint64_t hash = hash_floats(HASH, y, size);
    t->gated_norm(x, (size_t)width, z, (size_t)width, weight, 1e-5f, rows, heads, dim, y, (size_t)width);
    hash = hash_floats(hash, y, size);
    t->heads(x, (size_t)width, rows, heads, dim, toss(d) ? weight : NULL, 1e-6f, turn, turn + rows * 130, 130, rotated);
    hash = hash_floats(hash, x, size);
    t->unit(x, (size_t)width, rows, heads, dim, 1e-6f, 0.125f);
    return hash_floats(hash, x, size);
}

static uint64_t elements(table t, draws *d) {
    int rows = between(d, 1, 4), width = between(d, 1, 200);
    size_t size = (size_t)(rows * width), stride = (size_t)width;
    float *x = odd_numbers(d, size, 30), *y = odd_numbers(d, size, 30), *scale = numbers(d, 4, 1), *out = result(size);
    int glu = between(d, 0, 2);
    t->glu(glu, toss(d) ? 3.0f : 0, x, stride, y, stride, rows, width, out, stride);
    uint64_t hash = hash_floats(HASH, out, size);
    int functions[] = {SPEC_SIGMOID, SPEC_SILU, SPEC_SOFTPLUS, SPEC_IDENTITY};
    t->gate(functions[between(d, 0, 3)], out, stride, y, stride, rows, width, toss(d) ? 1 : width);
    hash = hash_floats(hash, out, size);
    t->multiply(out, stride, x, stride, rows, width, out, stride);
    hash = hash_floats(hash, out, size);
    t->add(out, stride, x, stride, toss(d) ? scale : NULL, rows, width);
    hash = hash_floats(hash, out, size);
    t->softcap(out, stride, rows, width, 3.0f);
    hash = hash_floats(hash, out, size);
    t->dot(x, stride, y, stride, rows, width, out);
    hash = hash_floats(hash, out, (size_t)rows);
    int32_t best = t->argmax(x, (int32_t)size);
    return hash_bytes(hash, &best, sizeof best);
}

static uint64_t functions(table t, draws *d) {
    size_t count = (size_t)between(d, 1, 3000);
    float *x = odd_numbers(d, count, 100), *y = result(count);
    uint64_t hash = HASH;
    for (int f = SPEC_EXP; f <= SPEC_TANH; f++) {
        t->apply(f, x, count, y);
        hash = hash_floats(hash, y, count);
    }
    return hash;
}

/* Every float16, and floats of every size. */
static uint64_t conversions(table t, draws *d) {
    size_t count = 1 << 16, few = (size_t)between(d, 1, 5000);
    uint16_t *halves = room(2 * count);
    float *wide = result(count);
    uint64_t hash = HASH;
    for (size_t i = 0; i < count; i++) halves[i] = (uint16_t)i;
    for (int kind = SPEC_FLOAT32; kind <= SPEC_BFLOAT16; kind++) {
        t->widen(kind, kind == SPEC_FLOAT32 ? (void *)wide : halves, count, wide);
        hash = hash_floats(hash, wide, count);
        t->narrow(kind, wide, count, kind == SPEC_FLOAT32 ? (void *)wide : halves);
        hash = hash_bytes(hash, halves, 2 * count);
        for (size_t i = 0; i < count; i++) halves[i] = (uint16_t)i;
    }
    float *x = odd_numbers(d, few, 70000);
    for (size_t i = 0; i < few; i++) x[i] *= (float)(1 << between(d, 0, 20)) * 0x1p-40f;
    for (size_t i = 0; i < few; i += 2) x[i] *= 0x1p20f;
    t->narrow(SPEC_FLOAT16, x, few, halves);
    hash = hash_bytes(hash, halves, 2 * few);
    t->narrow(SPEC_BFLOAT16, x, few, halves);
    return hash_bytes(hash, halves, 2 * few);
}

static uint64_t laying(table t, draws *d) {
    int pairs = between(d, 1, 3), rows = between(d, 1, 9), tiles = 2 * pairs;
    size_t width = 16 * (size_t)tiles, size = width * (size_t)rows;
    float *y = odd_numbers(d, size, 10), *bias = numbers(d, width, 1), *add = numbers(d, size, 1), *out = result(size);
    if (toss(d)) bias = NULL;
    if (toss(d)) add = NULL;
    t->lay_down(y, tiles, rows, bias, add, width, out, width);
    uint64_t hash = hash_floats(HASH, out, size);
    int glu = between(d, 0, 2);
    t->lay_pairs(glu, toss(d) ? 3.0f : 0, y, pairs, rows, out, width);
    return hash_floats(hash, out, size);
}

static uint64_t routes(table t, draws *d) {
    int rows = between(d, 1, 5), sigmoid = toss(d), groups = sigmoid ? 1 << between(d, 0, 3) : 1;
    int experts = groups * between(d, 2, 20);
    float *bias = numbers(d, (size_t)experts, 1), *factors = numbers(d, (size_t)experts, 1);
    float *logits = odd_numbers(d, (size_t)(rows * experts), 5);
    int used = between(d, 1, groups), open = experts / groups * used, top = between(d, 1, open < 9 ? open : 9);
    int normalise = toss(d);
    spec_router a = {experts, top, normalise, sigmoid, groups, used, 1.5f, NULL, NULL};
    a.bias = toss(d) ? bias : NULL, a.factors = toss(d) ? factors : NULL;
    float *weights = result((size_t)(rows * top));
    int32_t *chosen = room(sizeof *chosen * (size_t)(rows * top));
    t->route(&a, logits, (size_t)experts, rows, weights, chosen);
    uint64_t hash = hash_bytes(HASH, chosen, sizeof *chosen * (size_t)(rows * top));
    return hash_floats(hash, weights, (size_t)(rows * top));
}

/* A chain of `chain` rows, then a tree that hangs from it. */
static int32_t *lineage(draws *d, int rows, int chain) {
    int32_t *parents = room(sizeof *parents * (size_t)rows);
    for (int i = 0; i < rows; i++) parents[i] = i < chain ? i - 1 : between(d, chain - 1, i - 1);
    return parents;
}

static uint64_t attention(table t, draws *d) {
    static const int dims[] = {16, 24, 32, 40, 64, 80, 128, 200, 256, 322, 512, 576};
    int kind = between(d, 0, KINDS - 1), kv_heads = between(d, 1, 2), heads = kv_heads * between(d, 1, 8);
    int dim = one_of(d, dims, 12), start = between(d, 0, 70), rows = between(d, 1, 20), chain = between(d, 1, rows);
    int latent = toss(d) ? between(d, 1, dim) : 0, value = latent ? latent : dim;
    int places = start + rows, width = kv_heads * dim, q_width = heads * dim, out_width = heads * value;
    spec_cache c = {kind, kv_heads, dim, value, (places + 15) / 16 * 16, latent > 0, NULL, NULL, 0, 0};
    c.key_head_bytes = spec_key_bytes(kind, dim, places);
    c.value_head_bytes = latent ? 0 : spec_value_bytes(kind, dim, places);
    c.keys = room(c.key_head_bytes * (size_t)kv_heads), c.values = room(c.value_head_bytes * (size_t)kv_heads);
    float *k = numbers(d, (size_t)(places * width), 2), *v = numbers(d, (size_t)(places * width), 2);
    float *q = numbers(d, (size_t)(rows * q_width), 2), *out = result((size_t)(rows * out_width));
    float *gate = toss(d) ? numbers(d, (size_t)(rows * out_width), 4) : NULL;
    t->store(&c, 0, places, k, (size_t)width, latent ? NULL : v, (size_t)width, 0, kv_heads);
    int32_t moved[2] = {start / 2, start};
    if (start > 3) t->compact(&c, start / 2 - 1, moved, 2);
    int32_t *parents = lineage(d, rows, chain);
    spec_sequence s = {0, rows, start, spec_chain(parents, 0, rows), 1, parents};
    int window = between(d, 1, 40);
    spec_attention a = {heads,
                        toss(d) ? window : 0,
                        toss(d) ? between(d, 1, 20) : 0,
                        0.125f,
                        q,
                        (size_t)q_width,
                        out,
                        (size_t)out_width,
                        gate,
                        (size_t)out_width,
                        toss(d) ? 5.0f : 0,
                        toss(d) ? numbers(d, (size_t)heads, 2) : NULL,
                        toss(d),
                        NULL,
                        0,
                        0,
                        0};
    void *scratch = room(spec_attention_scratch(places));
    for (int h = 0; h < kv_heads; h++) t->attend(&a, &c, &s, h, 0, rows, scratch);
    uint64_t hash = hash_floats(HASH, out, (size_t)(rows * out_width));
    return hash_bytes(hash_bytes(hash, c.keys, c.key_head_bytes), c.values, c.value_head_bytes);
}

/* A chain that keeps its last state, its replay into another place, and the convolution before it. */
static uint64_t recurrence(table t, draws *d) {
    int rows = between(d, 1, 9), keys = between(d, 1, 2), heads = keys * between(d, 1, 2), states = 2,
        chain = between(d, 1, rows);
    int dk = between(d, 1, 70), dv = between(d, 1, 100), wide = toss(d), g_width = wide ? dk : 1;
    size_t kw = (size_t)(keys * dk), vw = (size_t)(heads * dv), gw = (size_t)(heads * g_width), n = (size_t)rows;
    size_t state = (size_t)(heads * dk * dv);
    float *q = numbers(d, n * kw, 0.25f), *k = numbers(d, n * kw, 0.25f), *g = numbers(d, n * gw, 1);
    float *v = numbers(d, n * kw + vw, 1); /* rows of q, k and v are equally far apart */
    float *alpha = odd_numbers(d, n * gw, 10), *beta = result(n * (size_t)heads), *rate = numbers(d, gw, 1);
    float *matrices = numbers(d, (size_t)states * state, 1), *o = result(n * vw), *recorded = result(n * vw);
    int32_t source[9] = {0}, keep[9], slot[9], key_of[4], path[9], *parents = lineage(d, rows, chain);
    uint64_t hash = HASH;
    for (int i = 0; i < rows; i++) keep[i] = i == chain - 1 ? 1 : -1, path[i] = i;
    for (int h = 0; h < heads; h++) key_of[h] = h % keys;
    for (size_t i = 0; i < n * gw; i++) g[i] = g[i] > 0 ? -g[i] : g[i];
    float *rates = result(n * (gw + (size_t)heads));
    float floor = toss(d) ? -5.0f : 0;
    t->decay(alpha, gw, alpha, gw, rate, rate, floor, rows, (int)gw, heads, rates, rates + gw, gw + (size_t)heads);
    hash = hash_floats(hash, rates, n * (gw + (size_t)heads));
    for (size_t i = 0; i < n * (size_t)heads; i++) beta[i] = 0.5f;
    spec_delta a = {keys,          heads, dk,       dv, g_width, q,        k,      v,       g,      beta, kw,   gw,
                    (size_t)heads, o,     recorded, vw, vw,      matrices, key_of, parents, source, keep, slot, NULL};
    void *scratch = room(spec_delta_scratch(dk, spec_delta_plan(parents, keep, 0, rows, slot)));
    for (int h = 0; h < heads; h++) t->delta(&a, 0, rows, h, scratch);
    hash = hash_floats(hash_floats(hash_floats(hash, o, n * vw), recorded, n * vw), matrices, (size_t)states * state);
    for (int h = 0; h < heads; h++) t->replay(&a, path, chain, 0, 0, h);
    return hash_floats(hash, matrices, (size_t)states * state);
}

static uint64_t convolution(table t, draws *d) {
    int rows = between(d, 1, 9), channels = between(d, 1, 70), width = between(d, 2, 5), chain = between(d, 1, rows);
    size_t n = (size_t)(rows * channels), window = (size_t)((width - 1) * channels);
    float *x = numbers(d, n, 2), *weight = numbers(d, (size_t)(width * channels), 1),
          *windows = numbers(d, 2 * window, 1);
    float *out = result(n), *gate = toss(d) ? numbers(d, n, 2) : NULL;
    int32_t source[9] = {0}, keep[9], path[9], *parents = lineage(d, rows, chain);
    for (int i = 0; i < rows; i++) keep[i] = i == chain - 1 ? 1 : -1, path[i] = i;
    size_t stride = (size_t)channels;
    spec_conv c = {channels, width, x, stride, gate, stride, weight, windows, out, stride, parents, source, keep, NULL};
    t->conv(&c, 0, rows, 0, channels, room(spec_conv_scratch(width, channels)));
    uint64_t hash = hash_floats(hash_floats(HASH, out, n), windows, 2 * window);
    t->slide(&c, path, chain, 0, 0);
    return hash_floats(hash, windows, 2 * window);
}

static uint64_t run(const char *isa, uint64_t seed) {
    static uint64_t (*const kinds[])(table, draws *) = {norms,  elements,  functions,  conversions, laying,
                                                        routes, attention, recurrence, convolution};
    table t = spec_ops(isa);
    draws d = draws_of(seed);
    size_t kind = seed % 18;
    return t ? kinds[kind < 9 ? kind : 6](t, &d) : 0; /* attention has most that can differ */
}

const part operators = {"operators", 18 * 20, run};
