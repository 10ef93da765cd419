/* Operations that use other rows of a sequence: attention and its index, convolutions, the gated delta rule, and the scan. */
#include "program.h"

#define CHANNELS 256 /* channels of a convolution per job */
#define PART 4       /* rows of a sequence */
#define ALONE 150000 /* min multiplications of a job that is worth another thread */

/* Rows of a sequence in the batch. */
static int rows_of(const spec_program *p, int s) { return p->request->sequence[s].rows - spec_held(p->request, s); }

/* Parts into which the query heads of a layer are divided: its kv heads. A latent has one, whose query heads are
   divided by the number of threads. */
static int heads_of(const spec_program *p, const spec_op *op) {
    int parts = op->kv_heads;
    if (!p->memory.shapes[SPEC_SHAPE * op->layer + 2]) return parts;
    for (int i = 2; i <= p->team; i++)
        if (op->heads % i == 0) parts = i;
    return parts;
}

/* Rows of a sequence per job of attention. Few jobs leave threads idle at the end of the phase: with 2 threads, 3 kv
   heads take as long as 4. Rows are then divided into the number of parts that finishes first; every part reads
   the cache again, so a part has at least PART rows. */
static int rows_per_job(const spec_program *p, const spec_op *op, int s) {
    int rows = rows_of(p, s);
    int heads = heads_of(p, op) * p->request->sequences, best = 1, rounds = (heads + p->team - 1) / p->team;
    for (int parts = 2; parts <= p->team && parts * PART <= rows; parts++) {
        int more = (heads * parts + p->team - 1) / p->team;
        if (more * best < rounds * parts) best = parts, rounds = more;
    }
    return spec_min(SPEC_GROUP, (rows + best - 1) / best);
}

/* Approximate cost of a row at the end of a sequence. */
static int64_t of_a_row(const spec_program *p, const spec_op *op, const spec_sequence *s) {
    const spec_recurrence *r = &p->recurrence;
    if (op->kind == SPEC_CONV) return (int64_t)r->channels * r->kernel;
    if (op->kind == SPEC_DELTA) return (int64_t)r->value_heads * r->key_dim * r->value_dim * 3;
    if (op->kind == SPEC_INDEX) return (int64_t)(s->start + s->rows) / op->index * op->heads * op->dim;
    return (int64_t)(s->start + s->rows) * op->heads * op->dim * 2;
}

static int64_t multiplications(const spec_program *p, const spec_op *op) {
    int64_t sum = 0;
    for (int s = 0; s < p->request->sequences; s++) sum += rows_of(p, s) * of_a_row(p, op, &p->request->sequence[s]);
    return sum;
}

/* Number of jobs of sequence s. */
static int jobs_of(const spec_program *p, const spec_op *op, int s) {
    if (op->kind == SPEC_CONV) return (p->recurrence.channels + CHANNELS - 1) / CHANNELS;
    if (op->kind == SPEC_DELTA) return p->recurrence.value_heads;
    if (op->kind == SPEC_INDEX) return spec_groups(rows_of(p, s));
    int rows = rows_per_job(p, op, s);
    return heads_of(p, op) * ((rows_of(p, s) + rows - 1) / rows);
}

static int all_jobs(const spec_program *p, const spec_op *op) {
    int sum = 0;
    for (int s = 0; s < p->request->sequences; s++) sum += jobs_of(p, op, s);
    return sum;
}

int spec_mixing_jobs(const spec_program *p, const spec_op *op) {
    int jobs = all_jobs(p, op);
    if (p->team < 2 || multiplications(p, op) < ALONE) return 1;
    return spec_min(jobs, SPEC_MAX_JOBS);
}

static void attend(spec_program *p, const spec_op *op, int s, int job, void *scratch) {
    const spec_request *q = p->request;
    spec_sequence seq = q->sequence[s];
    int rows = rows_per_job(p, op, s), parts = heads_of(p, op), head = job % parts;
    int row = spec_held(q, s) + job / parts * rows;
    spec_cache cache = spec_memory_layer(&p->memory, &q->memory[s], op->layer);
    if (parts != cache.kv_heads) cache.kv_heads = parts, cache.key_head_bytes = 0; /* all parts read the same keys */
    spec_attention a = {op->heads,
                        op->window,
                        op->lead,
                        op->scale,
                        spec_rows_of(p, op->x, 0),
                        p->values[op->x].stride,
                        spec_rows_of(p, op->out, 0),
                        p->values[op->out].stride,
                        NULL,
                        0,
                        op->cap,
                        op->vector,
                        op->index,
                        NULL,
                        0,
                        0,
                        op->parts};
    if (op->y != SPEC_NONE) a.gate = spec_rows_of(p, op->y, 0), a.gate_stride = p->values[op->y].stride;
    if (op->xs[0] != SPEC_NONE) {
        a.pools = spec_rows_of(p, op->xs[0], 0), a.pools_stride = p->values[op->xs[0]].stride;
        a.used = p->values[op->xs[0]].width;
    }
    if (!op->causal || !seq.causal) seq.causal = 0, seq.chain = seq.rows;
    p->ops_table->attend(&a, &cache, &seq, head, row, spec_min(rows, seq.rows - row), scratch);
}

