/* Whole forwards of random models: layers of attention, of the gated delta rule or of short convolutions, feed-forwards
 * or experts, with matrices of any types. Layers of a cache may hold latents, have heads of their own size, and may be
 * read by later blocks. A prompt, then in one forward a chain and a tree, then one row that follows them. */
#include "matrices.h"
#include "program/program.h"

#define PROMPT 21
#define DRAFTS 9
#define PLACES 64
#define STATES 2
#define LAYERS 3 /* of attention, at most */
#define EPS 1e-5f

typedef struct {
    spec_program *p;
    draws *d;
    int bits, width, heads[LAYERS], vocabulary, layer, recurring;
    int32_t shapes[LAYERS][SPEC_SHAPE];   /* kv heads, head width, latent numbers and window of each layer */
    int32_t x, norm, qrows, qrows_floats; /* values and qrows of [width] */
} model;

static float *vector(model *m, int n, float size) { return spec_keep(m->p, numbers(m->d, (size_t)n, size), n); }

static int type_for(model *m, int k) {
    int type;
    do type = between(m->d, 0, SPEC_TYPES - 1);
    while (k % blocks[type].inputs);
    return type;
}

static int bits_for(const model *m, int type) { return type >= SPEC_F16 ? 32 : m->bits; }

static void norm(model *m, int x, int out) {
    spec_op *op = spec_add_op(m->p, SPEC_NORM);
    op->x = x, op->out = out, op->width = m->width, op->eps = EPS, op->vector = vector(m, m->width, 1);
}

/* Rows of x as a matrix of this type wants them. */
static int32_t quantised(model *m, int x, int k, int type) {
    int32_t qrows = spec_add_qrows(m->p, k, bits_for(m, type));
    spec_op *op = spec_add_op(m->p, SPEC_QUANTISE);
    op->x = x, op->qrows = qrows;
    return qrows;
}

/* out [n] = W x [k], plus `add` and a bias where there are such. */
static int linear(model *m, int x, int k, int n, int add, int out) {
    int type = type_for(m, k);
    int32_t qrows = quantised(m, x, k, type);
    spec_op *op = spec_add_op(m->p, SPEC_LINEAR);
    op->qrows = qrows, op->parts = 1, op->x = add, op->outs[0] = out == SPEC_NONE ? spec_add_value(m->p, n) : out;
    op->weights[0] = matrix(m->d, type, n, k, 0);
    op->biases[0] = between(m->d, 0, 3) ? NULL : vector(m, n, 0.25f);
    return op->outs[0];
}

/* The last product of a layer: added to the stream, or to it after a norm. */
static int onto_stream(model *m, int x, int k) {
    if (toss(m->d)) return linear(m, x, k, m->width, m->x, m->x);
    int out = linear(m, x, k, m->width, SPEC_NONE, SPEC_NONE);
    norm(m, out, out);
    spec_op *op = spec_add_op(m->p, SPEC_ADD);
    op->x = m->x, op->y = out, op->out = m->x, op->width = m->width, op->scale = toss(m->d) ? 1 : 0.75f;
    return m->x;
}

/* `count` times gate and up in tiles that alternate. */
static spec_stack pairs(model *m, int type, int n, int k, int count) {
    int tiles = (n + 15) / 16;
    size_t size = spec_tile_bytes(type, k), bytes = 2 * (size_t)tiles * size;
    uint8_t *to = room(bytes * (size_t)count);
    for (int i = 0; i < 2 * count; i++) {
        spec_weight one = matrix(m->d, type, n, k, 0);
        for (int t = 0; t < tiles; t++)
            memcpy(to + (size_t)(i / 2) * bytes + (size_t)(2 * t + i % 2) * size, one.data + (size_t)t * size, size);
    }
    return (spec_stack){{type, 32 * tiles, k, 2 * tiles, size, to}, bytes};
}

static void heads(model *m, int x, int count, int dim) {
    spec_op *op = spec_add_op(m->p, SPEC_HEADS);
    op->x = x, op->heads = count, op->dim = dim, op->eps = EPS, op->table = toss(m->d);
    op->rotary_dim = m->p->rotary[op->table].rotary_dim;
    op->vector = toss(m->d) ? vector(m, dim, 1) : NULL;
}

/* Columns of a value of twice the width. */
static int columns(model *m, int width) {
    int both = linear(m, m->norm, m->width, 2 * width, SPEC_NONE, SPEC_NONE), out = spec_add_value(m->p, width);
    spec_op *op = spec_add_op(m->p, SPEC_COLUMNS);
    op->x = both, op->out = out, op->index = between(m->d, 0, width), op->width = width;
    return out;
}

