/* Row-wise operations: consecutive operations run on a group of rows, one after another. */
#include "program.h"

#include <math.h>
#include <string.h>

static void embed(spec_program *p, const spec_op *op, int first, int rows) {
    const spec_request *q = p->request;
    size_t bytes = (size_t)op->width * sizeof(float);
    for (int r = first; r < first + rows; r++) {
        float *out = spec_rows_of(p, op->out, r);
        int replaced = q->given && q->given[r];
        if (replaced && !op->index) memcpy(out, q->given[r], bytes);
        else {
            spec_row(&op->weights[0], replaced ? 0 : (int)q->tokens[r], out);
            for (int i = 0; op->scale != 1.0f && i < op->width; i++) out[i] *= op->scale;
        }
    }
}

static void input(spec_program *p, const spec_op *op, int first, int rows) {
    const spec_request *q = p->request;
    for (int r = first; r < first + rows; r++)
        memcpy(spec_rows_of(p, op->out, r), q->inputs[op->index] + (size_t)r * q->input_strides[op->index],
               (size_t)op->width * sizeof(float));
}

/* Normalises rows, or `heads` groups of each apart. index: the mean of a row is subtracted before. vector2: a bias. */
static void norm(spec_program *p, const spec_op *op, int first, int rows) {
    size_t stride = p->values[op->x].stride, out_stride = p->values[op->out].stride;
    const float *x = spec_rows_of(p, op->x, first);
    float *out = spec_rows_of(p, op->out, first);
    for (int r = 0; op->index && r < rows; r++) {
        const float *from = x + (size_t)r * stride;
        float *to = out + (size_t)r * out_stride;
        double sum = 0;
        for (int i = 0; i < op->width; i++) sum += (double)from[i];
        for (int i = 0; i < op->width; i++) to[i] = from[i] - (float)(sum / op->width);
    }
    if (op->index) x = out, stride = out_stride;
    for (int g = 0, width = op->width / op->heads; g < op->width; g += width)
        p->ops_table->norm(x + g, stride, op->vector + g, op->eps, rows, width, out + g, out_stride);
    if (op->vector2) p->ops_table->add(out, out_stride, op->vector2, 0, NULL, rows, op->width);
}

/* Of streams: x: what the weights are computed from, vector: base, vector2: scales, heads: streams, parts: rounds */
static void stream_weights(spec_program *p, const spec_op *op, int first, int rows) {
    p->ops_table->stream_weights(spec_rows_of(p, op->x, first), p->values[op->x].stride, op->vector, op->vector2, rows,
                                 op->heads, op->eps, op->parts, spec_rows_of(p, op->out, first),
                                 p->values[op->out].stride);
}

/* y: weights or SPEC_NONE, width: of one stream */
static void stream_sum(spec_program *p, const spec_op *op, int first, int rows) {
    int weighted = op->y != SPEC_NONE;
    p->ops_table->stream_sum(spec_rows_of(p, op->x, first), p->values[op->x].stride,
                             weighted ? spec_rows_of(p, op->y, first) : NULL, weighted ? p->values[op->y].stride : 0,
                             rows, op->heads, op->width, spec_rows_of(p, op->out, first), p->values[op->out].stride);
}

/* y: the result of a layer, xs: weights */
static void stream_mix(spec_program *p, const spec_op *op, int first, int rows) {
    p->ops_table->stream_mix(spec_rows_of(p, op->x, first), p->values[op->x].stride, spec_rows_of(p, op->y, first),
                             p->values[op->y].stride, spec_rows_of(p, op->xs[0], first), p->values[op->xs[0]].stride,
                             rows, op->heads, op->width);
}

static void scale(spec_program *p, const spec_op *op, int first, int rows) {
    for (int r = first; r < first + rows; r++) {
        float *x = spec_rows_of(p, op->x, r);
        for (int i = 0; i < op->width; i++) x[i] *= op->scale;
    }
}

/* Normalises and rotates each head, or does one of both. */
static void heads(spec_program *p, const spec_op *op, int first, int rows) {
    size_t half = (size_t)op->rotary_dim / 2;
    const spec_rotary *table = &p->rotary[op->table];
    const float *cosines = op->rotary_dim ? table->row_cos + (size_t)first * half : NULL;
    const float *sines = op->rotary_dim ? table->row_sin + (size_t)first * half : NULL;
    p->ops_table->heads(spec_rows_of(p, op->x, first), p->values[op->x].stride, rows, op->heads, op->dim, op->vector,
                        op->eps, cosines, sines, half, op->rotary_dim);
}

