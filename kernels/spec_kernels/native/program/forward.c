/* One forward: runs the list of operations as phases. */
#include "program.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#define SMALL (16 << 20) /* bytes of weights times rows that one thread finishes before others wake up */

static int row_wise(const spec_op *op) { return op->kind <= SPEC_SUM; }

static void one_job(spec_program *p, int job, int thread) {
    const spec_op *op = &p->ops[p->begin];
    if (row_wise(op)) {
        int first = job * SPEC_GROUP, rows = spec_min(SPEC_GROUP, p->left - first);
        for (; op < &p->ops[p->end]; op++) spec_do_rows(p, op, first, rows);
    } else if (op->kind == SPEC_LINEAR) {
        spec_do_linear(p, op, job, p->jobs, thread);
    } else if (op->kind == SPEC_HEAD_LINEAR) {
        spec_do_head_linear(p, op, job, p->jobs, thread);
    } else if (op->kind >= SPEC_SORT) {
        spec_do_mixture(p, op, job, p->jobs, thread);
    } else {
        spec_do_mixing(p, op, job, thread);
    }
}

/* ---- serial parts */

/* Copies the selected rows of `x` to consecutive rows of `out`. */
static void pick(spec_program *p, const spec_op *op) {
    const int32_t *wanted = p->request->picks[op->index];
    int count = p->left, had = 0;
    if (wanted) {
        count = p->request->picked[op->index];
        for (int i = 0; i < count; i++) {
            while (p->rows_left[had] != wanted[i]) had++;
            float *to = spec_rows_of(p, op->out, i), *from = spec_rows_of(p, op->x, had);
            if (to != from) memmove(to, from, (size_t)p->values[op->x].width * sizeof(float));
        }
        memcpy(p->rows_left, wanted, (size_t)count * sizeof(int32_t));
    } else if (op->out != op->x) {
        size_t bytes = p->values[op->x].stride * sizeof(float);
        memcpy(spec_rows_of(p, op->out, 0), spec_rows_of(p, op->x, 0), (size_t)count * bytes);
    }
    p->left = count;
}

/* out[r] = sum over t of x[r - t] (base[t] + kernel[r, t, group]), over the rows of each sequence: of a draft's block,
 * which are few. heads: groups, dim: taps. Without a kernel nothing is added to the base. */
static void block_conv(spec_program *p, const spec_op *op) {
    const spec_request *q = p->request;
    int group = op->width / op->heads;
    for (int s = 0; s < q->sequences; s++) {
        const spec_sequence *seq = &q->sequence[s];
        int first = seq->first + spec_held(q, s);
        for (int r = first; r < seq->first + seq->rows; r++) {
            const float *kernel = op->y == SPEC_NONE ? NULL : spec_rows_of(p, op->y, r);
            float *out = spec_rows_of(p, op->out, r);
            memset(out, 0, (size_t)op->width * sizeof(float));
            for (int t = 0; t < op->dim && r - t >= first; t++) {
                const float *x = spec_rows_of(p, op->x, r - t), *base = op->vector + (size_t)t * (size_t)op->width;
                for (int g = 0; g < op->heads; g++) {
                    float added = kernel ? kernel[t * op->heads + g] : 0;
                    for (int i = g * group; i < (g + 1) * group; i++) out[i] += x[i] * (base[i] + added);
                }
            }
        }
    }
}

/* The `used` largest of `count` scores, among equals the first; NaN counts as the smallest. */
static void rank_clusters(const float *scores, int count, int used, int *best) {
    int ranked = 0;
    for (int c = 0; c < count; c++) {
        int at = ranked < used ? ranked++ : used;
        if (at == used && !(scores[c] > scores[best[used - 1]])) continue;
        if (at == used) at--;
        for (; at > 0 && (scores[c] > scores[best[at - 1]] || scores[best[at - 1]] != scores[best[at - 1]]); at--)
            best[at] = best[at - 1];
        best[at] = c;
    }
}

/* Products with the columns of the best clusters of each row, which are few. y: scores, heads: clusters, dim: used */
static void clusters(spec_program *p, const spec_op *op) {
    const spec_qrows *qrows = &p->qrows[op->qrows];
    const spec_weight *w = &op->weights[0];
    int best[SPEC_MAX_CLUSTERS], size = w->n / op->heads;
    float *y = (float *)p->scratch[0];
    for (int r = 0; r < p->left; r++) {
        int in_group = r % SPEC_GROUP, rows = spec_min(SPEC_GROUP, p->left - (r - in_group));
        const uint8_t *group = qrows->data + (size_t)(r / SPEC_GROUP) * qrows->group_bytes;
        float *out = spec_rows_of(p, op->out, r);
        for (int i = 0; i < w->n; i++) out[i] = -__builtin_inff();
        rank_clusters(spec_rows_of(p, op->y, r), op->heads, op->dim, best);
        for (int i = 0; i < op->dim; i++) {
            int from = best[i] * size, end = from + size;
            for (int tile = from / 16; tile * 16 < end; tile++) {
                p->product->product(w, tile, 1, group, qrows->bits, rows, y);
                for (int column = tile * 16; column < tile * 16 + 16; column++)
                    if (column >= from && column < end) out[column] = y[in_group * 16 + column % 16];
            }
        }
    }
}