/* out: heads of `kept` + n numbers, those of x have `kept` + k. */
static int head_linear(model *m, int x, int count, int kept, int k, int n) {
    int type = type_for(m, k), tiles = (n + 15) / 16;
    spec_stack matrices = {matrix(m->d, type, 16 * tiles * count, k, 0), 0};
    matrices.one.n = n, matrices.one.tiles = tiles, matrices.bytes = (size_t)tiles * matrices.one.tile_bytes;
    spec_op *op = spec_add_head_linear(m->p, &matrices, count, kept, bits_for(m, type));
    op->x = x, op->out = spec_add_value(m->p, count * (kept + n));
    return op->out;
}

/* Keys and values of the next layer, or latents. */
static void store(model *m) {
    int kv_heads = m->shapes[m->layer][0], dim = m->shapes[m->layer][1], width = kv_heads * dim;
    int k = linear(m, m->norm, m->width, width, SPEC_NONE, SPEC_NONE), v = SPEC_NONE;
    if (!m->shapes[m->layer][2])
        v = toss(m->d) ? columns(m, width) : linear(m, m->norm, m->width, width, SPEC_NONE, SPEC_NONE);
    heads(m, k, kv_heads, dim);
    spec_op *op = spec_add_op(m->p, SPEC_STORE);
    op->x = k, op->y = v, op->layer = m->layer++, op->kv_heads = kv_heads;
}

/* Over a layer of its own, or over an earlier one. */
static int attention(model *m) {
    if (!m->layer || between(m->d, 0, 2)) store(m);
    int layer = between(m->d, 0, 3) ? m->layer - 1 : between(m->d, 0, m->layer - 1), heads_of = m->heads[layer];
    int dim = m->shapes[layer][1], latent = m->shapes[layer][2];
    int q_width = heads_of * (latent ? dim - latent + 32 : dim);
    int out_width = heads_of * (latent ? latent : dim);
    int q = linear(m, m->norm, m->width, q_width, SPEC_NONE, SPEC_NONE);
    if (latent) q = head_linear(m, q, heads_of, dim - latent, 32, latent);
    int gate = toss(m->d) ? linear(m, m->norm, m->width, out_width, SPEC_NONE, SPEC_NONE) : SPEC_NONE;
    int out = spec_add_value(m->p, out_width);
    heads(m, q, heads_of, dim);
    spec_op *op = spec_add_op(m->p, SPEC_ATTEND);
    op->x = q, op->y = gate, op->out = out, op->layer = layer, op->heads = heads_of;
    op->kv_heads = m->shapes[layer][0];
    op->dim = dim, op->scale = 0.125f, op->causal = 1, op->window = toss(m->d) ? 20 : 0;
    op->cap = toss(m->d) ? 5 : 0, op->vector = toss(m->d) ? vector(m, heads_of, 2) : NULL;
    if (latent) out = head_linear(m, out, heads_of, 0, latent, 40), out_width = heads_of * 40;
    return onto_stream(m, out, out_width);
}

/* Convolution, rates, the rule and its gated norm: what lower.py writes for it. */
static int gated_delta(model *m) {
    const spec_recurrence *r = &m->p->recurrence;
    int values = r->value_heads * r->value_dim, kernel = r->kernel * r->channels;
    int qkv = linear(m, m->norm, m->width, r->channels, SPEC_NONE, SPEC_NONE);
    int z = linear(m, m->norm, m->width, values, SPEC_NONE, SPEC_NONE);
    int alpha = linear(m, m->norm, m->width, r->decays, SPEC_NONE, SPEC_NONE);
    int beta = linear(m, m->norm, m->width, r->value_heads, SPEC_NONE, SPEC_NONE);
    int mixed = spec_add_value(m->p, r->channels), rates = spec_add_value(m->p, r->decays + r->value_heads);
    int d = spec_add_value(m->p, values), o = spec_add_value(m->p, values);
    float *rate = vector(m, r->decays, 1), *weight = vector(m, kernel, 1), *scale = vector(m, r->value_dim, 1);
    for (int h = 0; h < r->decays; h++) rate[h] = rate[h] > 0 ? -rate[h] : rate[h];
    spec_op *op = spec_add_op(m->p, SPEC_CONV);
    op->x = qkv, op->y = SPEC_NONE, op->out = mixed, op->layer = m->recurring, op->vector = weight;
    op = spec_add_op(m->p, SPEC_RATES);
    op->x = mixed, op->y = rates, op->xs[0] = alpha, op->xs[1] = beta, op->eps = EPS, op->scale = 0.125f;
    op->vector = rate, op->vector2 = rate;
    op = spec_add_op(m->p, SPEC_DELTA);
    op->x = mixed, op->y = rates, op->out = o, op->outs[0] = d, op->layer = m->recurring++;
    op = spec_add_op(m->p, SPEC_GATED_NORM);
    op->x = o, op->y = z, op->out = o, op->heads = r->value_heads, op->dim = r->value_dim, op->vector = scale;
    op->eps = EPS;
    return linear(m, o, values, m->width, m->x, m->x);
}