/* Stores rows first ... first + rows - 1 in the caches of their sequences. */
static void store(spec_program *p, const spec_op *op, int first, int rows) {
    const spec_request *q = p->request;
    for (int s = 0; s < q->sequences; s++) {
        const spec_sequence *seq = &q->sequence[s];
        int new = seq->first + spec_held(q, s), begin = first > new ? first : new;
        int end = spec_min(first + rows, seq->first + seq->rows);
        if (begin >= end) continue;
        spec_cache cache = spec_memory_layer(&p->memory, &q->memory[s], op->layer);
        int apart = op->y != SPEC_NONE;
        p->ops_table->store(&cache, seq->start + begin - seq->first, end - begin, spec_rows_of(p, op->x, begin),
                            p->values[op->x].stride, apart ? spec_rows_of(p, op->y, begin) : NULL,
                            apart ? p->values[op->y].stride : 0, 0, op->kv_heads);
    }
}

static void quantise(spec_program *p, const spec_op *op, int first, int rows) {
    const spec_qrows *qrows = &p->qrows[op->qrows];
    p->product->quantise(spec_rows_of(p, op->x, first), p->values[op->x].stride, rows, qrows->k, qrows->bits,
                         qrows->data + (size_t)(first / SPEC_GROUP) * qrows->group_bytes);
}

static void add(spec_program *p, const spec_op *op, int first, int rows) {
    for (int r = first; op->out != op->x && r < first + rows; r++)
        memmove(spec_rows_of(p, op->out, r), spec_rows_of(p, op->x, r), (size_t)op->width * sizeof(float));
    p->ops_table->add(spec_rows_of(p, op->out, first), p->values[op->out].stride, spec_rows_of(p, op->y, first),
                      p->values[op->y].stride, NULL, rows, op->width);
    for (int r = first; op->scale != 1.0f && r < first + rows; r++) {
        float *out = spec_rows_of(p, op->out, r);
        for (int i = 0; i < op->width; i++) out[i] *= op->scale;
    }
}

/* x += sqrt(mean(x^2)) y */
static void add_relative(spec_program *p, const spec_op *op, int first, int rows) {
    for (int r = first; r < first + rows; r++) {
        float *x = spec_rows_of(p, op->x, r), sum, size;
        p->ops_table->dot(x, 0, x, 0, 1, op->width, &sum);
        size = sqrtf(sum / (float)op->width);
        p->ops_table->add(x, 0, spec_rows_of(p, op->y, r), 0, &size, 1, op->width);
    }
}

static void concat(spec_program *p, const spec_op *op, int first, int rows) {
    for (int r = first; r < first + rows; r++) {
        float *out = spec_rows_of(p, op->out, r);
        for (int i = 0; i < op->parts; i++) {
            size_t width = (size_t)p->values[op->xs[i]].width;
            memcpy(out, spec_rows_of(p, op->xs[i], r), width * sizeof(float));
            out += width;
        }
    }
}

static void columns(spec_program *p, const spec_op *op, int first, int rows) {
    for (int r = first; r < first + rows; r++)
        memcpy(spec_rows_of(p, op->out, r), spec_rows_of(p, op->x, r) + op->index, (size_t)op->width * sizeof(float));
}

static void add_rows(spec_program *p, const spec_op *op, int first, int rows) {
    const spec_request *q = p->request;
    const float **given = q->given ? q->given + (size_t)(1 + op->index) * (size_t)q->rows : NULL;
    for (int r = first; given && r < first + rows; r++) {
        float *x = spec_rows_of(p, op->x, r);
        for (int i = 0; given[r] && i < op->width; i++) x[i] += given[r][i];
    }
}

static void tap(spec_program *p, const spec_op *op, int first, int rows) {
    const spec_request *q = p->request;
    if (!q->taps[op->index] || p->values[op->x].tap == op->index) return;
    for (int r = first; r < first + rows; r++)
        memcpy(q->taps[op->index] + (size_t)r * q->tap_strides[op->index], spec_rows_of(p, op->x, r),
               (size_t)p->values[op->x].width * sizeof(float));
}

/* After the convolution: normalises q and k, computes decay and beta. x: q | k | v, y: g | beta, xs: alpha, beta, cap: factor of beta.
   Without beta, for the scan, q and k stay, and the steps take its place. */
static void rates(spec_program *p, const spec_op *op, int first, int rows) {
    const spec_ops_table *t = p->ops_table;
    const spec_recurrence *s = &p->recurrence;
    size_t stride = p->values[op->x].stride, out_stride = p->values[op->y].stride;
    float *q = spec_rows_of(p, op->x, first), *g = spec_rows_of(p, op->y, first);
    const float *alpha = spec_rows_of(p, op->xs[0], first), *beta = NULL;
    size_t beta_stride = 0;
    if (op->xs[1] != SPEC_NONE) {
        t->unit(q, stride, rows, s->key_heads, s->key_dim, op->eps, op->scale);
        t->unit(q + s->key_heads * s->key_dim, stride, rows, s->key_heads, s->key_dim, op->eps, 1.0f);
        beta = spec_rows_of(p, op->xs[1], first), beta_stride = p->values[op->xs[1]].stride;
    }
    t->decay(alpha, p->values[op->xs[0]].stride, beta, beta_stride, op->vector, op->vector2, op->limit, rows, s->decays,
             s->value_heads, g, g + s->decays, out_stride);
    for (int r = 0; op->cap != 1.0f && r < rows; r++)
        for (int i = 0; i < s->value_heads; i++) g[(size_t)r * out_stride + (size_t)(s->decays + i)] *= op->cap;
}

