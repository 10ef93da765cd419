/* Converts arguments from Python. */
#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030b0000
#include <Python.h>

#include "arguments.h"

#include <stdlib.h>
#include <string.h>

/* The integers of a list or tuple, with scratch for `more` after them. NULL with an error set. */
int32_t *numbers(PyObject *given, int32_t *count, Py_ssize_t more) {
    int list = PyList_Check(given);
    if (!list && !PyTuple_Check(given)) {
        PyErr_SetString(PyExc_TypeError, "tokens must be a list or a tuple");
        return NULL;
    }
    Py_ssize_t n = list ? PyList_Size(given) : PyTuple_Size(given);
    int32_t *made = malloc((size_t)(n + more + 1) * sizeof *made);
    if (!made) PyErr_NoMemory();
    for (Py_ssize_t i = 0; made && i < n; i++) {
        made[i] = (int32_t)PyLong_AsLong(list ? PyList_GetItem(given, i) : PyTuple_GetItem(given, i));
        if (made[i] == -1 && PyErr_Occurred()) {
            free(made);
            return NULL;
        }
    }
    *count = (int32_t)n;
    return made;
}

static int bias_of(choice_job *job, PyObject *given) {
    Py_ssize_t n = PyDict_Size(given), at = 0;
    if (n <= 0) return n == 0;
    PyObject *id, *value;
    job->bias_ids = malloc((size_t)n * sizeof *job->bias_ids), job->bias = malloc((size_t)n * sizeof *job->bias);
    if (!job->bias_ids || !job->bias) return PyErr_NoMemory() != NULL;
    while (PyDict_Next(given, &at, &id, &value)) {
        job->bias_ids[job->biases] = (int32_t)PyLong_AsLong(id);
        job->bias[job->biases++] = PyFloat_AsDouble(value);
    }
    return !PyErr_Occurred();
}

/* (temperature, top_k, top_p, min_p, repetition, presence, frequency, {id: bias}) */
int sampling_of(choice_job *job, PyObject *given) {
    PyObject *bias;
    choice_cuts *c = &job->cuts;
    long long k;
    if (!PyArg_ParseTuple(given, "dLdddddO", &c->temperature, &k, &c->top_p, &c->min_p, &job->repetition,
                          &job->presence, &job->frequency, &bias))
        return 0;
    c->top_k = k;
    return bias_of(job, bias);
}

/* address, kind, n */
int row_of(choice_row *row, word address, int kind, int n) {
    if ((kind != CHOICE_FLOAT32 && kind != CHOICE_FLOAT64) || n < 1) {
        PyErr_SetString(PyExc_ValueError, "a row needs at least one logit, float32 or float64");
        return 0;
    }
    *row = (choice_row){(const void *)(uintptr_t)address, kind, n};
    return 1;
}

void source_of(choice_source *s, word seed, word t, word stream, word domain) {
    *s = (choice_source){{(uint32_t)seed, (uint32_t)(seed >> 32)}, (uint32_t)t, (uint32_t)stream, (uint32_t)domain};
}

void job_free(choice_job *job) {
    free(job->bias_ids), free(job->bias), free(job->history), free(job->ids), free(job->parents), free(job->path);
}

/* Fields that depend on drafts and history; tokens are read only if a penalty needs them. */
static int draft_of(choice_job *job, PyObject *tokens, PyObject *ids, PyObject *parents) {
    if (ids != Py_None && !(job->ids = numbers(ids, &job->drafted, 0))) return 0;
    int32_t count = 0;
    if (parents != Py_None && !(job->parents = numbers(parents, &count, 0))) return 0;
    if (job->parents && count != job->drafted) {
        PyErr_SetString(PyExc_ValueError, "give one parent for each token");
        return 0;
    }
    job->path = malloc((size_t)(job->drafted + 1) * sizeof *job->path);
    if (!job->path) return PyErr_NoMemory() != NULL;
    if (job->repetition == 1 && job->presence == 0 && job->frequency == 0) return 1;
    return (job->history = numbers(tokens, &job->length, job->drafted)) != NULL;
}

/* (address, stride, kind, n, sampling, (seed, stream, domain), t, tokens, prompt, ids or None, parents or None, address
 * of the masks or 0, their words per row) */
int job_of(choice_job *job, PyObject *given) {
    PyObject *sampling, *tokens, *ids, *parents;
    word address, seed, t, stream, domain, masks = 0;
    long long stride;
    int kind, n;
    memset(job, 0, sizeof *job);
    if (!PyArg_ParseTuple(given, "KLiiO(KKK)KOiOO|Ki", &address, &stride, &kind, &n, &sampling, &seed, &stream, &domain,
                          &t, &tokens, &job->prompt, &ids, &parents, &masks, &job->words))
        return 0;
    if (!row_of(&job->row, address, kind, n)) return 0;
    job->logits = job->row.data, job->stride = stride;
    job->masks = (const uint32_t *)(uintptr_t)masks;
    source_of(&job->source, seed, t, stream, domain);
    return sampling_of(job, sampling) && draft_of(job, tokens, ids, parents);
}