/* out(c conv(b x)) */
static int short_convolution(model *m) {
    const spec_recurrence *r = &m->p->recurrence;
    int b = linear(m, m->norm, m->width, r->channels, SPEC_NONE, SPEC_NONE);
    int c = linear(m, m->norm, m->width, r->channels, SPEC_NONE, SPEC_NONE);
    int x = linear(m, m->norm, m->width, r->channels, SPEC_NONE, SPEC_NONE);
    int mixed = spec_add_value(m->p, r->channels), out = spec_add_value(m->p, r->channels);
    spec_op *op = spec_add_op(m->p, SPEC_MULTIPLY);
    op->x = b, op->y = x, op->out = mixed, op->width = r->channels;
    op = spec_add_op(m->p, SPEC_CONV);
    op->x = mixed, op->y = c, op->out = out, op->layer = m->recurring++;
    op->vector = vector(m, r->kernel * r->channels, 1);
    return linear(m, out, r->channels, m->width, m->x, m->x);
}

/* act(gate) * up of one product with both matrices, which have one type. */
static int paired_glu(model *m, int inner) {
    int type = type_for(m, m->width), out = spec_add_value(m->p, inner);
    int32_t qrows = quantised(m, m->norm, m->width, type);
    spec_op *op = spec_add_op(m->p, SPEC_LINEAR);
    op->qrows = qrows, op->parts = 1, op->outs[0] = out, op->paired = 1, op->glu = between(m->d, 0, 2);
    op->weights[0] = pairs(m, type, inner, m->width, 1).one;
    return out;
}

/* The same of two products. */
static int single_glu(model *m, int inner) {
    int gate = linear(m, m->norm, m->width, inner, SPEC_NONE, SPEC_NONE);
    int up = linear(m, m->norm, m->width, inner, SPEC_NONE, SPEC_NONE), out = spec_add_value(m->p, inner);
    spec_op *op = spec_add_op(m->p, SPEC_GLU);
    op->x = gate, op->y = up, op->out = out, op->width = inner, op->glu = between(m->d, 0, 2);
    return out;
}

static int feed_forward(model *m) {
    int inner = 32 * between(m->d, 1, 8);
    return onto_stream(m, toss(m->d) ? paired_glu(m, inner) : single_glu(m, inner), inner);
}

static void mixture_ops(model *m, const spec_op *made, int scores, int add, int out) {
    static const int kinds[] = {SPEC_ROUTE, SPEC_SORT, SPEC_GATHER, SPEC_UP, SPEC_MIDDLE, SPEC_DOWN, SPEC_SUM};
    for (int i = 0; i < 7; i++) {
        spec_op *op = spec_add_op(m->p, kinds[i]);
        *op = *made;
        op->kind = kinds[i], op->x = kinds[i] == SPEC_ROUTE ? scores : m->norm, op->y = add, op->out = out;
    }
}

