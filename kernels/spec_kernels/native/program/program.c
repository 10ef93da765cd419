/* Builds a program, and lays out the memory of its forwards. */
#include "program.h"
#include "ops/layout.h"

#include <stdlib.h>
#include <string.h>

static void *aligned(size_t bytes) {
    void *made = NULL;
    return posix_memalign(&made, 64, spec_round_up(bytes ? bytes : 1, 64)) ? NULL : made;
}

/* Appends one element to `count` elements; NULL if an allocation fails. */
static void *one_more(void **array, int32_t count, size_t size) {
    void *grown = realloc(*array, (size_t)(count + 1) * size);
    if (!grown) return NULL;
    *array = grown;
    return memset((char *)grown + (size_t)count * size, 0, size);
}

spec_program *spec_program_new(const char *isa, int threads) {
    const spec_product_table *product = spec_products(isa);
    const spec_ops_table *ops = spec_ops(isa);
    spec_program *p = product && ops ? calloc(1, sizeof *p) : NULL;
    if (!p) return NULL;
    p->product = product, p->ops_table = ops, p->threads = threads;
    return p;
}

static void free_mixture(spec_mixture *m) {
    free(m->weights), free(m->chosen), free(m->place), free(m->row), free(m->begin), free(m->expert);
    free(m->at), free(m->inner_at), free(m->qrows), free(m->inner_qrows), free(m->f), free(m->expert_out);
}

static void free_scratch(spec_program *p) {
    for (int i = 0; i < p->widths; i++) free(p->scratch[i]);
    free(p->scratch);
    p->scratch = NULL, p->widths = 0, p->scratch_bytes = 0;
}

void spec_program_free(spec_program *p) {
    if (!p) return;
    for (int i = 0; i < p->vector_count; i++) free(p->vectors[i]);
    for (int i = 0; i < p->mixture_count; i++) free_mixture(&p->mixtures[i]);
    free_scratch(p);
    free(p->vectors), free(p->mixtures), free(p->ops), free(p->values), free(p->qrows), free(p->arena);
    free(p->recurrence.key_of), free((void *)p->memory.shapes), free(p);
}

int32_t spec_add_value(spec_program *p, int width) {
    spec_value *v = one_more((void **)&p->values, p->value_count, sizeof *v);
    if (!v) return SPEC_NONE;
    v->width = width, v->stride = spec_round_up((size_t)width, 16), v->tap = SPEC_NONE;
    return p->value_count++;
}

int32_t spec_add_qrows(spec_program *p, int k, int bits) {
    spec_qrows *made = one_more((void **)&p->qrows, p->qrows_count, sizeof *made);
    if (!made) return SPEC_NONE;
    made->k = k, made->bits = bits, made->group_bytes = p->product->rows_bytes(k, bits, SPEC_GROUP);
    return p->qrows_count++;
}

int32_t spec_add_mixture(spec_program *p, const spec_mixture *sizes) {
    spec_mixture *made = one_more((void **)&p->mixtures, p->mixture_count, sizeof *made);
    if (!made) return SPEC_NONE;
    *made = *sizes;
    return p->mixture_count++;
}

spec_op *spec_add_op(spec_program *p, int kind) {
    spec_op *op = one_more((void **)&p->ops, p->count, sizeof *op);
    if (!op) return NULL;
    p->count++;
    op->kind = kind, op->x = op->y = op->out = op->qrows = op->mixture = SPEC_NONE;
    return op;
}

/* x and out are set by the caller. heads: matrices, width: numbers of a head that stay, index: bits */
spec_op *spec_add_head_linear(spec_program *p, const spec_stack *matrices, int heads, int kept, int bits) {
    spec_op *op = spec_add_op(p, SPEC_HEAD_LINEAR);
    size_t bytes = p->product->rows_bytes(matrices->one.k, bits, SPEC_GROUP);
    if (!op) return NULL;
    op->up = *matrices, op->heads = heads, op->width = kept, op->index = bits;
    if (bytes > p->head_rows) p->head_rows = bytes;
    return op;
}

float *spec_keep(spec_program *p, const float *from, int count) {
    float **place = one_more((void **)&p->vectors, p->vector_count, sizeof *place);
    size_t bytes = spec_round_up((size_t)count, 16) * sizeof(float);
    float *copy = place ? aligned(bytes) : NULL;
    if (!copy) return NULL;
    memset(copy, 0, bytes);
    memcpy(copy, from, (size_t)count * sizeof(float));
    p->vector_count++;
    return *place = copy;
}

/* ---- memory of a forward: one arena, laid out twice: first to compute its size */

static uint8_t *take(uint8_t **at, size_t bytes) {
    uint8_t *taken = *at;
    *at += spec_round_up(bytes, 64);
    return taken;
}

