/* A mixture of experts: selects experts for every row, then computes every selected expert for its rows.
 *
 *     out = add (or 0) + sum over the row's experts e of weight_e down_e(act(gate_e x) up_e x), best first,
 *     where up_e takes the place of gate_e if there is none
 *
 * A pair is a row and one of its experts; pairs are numbered by expert, then by row. */
#include "program.h"

#include <string.h>

#define OUTPUTS 256 /* max tiles times rows in scratch memory */

void spec_route_rows(spec_program *p, const spec_op *op, int first, int rows) {
    const spec_mixture *m = &p->mixtures[op->mixture];
    size_t at = (size_t)first * (size_t)m->top;
    p->ops_table->route(&op->router, spec_rows_of(p, op->x, first), p->values[op->x].stride, rows, m->weights + at,
                        m->chosen + at);
}

/* Numbers the pairs, and sets where the qrows of each expert's rows are stored. */
static void sort(spec_program *p, spec_mixture *m) {
    int pairs = p->left * m->top, number = 0;
    size_t at = 0, inner_at = 0;
    m->used = 0;
    for (int e = 0; e < m->experts; e++) {
        int before = number;
        for (int i = 0; i < pairs; i++)
            if (m->chosen[i] == e) m->row[number] = i / m->top, m->place[i] = number++;
        if (number == before) continue;
        m->expert[m->used] = e, m->begin[m->used] = before, m->at[m->used] = at, m->inner_at[m->used++] = inner_at;
        at += p->product->rows_bytes(m->k, m->bits, number - before);
        inner_at += p->product->rows_bytes(m->inner, m->inner_bits, number - before);
    }
    m->begin[m->used] = number;
}

static int parts_of(const spec_program *p, const spec_mixture *m) {
    return p->team < 2 || !m->used ? 1 : 1 + 4 * p->team / m->used;
}

int spec_mixture_jobs(spec_program *p, const spec_op *op) {
    spec_mixture *m = &p->mixtures[op->mixture];
    if (op->kind == SPEC_SORT) return 1;
    int parts = op->kind == SPEC_UP || op->kind == SPEC_DOWN ? parts_of(p, m) : 1;
    return p->team < 2 ? 1 : spec_min(m->used * parts, SPEC_MAX_JOBS);
}

/* Gathers the rows of expert i as qrows; `expert_out` is still unused then. */
static void gather(spec_program *p, const spec_op *op, spec_mixture *m, int i) {
    size_t width = spec_round_up((size_t)m->k, 16);
    float *rows = m->expert_out + (size_t)m->begin[i] * width;
    int count = m->begin[i + 1] - m->begin[i];
    for (int r = 0; r < count; r++)
        memcpy(rows + (size_t)r * width, spec_rows_of(p, op->x, m->row[m->begin[i] + r]), (size_t)m->k * sizeof(float));
    p->product->quantise(rows, width, count, m->k, m->bits, m->qrows + m->at[i]);
}

static void middle(spec_program *p, spec_mixture *m, int i) {
    size_t width = spec_round_up((size_t)m->inner, 16);
    p->product->quantise(m->f + (size_t)m->begin[i] * width, width, m->begin[i + 1] - m->begin[i], m->inner,
                         m->inner_bits, m->inner_qrows + m->inner_at[i]);
}

/* Adds 16 numbers of the bias of an expert's matrix to its rows in a tile: 0 gate, 1 up, 2 down. */
static void add_bias(spec_program *p, const spec_op *op, int which, int expert, size_t width, size_t at, int rows,
                     float *tile) {
    if (op->biases[which])
        p->ops_table->add(tile, 16, op->biases[which] + (size_t)expert * width + at, 0, NULL, rows, 16);
}

/* Part `part` of `parts` of the products of expert i: gate and up in pairs of tiles, up alone, or down. */
static void run_expert(spec_program *p, const spec_op *op, spec_mixture *m, int i, int part, int parts, float *y) {
    int up = op->kind == SPEC_UP, unit = up && op->paired ? 2 : 1, rows = m->begin[i + 1] - m->begin[i];
    const spec_stack *stack = up ? &op->up : &op->down;
    spec_weight w = stack->one;
    w.data += (size_t)m->expert[i] * stack->bytes;
    int64_t units = w.tiles / unit;
    int begin = (int)(units * part / parts) * unit, end = (int)(units * (part + 1) / parts) * unit;
    int tiles_max = rows * unit > OUTPUTS ? unit : OUTPUTS / rows / unit * unit;
    size_t width = spec_round_up((size_t)(up ? m->inner : m->k), 16), size = (size_t)rows * 16;
    float *out = (up ? m->f : m->expert_out) + (size_t)m->begin[i] * width;
    for (int tile = begin, count; tile < end; tile += count) {
        count = spec_min(tiles_max, end - tile);
        p->product->product(&w, tile, count, up ? m->qrows + m->at[i] : m->inner_qrows + m->inner_at[i],
                            up ? m->bits : m->inner_bits, rows, y);
        for (int t = 0; t < count; t += unit) {
            size_t at = (size_t)(tile + t) / (size_t)unit * 16;
            float *to = out + at, *from = y + (size_t)t * size, *second = unit == 2 ? from + size : from;
            add_bias(p, op, up ? 0 : 2, m->expert[i], width, at, rows, from);
            if (up) add_bias(p, op, 1, m->expert[i], width, at, rows, second);
            if (up) p->ops_table->glu(op->glu, op->limit, from, 16, second, 16, rows, 16, to, width);
            else
                for (int r = 0; r < rows; r++) memcpy(to + (size_t)r * width, from + r * 16, 16 * sizeof(float));
        }
    }
}

void spec_do_mixture(spec_program *p, const spec_op *op, int job, int jobs, int thread) {
    spec_mixture *m = &p->mixtures[op->mixture];
    if (op->kind == SPEC_SORT) {
        sort(p, m);
        return;
    }
    int parts = op->kind == SPEC_UP || op->kind == SPEC_DOWN ? parts_of(p, m) : 1;
    for (int i = job; i < m->used * parts; i += jobs) {
        if (op->kind == SPEC_GATHER) gather(p, op, m, i);
        else if (op->kind == SPEC_MIDDLE) middle(p, m, i);
        else run_expert(p, op, m, i / parts, i % parts, parts, (float *)p->scratch[thread]);
    }
}

void spec_sum_rows(spec_program *p, const spec_op *op, int first, int rows) {
    const spec_mixture *m = &p->mixtures[op->mixture];
    size_t width = spec_round_up((size_t)m->k, 16);
    for (int r = first; r < first + rows; r++) {
        float *out = spec_rows_of(p, op->out, r);
        if (op->y == SPEC_NONE) memset(out, 0, (size_t)m->k * sizeof(float));
        else if (op->out != op->y) memcpy(out, spec_rows_of(p, op->y, r), (size_t)m->k * sizeof(float));
        for (int i = r * m->top; i < (r + 1) * m->top; i++)
            p->ops_table->add(out, 0, m->expert_out + (size_t)m->place[i] * width, 0, m->weights + i, 1, m->k);
    }
}