static int experts(model *m) {
    int count = between(m->d, 2, 6), inner = 32 * between(m->d, 1, 3), sigmoid = toss(m->d);
    int up = type_for(m, m->width), down = type_for(m, inner);
    int scores = linear(m, m->norm, m->width, count, SPEC_NONE, SPEC_NONE);
    spec_mixture sizes = {.top = between(m->d, 1, count), .experts = count, .k = m->width, .inner = inner};
    sizes.bits = bits_for(m, up), sizes.inner_bits = bits_for(m, down);
    spec_op made = {.qrows = SPEC_NONE, .up = pairs(m, up, inner, m->width, count)};
    made.mixture = spec_add_mixture(m->p, &sizes);
    int normalise = toss(m->d);
    made.router = (spec_router){count,
                                sizes.top,
                                normalise,
                                sigmoid,
                                1,
                                1,
                                1.5f,
                                sigmoid ? vector(m, count, 1) : NULL,
                                toss(m->d) ? vector(m, count, 1) : NULL};
    int tiles = (m->width + 15) / 16;
    made.down.one = matrix(m->d, down, 16 * tiles * count, inner, 0);
    made.down.one.n = m->width, made.down.one.tiles = tiles, made.down.bytes = (size_t)tiles * made.down.one.tile_bytes;
    made.glu = between(m->d, 0, 2);
    for (int i = 0, biased = toss(m->d); biased && i < 3; i++)
        made.biases[i] = vector(m, count * 16 * ((i < 2 ? inner : m->width) / 16 + 1), 1);
    if (toss(m->d)) {
        mixture_ops(m, &made, scores, m->x, m->x);
        return m->x;
    }
    int out = spec_add_value(m->p, m->width);
    mixture_ops(m, &made, scores, SPEC_NONE, out);
    spec_op *op = spec_add_op(m->p, SPEC_ADD);
    op->x = m->x, op->y = out, op->out = m->x, op->width = m->width, op->scale = 0.75f;
    return m->x;
}

/* Recurrent layers are short convolutions. */
static void short_sizes(model *m) {
    spec_recurrence *r = &m->p->recurrence;
    free(r->key_of);
    *r = (spec_recurrence){.kernel = r->kernel, .channels = 32 * between(m->d, 1, 9)};
}

/* Heads of all layers alike, or of each of its own size; the smallest width. */
static int shapes_of(model *m) {
    static const int dims[] = {16, 32, 40, 64, 96, 128, 256};
    int differ = toss(m->d), least = SPEC_MAX_HEAD;
    int32_t *copy = malloc(sizeof m->shapes); /* the program frees it */
    for (int i = 0; i < LAYERS; i++) {
        int alike = i && !differ, kv_heads = alike ? m->shapes[0][0] : between(m->d, 1, 2);
        m->heads[i] = alike ? m->heads[0] : kv_heads * between(m->d, 1, 4), m->shapes[i][0] = kv_heads;
        m->shapes[i][1] = alike ? m->shapes[0][1] : 2 * one_of(m->d, dims, 7);
        int latent = kv_heads == 1 && toss(m->d) ? 16 * between(m->d, 1, m->shapes[i][1] / 16) : 0;
        m->shapes[i][2] = alike ? m->shapes[0][2] : latent;
        m->shapes[i][3] = i % 2;
        least = m->shapes[i][1] < least ? m->shapes[i][1] : least;
    }
    memcpy(copy, m->shapes, sizeof m->shapes);
    m->p->memory = (spec_memory){between(m->d, 0, 2), LAYERS, 0, 0, copy};
    return least;
}

static void sizes_of(model *m) {
    static const int widths[] = {32, 64, 96, 160, 256};
    spec_program *p = m->p;
    m->bits = toss(m->d) ? 15 : 8, m->width = one_of(m->d, widths, 5), m->vocabulary = between(m->d, 17, 90);
    int dim = shapes_of(m);
    p->tables = SPEC_TABLES, p->positions = PLACES;
    for (spec_rotary *t = p->rotary; t < p->rotary + SPEC_TABLES; t++) {
        t->rotary_dim = toss(m->d) ? dim : dim / 2;
        t->cosines = numbers(m->d, (size_t)(PLACES * t->rotary_dim), 1);
        t->sines = numbers(m->d, (size_t)(PLACES * t->rotary_dim), 1);
    }
    int keys = between(m->d, 1, 2), values = keys * between(m->d, 1, 2);
    spec_recurrence r = {.key_heads = keys, .value_heads = values};
    r.key_dim = 16 * between(m->d, 1, 4), r.value_dim = 32 * between(m->d, 1, 2), r.kernel = between(m->d, 2, 4);
    r.channels = 2 * keys * r.key_dim + values * r.value_dim;
    r.decays = values * (toss(m->d) ? r.key_dim : 1);
    r.key_of = malloc(sizeof *r.key_of * (size_t)values); /* the program frees it */
    for (int h = 0; h < values; h++) r.key_of[h] = h % keys;
    p->recurrence = r;
    if (toss(m->d)) short_sizes(m);
}

static void embed(model *m) {
    spec_op *op = spec_add_op(m->p, SPEC_EMBED);
    op->out = m->x, op->width = m->width, op->scale = toss(m->d) ? 1 : 1.5f;
    op->weights[0] = matrix(m->d, type_for(m, m->width), m->vocabulary, m->width, 0);
    m->p->vocabulary = m->vocabulary;
}

