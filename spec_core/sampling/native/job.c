/* Constraint, bias and penalties, and following the choices down a draft. */
#include "job.h"

#include <math.h>
#include <string.h>

static double get(choice_row row, int32_t id) {
    return row.kind == CHOICE_FLOAT32 ? (double)((const float *)row.data)[id] : ((const double *)row.data)[id];
}

/* Rounded to the row's type after the bias, after the repetition penalty, and after the other penalties. */
static void set(choice_row row, int32_t id, double value) {
    if (row.kind == CHOICE_FLOAT32) ((float *)(uintptr_t)row.data)[id] = (float)value;
    else ((double *)(uintptr_t)row.data)[id] = value;
}

static int known(choice_row row, int32_t id) { return id >= 0 && id < row.n; }

/* Tokens without their bit cannot be chosen; nor those beyond the last word. */
static void forbid(choice_row row, const uint32_t *mask, int32_t words) {
    for (int32_t from = 0; from < row.n; from += 32) {
        uint32_t word = from / 32 < words ? mask[from / 32] : 0;
        if (!~word) continue;
        for (int32_t id = from; id < from + 32 && id < row.n; id++)
            if (!(word >> (id - from) & 1)) set(row, id, -__builtin_inf());
    }
}

static void penalise_repetition(const choice_job *job, choice_row row, int32_t *counts) {
    for (int32_t i = 0; i < job->length; i++) {
        int32_t id = job->history[i];
        if (!known(row, id) || counts[id]++) continue;
        double x = get(row, id);
        set(row, id, x > 0 ? x / job->repetition : x * job->repetition);
    }
    for (int32_t i = 0; i < job->length; i++)
        if (known(row, job->history[i])) counts[job->history[i]] = 0;
}

static void penalise_output(const choice_job *job, choice_row row, int32_t *counts) {
    for (int32_t i = job->prompt; i < job->length; i++)
        if (known(row, job->history[i])) counts[job->history[i]]++;
    for (int32_t i = job->prompt; i < job->length; i++) {
        int32_t id = job->history[i];
        if (!known(row, id) || !counts[id]) continue;
        set(row, id, get(row, id) - (job->presence + job->frequency * counts[id]));
        counts[id] = 0;
    }
}

choice_row choice_adjusted(const choice_job *job, choice_row row, int32_t index, choice_scratch *scratch) {
    int output = job->presence != 0 || job->frequency != 0;
    if (!job->masks && !job->biases && job->repetition == 1 && !output) return row;
    memcpy(scratch->adjusted, row.data, (size_t)row.n * (row.kind == CHOICE_FLOAT32 ? 4 : 8));
    row.data = scratch->adjusted;
    if (job->masks) forbid(row, job->masks + (int64_t)index * job->words, job->words);
    for (int32_t i = 0; i < job->biases; i++)
        if (known(row, job->bias_ids[i])) set(row, job->bias_ids[i], get(row, job->bias_ids[i]) + job->bias[i]);
    if (job->repetition != 1) penalise_repetition(job, row, scratch->counts);
    if (output) penalise_output(job, row, scratch->counts);
    return row;
}

/* The first child of `node` with this token, or -1. */
static int32_t child(const choice_job *job, int32_t node, int32_t token) {
    if (!job->parents) return node + 1 < job->drafted && job->ids[node + 1] == token ? node + 1 : -1;
    for (int32_t i = node + 1; i < job->drafted; i++)
        if (job->parents[i] == node && job->ids[i] == token) return i;
    return -1;
}

static choice_row row_at(const choice_job *job, int32_t index) {
    choice_row row = job->row;
    row.data = job->logits + job->stride * index;
    return row;
}

void choice_walk(choice_job *job, const choice_table *table, choice_scratch *scratch) {
    choice_source source = job->source;
    for (int32_t node = -1;; source.t++) {
        choice_row row = choice_adjusted(job, row_at(job, 1 + node), 1 + node, scratch);
        job->made = table->choose(row, &job->cuts, &source, 0, scratch);
        node = child(job, node, job->made.id);
        if (node < 0 || !(job->made.logit > -__builtin_inf())) return;
        job->path[job->kept++] = node;
        if (job->history) job->history[job->length++] = job->ids[node];
    }
}

void choice_draw(choice_job *job, const choice_table *table, choice_scratch *scratch) {
    for (int32_t i = 0; job->history && i < job->drafted; i++) job->history[job->length++] = job->ids[i];
    job->made = table->choose(choice_adjusted(job, row_at(job, 0), 0, scratch), &job->cuts, &job->source, 1, scratch);
}
