/* The tokens of a sampled draft, chosen where it is drafted: spec_core/toolkit/token_drafter.py says the same in
 * Python. */
#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030b0000
#include <Python.h>

#include "arguments.h"
#include "chooser.h"

#include <math.h>
#include <stdlib.h>

/* job: what the choice depends on, its history growing by every token. t, domain: how far the noise of the next token
 * is from that of the one before. row: of all tokens, where a draft has logits of some. */
typedef struct {
    spec_chooser face;
    choice_job job;
    choice_room *room;
    float *row;
    uint32_t t, domain;
    int32_t vocabulary, most, chosen;
} chooser;

/* Chance that the target chooses the same token under the same noise. */
static double agreement(double lead) { return 1 - 0.68 * exp(-lead / 2.4); }

/* The row of all tokens: those that have no logit cannot be chosen. NULL where an id is no token. */
static const float *spread(chooser *c, const float *row, int32_t n, const int64_t *ids) {
    for (int32_t i = 0; i < c->vocabulary; i++) c->row[i] = -__builtin_inff();
    for (int32_t i = 0; i < n; i++) {
        if (ids[i] < 0 || ids[i] >= c->vocabulary) return NULL;
        c->row[ids[i]] = row[i];
    }
    return c->row;
}

static const char *choose(void *context, const float *row, int32_t n, const int64_t *ids, int64_t *token,
                          double *chance) {
    chooser *c = context;
    choice_job *job = &c->job;
    if (c->chosen == c->most) return "a draft is longer than its chooser has room for";
    if (n < 1 || n > c->vocabulary) return "a row has more logits than there are tokens";
    if (ids && !(row = spread(c, row, n, ids))) return "a row of logits stands for no token of the model";
    job->row = (choice_row){row, CHOICE_FLOAT32, ids ? c->vocabulary : n};
    choice_made made =
        choice_now->choose(choice_adjusted(job, job->row, c->room), &job->cuts, &job->source, 1, c->room);
    *token = made.id, *chance = isfinite(made.logit) ? agreement(made.lead) : 0;
    job->source.t += c->t, job->source.domain += c->domain, c->chosen++;
    if (job->history) job->history[job->length++] = made.id;
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
    if (c->vocabulary < 1 || c->most < 1 || c->job.prompt < 0) {
        PyErr_SetString(PyExc_ValueError, "a draft has at least one token of at least one");
        return 0;
    }
    c->face = (spec_chooser){c, choose};
    c->row = malloc((size_t)c->vocabulary * sizeof *c->row);
    if (!c->row) return PyErr_NoMemory() != NULL;
    if (!(c->room = room_take(c->vocabulary))) return 0;
    if (job->repetition == 1 && job->presence == 0 && job->frequency == 0) return 1;
    return (c->job.history = numbers(tokens, &c->job.length, c->most)) != NULL;
}

/* sampling, (seed, stream, domain), t, (from one token to the next: t, domain), tokens, prompt, vocabulary, most
   -> a capsule of spec_chooser, for one draft */
PyObject *chooser_new(PyObject *module, PyObject *args) {
    PyObject *sampling, *tokens, *made = NULL;
    word seed, stream, domain, t, t_step, domain_step;
    (void)module;
    chooser *c = calloc(1, sizeof *c);
    if (!c) return PyErr_NoMemory();
    if (PyArg_ParseTuple(args, "O(KKK)K(KK)Oiii", &sampling, &seed, &stream, &domain, &t, &t_step, &domain_step,
                         &tokens, &c->job.prompt, &c->vocabulary, &c->most)) {
        source_of(&c->job.source, seed, t, stream, domain);
        c->t = (uint32_t)t_step, c->domain = (uint32_t)domain_step;
        if (sampling_of(&c->job, sampling) && prepared(c, tokens)) made = PyCapsule_New(&c->face, SPEC_CHOOSER, forget);
    }
    if (!made) release(c);
    return made;
}