/* x: queries, y: weights, vector: base, index: positions of a pool, parts: pools that are chosen */
static void choose_pools(spec_program *p, const spec_op *op, int s, int job, void *scratch) {
    const spec_request *q = p->request;
    spec_sequence seq = q->sequence[s];
    int row = spec_held(q, s) + job * SPEC_GROUP;
    spec_cache cache = spec_memory_layer(&p->memory, &q->memory[s], op->layer);
    spec_index a = {op->heads,
                    op->dim,
                    op->index,
                    op->parts,
                    spec_rows_of(p, op->x, 0),
                    p->values[op->x].stride,
                    spec_rows_of(p, op->y, 0),
                    p->values[op->y].stride,
                    op->vector,
                    spec_rows_of(p, op->out, 0),
                    p->values[op->out].stride};
    if (!seq.causal) seq.chain = seq.rows;
    p->ops_table->choose_pools(&a, &cache, &seq, row, spec_min(SPEC_GROUP, seq.rows - row), scratch);
}

static void convolve(spec_program *p, const spec_op *op, int s, int job, void *scratch) {
    const spec_request *q = p->request;
    const spec_recurrence *r = &p->recurrence;
    size_t window = (size_t)(r->kernel - 1) * (size_t)r->channels;
    spec_conv c = {r->channels,
                   r->kernel,
                   spec_rows_of(p, op->x, 0),
                   p->values[op->x].stride,
                   op->y == SPEC_NONE ? NULL : spec_rows_of(p, op->y, 0),
                   op->y == SPEC_NONE ? 0 : p->values[op->y].stride,
                   op->vector,
                   q->windows + (size_t)op->layer * (size_t)q->states * window,
                   spec_rows_of(p, op->out, 0),
                   p->values[op->out].stride,
                   q->parents,
                   q->source,
                   q->keep,
                   op->vector2};
    int channel = job * CHANNELS;
    p->ops_table->conv(&c, q->sequence[s].first, q->sequence[s].rows, channel,
                       spec_min(CHANNELS, r->channels - channel), scratch);
}

/* x: q | k | v, y: g | beta, out: o, outs[0]: d, vector: skip of the scan, or NULL */
static void recur(spec_program *p, const spec_op *op, int s, int head, void *scratch) {
    const spec_request *q = p->request;
    const spec_recurrence *r = &p->recurrence;
    size_t keys = (size_t)r->key_heads * (size_t)r->key_dim;
    size_t state = (size_t)r->value_heads * (size_t)r->key_dim * (size_t)r->value_dim;
    const float *mixed = spec_rows_of(p, op->x, 0), *rates = spec_rows_of(p, op->y, 0);
    spec_delta a = {
        .key_heads = r->key_heads,
        .value_heads = r->value_heads,
        .key_dim = r->key_dim,
        .value_dim = r->value_dim,
        .g_width = r->decays / r->value_heads,
        .q = mixed,
        .k = mixed + keys,
        .v = mixed + 2 * keys,
        .g = rates,
        .beta = rates + r->decays,
        .stride = p->values[op->x].stride,
        .g_stride = p->values[op->y].stride,
        .beta_stride = p->values[op->y].stride,
        .o = spec_rows_of(p, op->out, 0),
        .o_stride = p->values[op->out].stride,
        .d = q->record ? spec_rows_of(p, op->outs[0], 0) : NULL,
        .d_stride = p->values[op->outs[0]].stride,
        .states = q->matrices + (size_t)op->layer * (size_t)q->states * state,
        .key_of = r->key_of,
        .parents = q->parents,
        .source = q->source,
        .keep = q->keep,
        .slot = p->slots,
        .skip = op->vector,
    };
    p->ops_table->delta(&a, q->sequence[s].first, q->sequence[s].rows, head, scratch);
}

/* Job number `job` of an operation. */
static void one(spec_program *p, const spec_op *op, int job, int thread) {
    int s = 0;
    for (int mine; job >= (mine = jobs_of(p, op, s)); s++) job -= mine;
    void *scratch = p->scratch[thread];
    if (op->kind == SPEC_ATTEND) attend(p, op, s, job, scratch);
    else if (op->kind == SPEC_INDEX) choose_pools(p, op, s, job, scratch);
    else if (op->kind == SPEC_CONV) convolve(p, op, s, job, scratch);
    else recur(p, op, s, job, scratch);
}

void spec_do_mixing(spec_program *p, const spec_op *op, int job, int thread) {
    int works = all_jobs(p, op);
    for (int i = job; i < works; i += p->jobs) one(p, op, i, thread);
}

/* Bytes for all indexes of a program. */
static size_t index_scratch(const spec_program *p) {
    size_t bytes = 0;
    for (const spec_op *op = p->ops; op < p->ops + p->count; op++)
        for (int s = 0; op->kind == SPEC_INDEX && s < p->request->sequences; s++) {
            const spec_sequence *seq = &p->request->sequence[s];
            size_t needed = spec_index_scratch(seq->start + seq->rows, seq->rows, op->index, op->dim);
            if (needed > bytes) bytes = needed;
        }
    return bytes;
}

size_t spec_scratch_needed(const spec_program *p) {
    const spec_request *q = p->request;
    size_t bytes = p->head_rows + 256 * 16 * sizeof(float); /* matmul_ops.c: rows of a head, results of tiles */
    size_t experts = p->mixture_count ? spec_round_up((size_t)q->rows, 256) * 2 * 16 * sizeof(float) : 0;
    if (experts > bytes) bytes = experts;
    int places = 0;
    for (int s = 0; s < q->sequences; s++) {
        int end = q->sequence[s].start + q->sequence[s].rows;
        if (end > places) places = end;
    }
    size_t attention = spec_attention_scratch(places);
    size_t index = index_scratch(p);
    if (attention > bytes) bytes = attention;
    if (index > bytes) bytes = index;
    if (p->recurring) {
        size_t conv = spec_conv_scratch(p->recurrence.kernel, CHANNELS);
        size_t delta = spec_delta_scratch(p->recurrence.key_dim, p->delta_slots);
        if (conv > bytes) bytes = conv;
        if (delta > bytes) bytes = delta;
    }
    return bytes;
}