static void build(model *m) {
    sizes_of(m);
    m->x = spec_add_value(m->p, m->width), m->norm = spec_add_value(m->p, m->width);
    embed(m);
    for (int layers = between(m->d, 1, LAYERS), i = 0; i < layers; i++) {
        norm(m, m->x, m->norm);
        if (between(m->d, 0, 2)) attention(m);
        else if (m->p->recurrence.value_heads) gated_delta(m);
        else short_convolution(m);
        norm(m, m->x, m->norm);
        if (between(m->d, 0, 2)) feed_forward(m);
        else experts(m);
    }
    norm(m, m->x, m->norm);
    int logits = linear(m, m->norm, m->width, m->vocabulary, SPEC_NONE, SPEC_NONE);
    if (toss(m->d)) {
        spec_op *cap = spec_add_op(m->p, SPEC_SOFTCAP);
        cap->x = logits, cap->width = m->vocabulary, cap->cap = 0.5f;
    }
    spec_op *op = spec_add_op(m->p, SPEC_TAP);
    op->x = logits, op->index = 0, m->p->taps = 1, m->p->recurring = m->recurring;
}

/* What one sequence remembers. */
typedef struct {
    spec_slot cache;
    float *matrices, *windows;
} memory;

static memory memory_of(const model *m) {
    const spec_recurrence *r = &m->p->recurrence;
    size_t layers = STATES * (size_t)(m->recurring + 1);
    const spec_memory *all = &m->p->memory;
    return (memory){
        {{room(spec_memory_bytes(all, 0, PLACES)), PLACES, 0}, {room(spec_memory_bytes(all, 1, PLACES)), PLACES, 0}},
        room(layers * (size_t)(r->value_heads * r->key_dim * r->value_dim) * sizeof(float)),
        room(layers * (size_t)((r->kernel - 1) * r->channels) * sizeof(float))};
}

/* `rows` rows behind `start`, the first `chain` of them in line and kept: their logits, hashed. */
static uint64_t forward(model *m, memory *past, int start, int rows, int chain, uint64_t hash) {
    int32_t *parents = room(4 * (size_t)rows), *source = room(4 * (size_t)rows), *keep = room(4 * (size_t)rows);
    int32_t *recorded = room(4 * (size_t)rows);
    int64_t *tokens = room(8 * (size_t)rows), *positions = room(8 * (size_t)rows);
    size_t stride = spec_round_up((size_t)m->vocabulary, 16);
    float *logits = room(stride * (size_t)rows * sizeof *logits);
    for (int i = 0; i < rows; i++) {
        parents[i] = i < chain ? i - 1 : between(m->d, chain - 1, i - 1), keep[i] = i == chain - 1 ? 0 : -1;
        tokens[i] = between(m->d, 0, m->vocabulary - 1), recorded[i] = -1;
        positions[i] = parents[i] < 0 ? start : positions[parents[i]] + 1;
    }
    spec_sequence sequence = {0, rows, start, spec_chain(parents, 0, rows), 1, parents};
    spec_request q = {.rows = rows,
                      .sequences = 1,
                      .tokens = tokens,
                      .positions = positions,
                      .each = 1,
                      .sequence = &sequence,
                      .memory = &past->cache,
                      .parents = parents,
                      .matrices = past->matrices,
                      .windows = past->windows,
                      .states = STATES,
                      .source = source,
                      .keep = keep,
                      .recorded = recorded};
    q.taps = &logits, q.tap_strides = &stride;
    if (spec_reserve(m->p, (int)spec_round_up((size_t)rows, 16)) || spec_run(m->p, &q)) abort();
    for (int i = 0; i < rows; i++) hash = hash_floats(hash, logits + (size_t)i * stride, (size_t)m->vocabulary);
    return hash;
}

static uint64_t run(const char *isa, uint64_t seed) {
    draws d = draws_of(seed);
    model m = {.p = spec_program_new(isa, 1), .d = &d};
    if (!m.p) return 0;
    build(&m);
    memory past = memory_of(&m);
    uint64_t hash = forward(&m, &past, 0, PROMPT, PROMPT, HASH);
    hash = forward(&m, &past, PROMPT, 4 + DRAFTS, 4, hash);
    hash = forward(&m, &past, PROMPT + 4, 1, 1, hash);
    spec_program_free(m.p);
    return hash;
}

const part forwards = {"forwards", 60, run};