static float *recorded(float *to, const float *from, int count) {
    memcpy(to, from, (size_t)count * sizeof(float));
    return to + count;
}

/* The record for replay, [x | k | d | g] in consecutive rows. xs: x, q k v, d, g */
static void record(spec_program *p, const spec_op *op, int first, int rows) {
    const spec_request *q = p->request;
    const spec_recurrence *s = &p->recurrence;
    int keys = s->key_heads * s->key_dim, values = s->value_heads * s->value_dim;
    size_t size = (size_t)(s->channels + keys + values + s->decays);
    if (!q->record) return;
    for (int r = first; r < first + rows; r++) {
        if (q->recorded[r] < 0) continue;
        float *to = q->record + ((size_t)op->layer * (size_t)q->records + (size_t)q->recorded[r]) * size;
        to = recorded(to, spec_rows_of(p, op->xs[0], r), s->channels);
        to = recorded(to, spec_rows_of(p, op->xs[1], r) + keys, keys);
        to = recorded(to, spec_rows_of(p, op->xs[2], r), values);
        recorded(to, spec_rows_of(p, op->xs[3], r), s->decays);
    }
}

void spec_do_rows(spec_program *p, const spec_op *op, int first, int rows) {
    const spec_ops_table *t = p->ops_table;
    const spec_value *v = p->values;
    switch (op->kind) {
    case SPEC_EMBED: embed(p, op, first, rows); break;
    case SPEC_INPUT: input(p, op, first, rows); break;
    case SPEC_HEADS: heads(p, op, first, rows); break;
    case SPEC_STORE: store(p, op, first, rows); break;
    case SPEC_QUANTISE: quantise(p, op, first, rows); break;
    case SPEC_GATE:
        t->gate(op->index, spec_rows_of(p, op->x, first), v[op->x].stride, spec_rows_of(p, op->y, first),
                v[op->y].stride, rows, op->width, v[op->y].width);
        break;
    case SPEC_CONCAT: concat(p, op, first, rows); break;
    case SPEC_COLUMNS: columns(p, op, first, rows); break;
    case SPEC_ADD_ROWS: add_rows(p, op, first, rows); break;
    case SPEC_TAP: tap(p, op, first, rows); break;
    case SPEC_RATES: rates(p, op, first, rows); break;
    case SPEC_RECORD: record(p, op, first, rows); break;
    case SPEC_STREAM_WEIGHTS: stream_weights(p, op, first, rows); break;
    case SPEC_STREAM_SUM: stream_sum(p, op, first, rows); break;
    case SPEC_STREAM_MIX: stream_mix(p, op, first, rows); break;
    case SPEC_ROUTE: spec_route_rows(p, op, first, rows); break;
    case SPEC_SUM: spec_sum_rows(p, op, first, rows); break;
    case SPEC_NORM: norm(p, op, first, rows); break;
    case SPEC_SCALE: scale(p, op, first, rows); break;
    case SPEC_GLU:
        t->glu(op->glu, op->limit, spec_rows_of(p, op->x, first), v[op->x].stride, spec_rows_of(p, op->y, first),
               v[op->y].stride, rows, op->width, spec_rows_of(p, op->out, first), v[op->out].stride);
        break;
    case SPEC_MULTIPLY:
        t->multiply(spec_rows_of(p, op->x, first), v[op->x].stride, spec_rows_of(p, op->y, first), v[op->y].stride,
                    rows, op->width, spec_rows_of(p, op->out, first), v[op->out].stride);
        break;
    case SPEC_ADD: add(p, op, first, rows); break;
    case SPEC_ADD_RELATIVE: add_relative(p, op, first, rows); break;
    case SPEC_SOFTCAP: t->softcap(spec_rows_of(p, op->x, first), v[op->x].stride, rows, op->width, op->cap); break;
    case SPEC_GATED_NORM:
        t->gated_norm(spec_rows_of(p, op->x, first), v[op->x].stride, spec_rows_of(p, op->y, first), v[op->y].stride,
                      op->vector, op->eps, rows, op->heads, op->dim, spec_rows_of(p, op->out, first),
                      v[op->out].stride);
        break;
    }
}