static void lay_out(spec_program *p, uint8_t **at, size_t rows) {
    for (int i = 0; i < p->value_count; i++) {
        spec_value *v = &p->values[i];
        if (v->tap == SPEC_NONE) v->data = (float *)take(at, rows * v->stride * sizeof(float));
    }
    for (int i = 0; i < p->qrows_count; i++)
        p->qrows[i].data = take(at, (size_t)spec_groups((int)rows) * p->qrows[i].group_bytes);
    for (spec_rotary *t = p->rotary; t < p->rotary + p->tables; t++) {
        t->row_cos = (float *)take(at, rows * (size_t)t->rotary_dim / 2 * sizeof(float));
        t->row_sin = (float *)take(at, rows * (size_t)t->rotary_dim / 2 * sizeof(float));
    }
    p->slots = (int32_t *)take(at, rows * sizeof(int32_t));
    p->rows_left = (int32_t *)take(at, rows * sizeof(int32_t));
}

static int reserve_mixture(const spec_program *p, spec_mixture *m, size_t rows) {
    size_t pairs = rows * (size_t)m->top;
    size_t experts = (size_t)m->experts + 1, used = experts < pairs ? experts : pairs;
    size_t outer = p->product->rows_bytes(m->k, m->bits, 1), inner = p->product->rows_bytes(m->inner, m->inner_bits, 1);
    size_t width = spec_round_up((size_t)m->k, 16), f = spec_round_up((size_t)m->inner, 16);
    spec_mixture sizes = *m;
    free_mixture(m);
    *m = sizes;
    m->weights = aligned(pairs * sizeof(float)), m->chosen = aligned(pairs * sizeof(int32_t));
    m->place = aligned(pairs * sizeof(int32_t)), m->row = aligned(pairs * sizeof(int32_t));
    m->begin = aligned((experts + 1) * sizeof(int32_t)), m->expert = aligned(experts * sizeof(int32_t));
    m->at = aligned(experts * sizeof(size_t)), m->inner_at = aligned(experts * sizeof(size_t));
    m->qrows = aligned((pairs + used) * outer), m->inner_qrows = aligned((pairs + used) * inner);
    m->f = aligned(pairs * f * sizeof(float)), m->expert_out = aligned(pairs * width * sizeof(float));
    return m->weights && m->chosen && m->place && m->row && m->begin && m->expert && m->at && m->inner_at && m->qrows &&
                   m->inner_qrows && m->f && m->expert_out
               ? 0
               : -1;
}

int spec_reserve(spec_program *p, int rows) {
    if (rows <= p->capacity) return 0;
    uint8_t *at = NULL;
    lay_out(p, &at, (size_t)rows);
    size_t bytes = (size_t)(at - (uint8_t *)NULL);
    free(p->arena);
    p->capacity = 0;
    p->arena = at = aligned(bytes);
    if (!at) return -1;
    memset(at, 0, bytes);
    lay_out(p, &at, (size_t)rows);
    for (int i = 0; i < p->mixture_count; i++)
        if (reserve_mixture(p, &p->mixtures[i], (size_t)rows)) return -1;
    p->capacity = rows;
    return 0;
}

/* ---- caches */

/* Bytes of the first `layers` layers: of the ones with a window, or of the ones without. */
static size_t bytes_before(const spec_memory *m, int windowed, int places, int layers) {
    size_t bytes = 0, head = 0;
    for (int i = 0, dim = -1, latent = -1; i < layers; i++) {
        const int32_t *shape = m->shapes + SPEC_SHAPE * i;
        if (shape[3] != windowed) continue;
        if (shape[1] != dim || shape[2] != latent) {
            dim = shape[1], latent = shape[2];
            head = spec_key_bytes(m->kind, dim, places) + (latent ? 0 : spec_value_bytes(m->kind, dim, places));
        }
        bytes += (size_t)shape[0] * head;
    }
    return bytes;
}

size_t spec_memory_bytes(const spec_memory *m, int windowed, int places) {
    return bytes_before(m, windowed, places, m->layers);
}

/* Where position 0 would be, if the position in place 0 is `first`. Rows before that are never read. */
static uint8_t *from_zero(const uint8_t *data, int first, size_t tile_bytes) {
    return (uint8_t *)((uintptr_t)data - (uintptr_t)(first / SPEC_TILE) * tile_bytes);
}

spec_cache spec_memory_layer(const spec_memory *m, const spec_slot *slot, int layer) {
    const int32_t *shape = m->shapes + SPEC_SHAPE * layer;
    const spec_piece *piece = shape[3] ? &slot->recent : &slot->whole;
    int kv_heads = shape[0], dim = shape[1], latent = shape[2], value_dim = latent ? latent : dim;
    size_t key = spec_key_bytes(m->kind, dim, piece->places);
    size_t value = latent ? 0 : spec_value_bytes(m->kind, dim, piece->places);
    uint8_t *keys = piece->data + bytes_before(m, shape[3], piece->places, layer);
    uint8_t *values = keys + (size_t)kv_heads * key;
    if (piece->first) {
        keys = from_zero(keys, piece->first, spec_key_tile(m->kind, dim));
        values = from_zero(values, piece->first, spec_value_tile(m->kind, value_dim));
    }
    int end = piece->first + piece->places;
    return (spec_cache){m->kind, kv_heads, dim, value_dim, end, latent > 0, keys, values, key, value};
}
