/* Products of quantised rows with tiles of weights, and the conversion of their results. */
#include "program.h"

#include <string.h>

#define OUTPUTS 256  /* max tiles times rows in scratch memory */
#define GRAIN 131072 /* min bytes of weights times rows of a job that is worth another thread */

/* Tiles per unit: one, or a pair of gate and up. */
static int unit_of(const spec_op *op) { return op->paired ? 2 : 1; }

static int units_of(const spec_op *op) {
    int tiles = 0;
    for (int i = 0; i < op->parts; i++) tiles += op->weights[i].tiles;
    return tiles / unit_of(op);
}

int spec_linear_jobs(const spec_program *p, const spec_op *op) {
    int units = units_of(op);
    size_t bytes = (size_t)units * op->weights[0].tile_bytes * (size_t)unit_of(op);
    size_t worth = bytes * (size_t)p->left / GRAIN;
    if (p->team < 2 || worth < 2) return 1;
    return spec_min(units, worth < (size_t)(4 * p->team) ? (int)worth : 4 * p->team);
}

/* Writes y [tiles][rows][16] to rows of `out`, starting at tile `tile`, with bias and `add`. */
static void lay_down(const spec_program *p, const spec_op *op, int part, int tile, int tiles, int first, int rows,
                     const float *y) {
    float *out = spec_rows_of(p, op->outs[part], first) + (size_t)tile * 16;
    const float *add = op->x == SPEC_NONE ? NULL : spec_rows_of(p, op->x, first) + (size_t)tile * 16;
    const float *bias = op->biases[part] ? op->biases[part] + (size_t)tile * 16 : NULL;
    size_t stride = p->values[op->outs[part]].stride, add_stride = add ? p->values[op->x].stride : 0;
    p->ops_table->lay_down(y, tiles, rows, bias, add, add_stride, out, stride);
}

/* Writes glu(gate, up) of pairs of tiles. */
static void lay_pairs(const spec_program *p, const spec_op *op, int tile, int tiles, int first, int rows,
                      const float *y) {
    float *out = spec_rows_of(p, op->outs[0], first) + (size_t)tile / 2 * 16;
    p->ops_table->lay_pairs(op->glu, op->limit, y, tiles / 2, rows, out, p->values[op->outs[0]].stride);
}

/* Multiplies tiles begin ... end - 1 of one matrix with all rows, a few tiles at a time. */
static void tiles_of(const spec_program *p, const spec_op *op, int part, int begin, int end, float *y) {
    const spec_qrows *qrows = &p->qrows[op->qrows];
    int unit = unit_of(op), rows = p->left;
    int tiles_max = rows > SPEC_GROUP ? 2 : OUTPUTS / rows / unit * unit;
    for (int tile = begin, count; tile < end; tile += count) {
        count = spec_min(tiles_max, end - tile);
        for (int first = 0; first < rows; first += SPEC_GROUP) {
            int group = spec_min(SPEC_GROUP, rows - first);
            p->product->product(&op->weights[part], tile, count,
                                qrows->data + (size_t)(first / SPEC_GROUP) * qrows->group_bytes, qrows->bits, group, y);
            if (op->paired) lay_pairs(p, op, tile, count, first, group, y);
            else lay_down(p, op, part, tile, count, first, group, y);
        }
    }
}

void spec_do_linear(spec_program *p, const spec_op *op, int job, int jobs, int thread) {
    int unit = unit_of(op);
    int64_t units = units_of(op);
    int begin = (int)(units * job / jobs) * unit, end = (int)(units * (job + 1) / jobs) * unit;
    for (int part = 0, first = 0; part < op->parts; first += op->weights[part++].tiles) {
        int tiles = op->weights[part].tiles;
        int from = begin > first ? begin - first : 0, to = spec_min(end - first, tiles);
        if (from < to) tiles_of(p, op, part, from, to, (float *)p->scratch[thread]);
    }
}

/* ---- matrices of heads, see spec_add_head_linear */

int spec_head_linear_jobs(const spec_program *p, const spec_op *op) {
    size_t worth = op->up.bytes * (size_t)op->heads * (size_t)p->left / GRAIN;
    if (p->team < 2 || worth < 2) return 1;
    return spec_min(op->heads, worth < (size_t)(4 * p->team) ? (int)worth : 4 * p->team);
}

/* Rows of one head: the first numbers as they are, the rest times the head's matrix. At most SPEC_GROUP rows. */
static void rows_of_head(const spec_program *p, const spec_op *op, int head, int first, int rows, uint8_t *scratch) {
    spec_weight w = op->up.one;
    size_t kept = (size_t)op->width, x_stride = p->values[op->x].stride, out_stride = p->values[op->out].stride;
    const float *x = spec_rows_of(p, op->x, first) + (size_t)head * (kept + (size_t)w.k);
    float *out = spec_rows_of(p, op->out, first) + (size_t)head * (kept + (size_t)w.n);
    float *y = (float *)(void *)(scratch + p->head_rows);
    w.data += (size_t)head * op->up.bytes;
    p->product->quantise(x + kept, x_stride, rows, w.k, op->index, scratch);
    for (int r = 0; r < rows; r++) memcpy(out + (size_t)r * out_stride, x + (size_t)r * x_stride, kept * sizeof *x);
    for (int tile = 0, count; tile < w.tiles; tile += count) {
        count = spec_min(OUTPUTS / rows, w.tiles - tile);
        p->product->product(&w, tile, count, scratch, op->index, rows, y);
        for (int i = 0; i < count * rows; i++) {
            int column = 16 * (tile + i / rows);
            memcpy(out + (size_t)(i % rows) * out_stride + kept + column, y + 16 * i,
                   sizeof *y * (size_t)spec_min(16, w.n - column));
        }
    }
}

void spec_do_head_linear(spec_program *p, const spec_op *op, int job, int jobs, int thread) {
    for (int head = job; head < op->heads; head += jobs)
        for (int first = 0; first < p->left; first += SPEC_GROUP)
            rows_of_head(p, op, head, first, spec_min(SPEC_GROUP, p->left - first), p->scratch[thread]);
}