static void gather_angles(const spec_program *p, const spec_rotary *t) {
    const spec_request *q = p->request;
    size_t half = (size_t)t->rotary_dim / 2;
    for (int r = 0; q->each > 1 && r < q->rows; r++)
        for (size_t i = 0; i < half; i++) {
            size_t at = (size_t)q->positions[(size_t)r * half + i] * half + i;
            t->row_cos[(size_t)r * half + i] = t->cosines[at], t->row_sin[(size_t)r * half + i] = t->sines[at];
        }
    for (int r = 0; q->each == 1 && r < q->rows; r++) {
        size_t at = (size_t)q->positions[r] * half;
        memcpy(t->row_cos + (size_t)r * half, t->cosines + at, half * sizeof(float));
        memcpy(t->row_sin + (size_t)r * half, t->sines + at, half * sizeof(float));
    }
}

static void plan_states(spec_program *p) {
    const spec_request *q = p->request;
    p->delta_slots = 0;
    for (int s = 0; p->recurring && s < q->sequences; s++) {
        const spec_sequence *seq = &q->sequence[s];
        int slots = spec_delta_plan(q->parents, q->keep, seq->first, seq->rows, p->slots);
        if (slots > p->delta_slots) p->delta_slots = slots;
    }
}

/* Scratch memory of every thread that may run a job. */
static int scratch_for(spec_program *p, int widths, size_t bytes) {
    if (widths <= p->widths && bytes <= p->scratch_bytes) return 0;
    widths = widths > p->widths ? widths : p->widths;
    bytes = bytes > p->scratch_bytes ? bytes + bytes / 2 : p->scratch_bytes;
    for (int i = 0; i < p->widths; i++) free(p->scratch[i]);
    p->widths = 0, p->scratch_bytes = 0;
    uint8_t **grown = realloc(p->scratch, (size_t)widths * sizeof *grown);
    if (!grown) return -1;
    p->scratch = grown;
    for (; p->widths < widths; p->widths++) {
        void *made;
        if (posix_memalign(&made, 64, spec_round_up(bytes, 64))) return -1;
        p->scratch[p->widths] = made;
    }
    p->scratch_bytes = bytes;
    return 0;
}

static int prepare(spec_program *p) {
    plan_states(p);
    for (int i = 0; i < p->tables; i++) gather_angles(p, &p->rotary[i]);
    for (int i = 0; i < p->request->rows; i++) p->rows_left[i] = i;
    for (int i = 0; i < p->value_count; i++) {
        spec_value *v = &p->values[i];
        if (v->tap == SPEC_NONE) continue;
        v->data = p->request->taps[v->tap], v->stride = p->request->tap_strides[v->tap];
    }
    return scratch_for(p, spec_pool_width(), spec_scratch_needed(p));
}

/* ---- phases */

static int jobs_of(spec_program *p, const spec_op *op) {
    if (row_wise(op)) return spec_groups(p->left);
    if (op->kind == SPEC_LINEAR) return spec_linear_jobs(p, op);
    if (op->kind == SPEC_HEAD_LINEAR) return spec_head_linear_jobs(p, op);
    return op->kind >= SPEC_SORT ? spec_mixture_jobs(p, op) : spec_mixing_jobs(p, op);
}

static int next(void *context) {
    spec_program *p = context;
    if (!p->prepared) {
        p->prepared = 1;
        if ((p->failed = prepare(p))) return 0;
    }
    while (p->at < p->count && p->left > 0) {
        const spec_op *op = &p->ops[p->at];
        p->begin = p->at++;
        if (op->kind == SPEC_PICK) {
            pick(p, op);
            continue;
        }
        if (op->kind == SPEC_BLOCK_CONV || op->kind == SPEC_CLUSTERS) {
            (op->kind == SPEC_CLUSTERS ? clusters : block_conv)(p, op);
            continue;
        }
        while (row_wise(op) && p->at < p->count && row_wise(&p->ops[p->at])) p->at++;
        p->end = p->at;
        p->jobs = jobs_of(p, op);
        if (p->jobs > 1) return p->jobs;
        if (p->jobs) one_job(p, 0, 0);
    }
    return 0;
}

static void work(void *context, int job, int thread) { one_job(context, job, thread); }

/* Number of threads for a forward: one if waking others costs more than it saves. */
static int team_of(const spec_program *p, int rows) {
    size_t work = 0;
    for (int i = 0; p->threads > 1 && i < p->count; i++) {
        const spec_op *op = &p->ops[i];
        for (int part = 0; part < op->parts && op->kind == SPEC_LINEAR; part++)
            work += (size_t)op->weights[part].tiles * op->weights[part].tile_bytes * (size_t)rows;
        if (op->kind == SPEC_HEAD_LINEAR) work += op->up.bytes * (size_t)op->heads * (size_t)rows;
        if (op->kind == SPEC_UP) work += (op->up.bytes + op->down.bytes) * (size_t)op->router.top * (size_t)rows;
        if (work >= SMALL) return p->threads;
    }
    return 1;
}

static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static int run(spec_program *p) {
    static const spec_work phases = {next, work};
    return spec_pool_run(p->team, &phases, p);
}

/* A forward that several threads may run: measured. */
static void run_measured(spec_program *p, spec_team *t) {
    double began = seconds();
    p->team = spec_team_choose(t, p->team);
    int waits = run(p);
    if (p->team == 1 || waits >= 0) spec_team_record(t, p->team, seconds() - began, waits);
}

int spec_run(spec_program *p, const spec_request *request) {
    p->team = team_of(p, request->rows);
    p->request = request, p->at = 0, p->left = request->rows, p->prepared = 0, p->failed = 0;
    if (p->team > 1) {
        run_measured(p, &p->teams[spec_team_size(request->rows)]);
    } else {
        run(p);
    }
    return p->failed;
}
