/* The tokens of a sampled draft, chosen in the draft loop. The same in Python: spec_core/toolkit/token_drafter.py. */
#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030b0000
#include <Python.h>

#include "arguments.h"
#include "chooser.h"

#include <math.h>
#include <stdlib.h>

/* job: the inputs of the choice, with a history of `length` tokens before a path. t, domain: increments of the noise
 * counter from one token of a path to the next. row: a row of all tokens, if a draft has logits of some only. longest:
 * max path length. likeliest: rank tokens by probability alone. */
typedef struct {
    spec_chooser face;
    choice_job job;
    choice_scratch *scratch;
    float *row;
    uint32_t t, domain;
    int32_t vocabulary, longest, length, likeliest;
} chooser;

/* Probability that the target chooses the same token with the same noise. */
static double agreement(double lead) { return 1 - 0.68 * exp(-lead / 2.4); }

/* A row of all tokens; those without a logit cannot be chosen. NULL if an id is out of range. */
static const float *spread(chooser *c, const spec_choice *where) {
    for (int32_t i = 0; i < c->vocabulary; i++) c->row[i] = -__builtin_inff();
    for (int32_t i = 0; i < where->n; i++) {
        if (where->ids[i] < 0 || where->ids[i] >= c->vocabulary) return NULL;
        c->row[where->ids[i]] = where->logits[i];
    }
    return c->row;
}

/* Sets the row of a choice, its noise and its history; returns an error message or NULL. */
static const char *placed(chooser *c, const spec_choice *where, choice_row *row, choice_source *source) {
    choice_job *job = &c->job;
    const float *logits = where->logits;
    uint32_t depth = (uint32_t)where->depth;
    if (where->depth < 0 || where->depth >= c->longest) return "the draft is longer than its chooser allows";
    if (where->n < 1 || where->n > c->vocabulary) return "a row has more logits than the vocabulary has tokens";
    if (where->ids && !(logits = spread(c, where))) return "a row of logits has token ids outside the vocabulary";
    *row = (choice_row){logits, CHOICE_FLOAT32, where->ids ? c->vocabulary : where->n};
    *source = job->source;
    source->t += depth * c->t, source->domain += depth * c->domain;
    for (int32_t i = 0; job->history && i < where->depth; i++) job->history[c->length + i] = (int32_t)where->path[i];
    job->length = c->length + where->depth;
    return NULL;
}

static const char *choose(void *context, const spec_choice *where, int64_t *token, double *chance) {
    chooser *c = context;
    choice_row row;
    choice_source source;
    const char *wrong = placed(c, where, &row, &source);
    if (wrong) return wrong;
    choice_made made =
        choice_now->choose(choice_adjusted(&c->job, row, 0, c->scratch), &c->job.cuts, &source, 1, c->scratch);
    *token = made.id, *chance = isfinite(made.logit) ? agreement(made.lead) : 0;
    return NULL;
}

/* The likeliest tokens of a row with their probabilities; tokens with probability 0 are left out. */
static int32_t by_probability(chooser *c, choice_row row, int32_t count_max, int64_t *tokens, double *chances) {
    int32_t found = 0, count = count_max < row.n ? count_max : row.n;
    uint64_t total = choice_now->likeliest(row, count, c->scratch);
    for (int32_t i = 0; total && i < count; i++) {
        int32_t weight = choice_now->weight(c->scratch->order[i].z);
        if (weight) tokens[found] = c->scratch->order[i].id, chances[found++] = (double)weight / (double)total;
    }
    return found;
}

/* The best by log-probability plus noise. The first token's chance follows from its lead; that of the others falls with
 * their distance to it. */
static int32_t by_noise(chooser *c, choice_row row, const choice_source *source, int32_t count_max, int64_t *tokens,
                        double *chances) {
    const choice_place *order = c->scratch->order;
    row = choice_adjusted(&c->job, row, 0, c->scratch);
    int32_t count = count_max < row.n ? count_max + 1 : row.n;
    int32_t found = choice_now->best(row, &c->job.cuts, source, count, c->scratch);
    for (int32_t i = 0; i < found && i < count_max; i++) {
        tokens[i] = order[i].id;
        if (i) chances[i] = 0.3 * exp((order[i].z - order[0].z) / 2);
        else chances[i] = agreement(found > 1 ? order[0].z - order[1].z : __builtin_inf());
    }
    return found < count_max ? found : count_max;
}

static const char *rank(void *context, const spec_choice *where, int32_t count_max, int64_t *tokens, double *chances,
                        int32_t *found) {
    chooser *c = context;
    choice_row row;
    choice_source source;
    const char *wrong = placed(c, where, &row, &source);
    if (wrong) return wrong;
    *found = c->likeliest ? by_probability(c, row, count_max, tokens, chances)
                          : by_noise(c, row, &source, count_max, tokens, chances);
    return NULL;
}

static void release(chooser *c) {
    if (c->scratch) scratch_give(c->scratch);
    job_free(&c->job), free(c->row), free(c);
}

static void forget(PyObject *capsule) {
    spec_chooser *face = PyCapsule_GetPointer(capsule, SPEC_CHOOSER);
    if (face) release(face->context);
}

/* Makes scratch for the tokens after the history, which is read only if a penalty needs it. */
static int prepared(chooser *c, PyObject *tokens) {
    const choice_job *job = &c->job;
    if (c->vocabulary < 1 || c->longest < 1 || c->job.prompt < 0) {
        PyErr_SetString(PyExc_ValueError, "a draft needs at least one token, and a vocabulary at least one");
        return 0;
    }
    c->face = (spec_chooser){c, choose, rank};
    c->row = malloc((size_t)c->vocabulary * sizeof *c->row);
    if (!c->row) return PyErr_NoMemory() != NULL;
    if (!(c->scratch = scratch_take(c->vocabulary))) return 0;
    if (job->repetition == 1 && job->presence == 0 && job->frequency == 0) return 1;
    return (c->job.history = numbers(tokens, &c->length, c->longest)) != NULL;
}

/* sampling or None, (seed, stream, domain), t, (increments of t and domain per token), tokens, prompt, vocabulary, max
   path length -> a capsule of spec_chooser for one draft. Without sampling it ranks tokens by probability. */
PyObject *chooser_new(PyObject *module, PyObject *args) {
    PyObject *sampling, *tokens, *made = NULL;
    word seed, stream, domain, t, t_step, domain_step;
    (void)module;
    chooser *c = calloc(1, sizeof *c);
    if (!c) return PyErr_NoMemory();
    if (PyArg_ParseTuple(args, "O(KKK)K(KK)Oiii", &sampling, &seed, &stream, &domain, &t, &t_step, &domain_step,
                         &tokens, &c->job.prompt, &c->vocabulary, &c->longest)) {
        source_of(&c->job.source, seed, t, stream, domain);
        c->t = (uint32_t)t_step, c->domain = (uint32_t)domain_step, c->likeliest = sampling == Py_None;
        c->job.repetition = 1;
        if ((c->likeliest || sampling_of(&c->job, sampling)) && prepared(c, tokens))
            made = PyCapsule_New(&c->face, SPEC_CHOOSER, forget);
    }
    if (!made) release(c);
    return made;
}
