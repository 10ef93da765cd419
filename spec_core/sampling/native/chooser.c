/* The tokens of a sampled draft, chosen where it is drafted: spec_core/toolkit/token_drafter.py says the same in
 * Python. */
#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030b0000
#include <Python.h>

#include "arguments.h"
#include "chooser.h"

#include <math.h>
#include <stdlib.h>

/* job: what the choice depends on, its history `length` tokens before a path. t, domain: how far the noise of a token
 * is from that of the one before it on a path. row: of all tokens, where a draft has logits of some. longest: path.
 * likeliest: tokens are ranked by their probability alone. */
typedef struct {
    spec_chooser face;
    choice_job job;
    choice_room *room;
    float *row;
    uint32_t t, domain;
    int32_t vocabulary, longest, length, likeliest;
} chooser;

/* Chance that the target chooses the same token under the same noise. */
static double agreement(double lead) { return 1 - 0.68 * exp(-lead / 2.4); }

/* The row of all tokens: those that have no logit cannot be chosen. NULL where an id is no token. */
static const float *spread(chooser *c, const spec_choice *where) {
    for (int32_t i = 0; i < c->vocabulary; i++) c->row[i] = -__builtin_inff();
    for (int32_t i = 0; i < where->n; i++) {
        if (where->ids[i] < 0 || where->ids[i] >= c->vocabulary) return NULL;
        c->row[where->ids[i]] = where->logits[i];
    }
    return c->row;
}

/* The row of a choice, the noise there, and the history before it; or what is wrong with it. */
static const char *placed(chooser *c, const spec_choice *where, choice_row *row, choice_source *source) {
    choice_job *job = &c->job;
    const float *logits = where->logits;
    uint32_t depth = (uint32_t)where->depth;
    if (where->depth < 0 || where->depth >= c->longest) return "a draft is longer than its chooser has room for";
    if (where->n < 1 || where->n > c->vocabulary) return "a row has more logits than there are tokens";
    if (where->ids && !(logits = spread(c, where))) return "a row of logits stands for no token of the model";
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
        choice_now->choose(choice_adjusted(&c->job, row, 0, c->room), &c->job.cuts, &source, 1, c->room);
    *token = made.id, *chance = isfinite(made.logit) ? agreement(made.lead) : 0;
    return NULL;
}

/* The likeliest of a row, and the probability of each; those that have none are left out. */
static int32_t by_probability(chooser *c, choice_row row, int32_t most, int64_t *tokens, double *chances) {
    int32_t found = 0, count = most < row.n ? most : row.n;
    uint64_t total = choice_now->likeliest(row, count, c->room);
    for (int32_t i = 0; total && i < count; i++) {
        int32_t weight = choice_now->weight(c->room->order[i].z);
        if (weight) tokens[found] = c->room->order[i].id, chances[found++] = (double)weight / (double)total;
    }
    return found;
}

/* The best by log-probability and noise. The chance of the first is that of winning by its lead; of others it falls with
 * their distance to it. */
static int32_t by_noise(chooser *c, choice_row row, const choice_source *source, int32_t most, int64_t *tokens,
                        double *chances) {
    const choice_place *order = c->room->order;
    row = choice_adjusted(&c->job, row, 0, c->room);
    int32_t count = most < row.n ? most + 1 : row.n;
    int32_t found = choice_now->best(row, &c->job.cuts, source, count, c->room);
    for (int32_t i = 0; i < found && i < most; i++) {
        tokens[i] = order[i].id;
        if (i) chances[i] = 0.3 * exp((order[i].z - order[0].z) / 2);
        else chances[i] = agreement(found > 1 ? order[0].z - order[1].z : __builtin_inf());
    }
    return found < most ? found : most;
}

static const char *rank(void *context, const spec_choice *where, int32_t most, int64_t *tokens, double *chances,
                        int32_t *found) {
    chooser *c = context;
    choice_row row;
    choice_source source;
    const char *wrong = placed(c, where, &row, &source);
    if (wrong) return wrong;
    *found = c->likeliest ? by_probability(c, row, most, tokens, chances)
                          : by_noise(c, row, &source, most, tokens, chances);
    return NULL;
}

static void release(chooser *c) {
    if (c->room) room_give(c->room);
    job_free(&c->job), free(c->row), free(c);
}

static void forget(PyObject *capsule) {
    spec_chooser *face = PyCapsule_GetPointer(capsule, SPEC_CHOOSER);
    if (face) release(face->context);
}

/* Room for so many tokens behind the history, which is read only where a penalty wants it. */
static int prepared(chooser *c, PyObject *tokens) {
    const choice_job *job = &c->job;
    if (c->vocabulary < 1 || c->longest < 1 || c->job.prompt < 0) {
        PyErr_SetString(PyExc_ValueError, "a draft has at least one token of at least one");
        return 0;
    }
    c->face = (spec_chooser){c, choose, rank};
    c->row = malloc((size_t)c->vocabulary * sizeof *c->row);
    if (!c->row) return PyErr_NoMemory() != NULL;
    if (!(c->room = room_take(c->vocabulary))) return 0;
    if (job->repetition == 1 && job->presence == 0 && job->frequency == 0) return 1;
    return (c->job.history = numbers(tokens, &c->length, c->longest)) != NULL;
}

/* sampling or None, (seed, stream, domain), t, (from one token to the next: t, domain), tokens, prompt, vocabulary,
   longest path -> a capsule of spec_chooser, for one draft. Without sampling it ranks tokens by their probability. */
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
