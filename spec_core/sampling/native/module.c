/* The extension module. Limited API, so one binary serves all versions.
 *
 * Addresses are integers; the caller keeps the memory alive. */
#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030b0000
#include <Python.h>

#include "arguments.h"

#include <stdlib.h>
#include <string.h>

const choice_table *choice_now;

static PyObject *walked(const choice_job *job) {
    PyObject *path = PyTuple_New(job->kept);
    for (int32_t i = 0; path && i < job->kept; i++)
        if (PyTuple_SetItem(path, i, PyLong_FromLong(job->path[i])) < 0) return NULL;
    return path ? Py_BuildValue("(Nid)", path, (int)job->made.id, job->made.logit) : NULL;
}

static PyObject *all_walked(const choice_job *jobs, Py_ssize_t count) {
    PyObject *found = PyList_New(count);
    for (Py_ssize_t i = 0; found && i < count; i++) {
        PyObject *one = walked(&jobs[i]);
        if (!one || PyList_SetItem(found, i, one) < 0) {
            Py_DECREF(found);
            return NULL;
        }
    }
    return found;
}

/* [job] -> [(path, token, its row's largest logit)] */
static PyObject *walk(PyObject *module, PyObject *given) {
    (void)module;
    Py_ssize_t count = PyList_Size(given), ready = 0;
    if (count < 0) return NULL;
    choice_job *jobs = calloc((size_t)count + 1, sizeof *jobs);
    if (!jobs) return PyErr_NoMemory();
    PyObject *found = NULL;
    int32_t n = 0;
    for (; ready < count; ready++) {
        if (!job_of(&jobs[ready], PyList_GetItem(given, ready))) {
            ready++;
            goto done;
        }
        n = jobs[ready].row.n > n ? jobs[ready].row.n : n;
    }
    choice_scratch *scratch = scratch_take(n);
    if (!scratch) goto done;
    Py_BEGIN_ALLOW_THREADS
    for (Py_ssize_t i = 0; i < count; i++) choice_walk(&jobs[i], choice_now, scratch);
    Py_END_ALLOW_THREADS
    scratch_give(scratch);
    found = all_walked(jobs, count);
done:
    for (Py_ssize_t i = 0; i < ready; i++) job_free(&jobs[i]);
    free(jobs);
    return found;
}

/* job -> (token, its row's largest logit, distance of the two best scores) */
static PyObject *draw(PyObject *module, PyObject *given) {
    choice_job job;
    (void)module;
    choice_scratch *scratch = NULL;
    if (job_of(&job, given) && (scratch = scratch_take(job.row.n))) {
        Py_BEGIN_ALLOW_THREADS
        choice_draw(&job, choice_now, scratch);
        Py_END_ALLOW_THREADS
        scratch_give(scratch);
    }
    job_free(&job);
    return scratch ? Py_BuildValue("(idd)", (int)job.made.id, job.made.logit, job.made.lead) : NULL;
}

/* address, kind, n, (temperature, top_k, top_p, min_p), addresses of ids int64 [n] and z float64 [n] -> size of the
 * support */
static PyObject *support(PyObject *module, PyObject *args) {
    word address, ids_at, z_at;
    int kind, n;
    long long k;
    choice_cuts c;
    choice_row row;
    (void)module;
    if (!PyArg_ParseTuple(args, "Kii(dLdd)KK", &address, &kind, &n, &c.temperature, &k, &c.top_p, &c.min_p, &ids_at,
                          &z_at))
        return NULL;
    c.top_k = k;
    choice_scratch *scratch = row_of(&row, address, kind, n) ? scratch_take(n) : NULL;
    if (!scratch) return NULL;
    int32_t count;
    int64_t *ids = (int64_t *)(uintptr_t)ids_at;
    Py_BEGIN_ALLOW_THREADS
    count = choice_now->support(row, &c, scratch);
    for (int32_t i = 0; i < count; i++) ids[i] = scratch->ids[i];
    memcpy((void *)(uintptr_t)z_at, scratch->z, (size_t)count * sizeof *scratch->z);
    Py_END_ALLOW_THREADS
    scratch_give(scratch);
    return PyLong_FromLong(count);
}

/* address, kind, n -> (token, its logit, sum of all weights) */
static PyObject *mass(PyObject *module, PyObject *args) {
    word address;
    int kind, n;
    choice_row row;
    choice_made made;
    int64_t total;
    (void)module;
    if (!PyArg_ParseTuple(args, "Kii", &address, &kind, &n) || !row_of(&row, address, kind, n)) return NULL;
    Py_BEGIN_ALLOW_THREADS
    made = choice_now->mass(row, &total);
    Py_END_ALLOW_THREADS
    return Py_BuildValue("(idL)", (int)made.id, made.logit, (long long)total);
}

/* [(id, probability)]; incomplete if an error is set. */
static PyObject *shares(const choice_place *order, int32_t count, uint64_t total) {
    PyObject *found = PyList_New(count);
    for (int32_t i = 0; found && i < count; i++) {
        double chance = total ? (double)choice_now->weight(order[i].z) / (double)total : 0;
        PyObject *one = Py_BuildValue("(id)", (int)order[i].id, chance);
        if (!one || PyList_SetItem(found, i, one) < 0) {
            Py_DECREF(found);
            return NULL;
        }
    }
    return found;
}

/* address, stride, kind, n, rows, count -> [[(id, probability)], best first] */
static PyObject *likeliest(PyObject *module, PyObject *args) {
    word address;
    long long stride;
    int kind, n, rows, count;
    choice_row row;
    (void)module;
    if (!PyArg_ParseTuple(args, "KLiiii", &address, &stride, &kind, &n, &rows, &count)) return NULL;
    choice_scratch *scratch = row_of(&row, address, kind, n) ? scratch_take(n) : NULL;
    PyObject *found = scratch ? PyList_New(rows) : NULL;
    count = count < n ? count : n;
    for (int i = 0; found && i < rows; i++) {
        uint64_t total;
        row.data = (const uint8_t *)(uintptr_t)address + stride * i;
        Py_BEGIN_ALLOW_THREADS
        total = choice_now->likeliest(row, count, scratch);
        Py_END_ALLOW_THREADS
        PyObject *best = shares(scratch->order, count, total);
        if (!best || PyList_SetItem(found, i, best) < 0) Py_CLEAR(found);
    }
    if (scratch) scratch_give(scratch);
    return found;
}

/* seed, t, stream, domain, address of ids int64 [n] or 0, n, address of noise float64 [n] */
static PyObject *gumbel(PyObject *module, PyObject *args) {
    word seed, t, stream, domain, ids, out;
    long long n;
    choice_source source;
    (void)module;
    if (!PyArg_ParseTuple(args, "KKKKKLK", &seed, &t, &stream, &domain, &ids, &n, &out)) return NULL;
    source_of(&source, seed, t, stream, domain);
    Py_BEGIN_ALLOW_THREADS
    choice_now->gumbel(&source, (const int64_t *)(uintptr_t)ids, n, (double *)(uintptr_t)out);
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}

static PyObject *instruction_sets(PyObject *module, PyObject *unused) {
    static const char *names[] = {"avx512", "avx2", "neon", "generic"};
    (void)module, (void)unused;
    PyObject *found = PyList_New(0);
    for (size_t i = 0; found && i < sizeof names / sizeof *names; i++) {
        PyObject *name = choice_of(names[i]) ? PyUnicode_FromString(names[i]) : NULL;
        if (name) PyList_Append(found, name);
        Py_XDECREF(name);
    }
    return found;
}

/* isa, or None for the best: applies to all threads. For tests and measurements. */
static PyObject *use(PyObject *module, PyObject *args) {
    const char *isa;
    (void)module;
    if (!PyArg_ParseTuple(args, "z", &isa)) return NULL;
    const choice_table *found = choice_of(isa);
    if (!found)
        return PyErr_Format(PyExc_ValueError, "instruction set %s is unknown or not supported by this processor", isa);
    choice_now = found;
    Py_RETURN_NONE;
}

static PyMethodDef functions[] = {
    {"walk", walk, METH_O, NULL},
    {"draw", draw, METH_O, NULL},
    {"support", support, METH_VARARGS, NULL},
    {"mass", mass, METH_VARARGS, NULL},
    {"likeliest", likeliest, METH_VARARGS, NULL},
    {"gumbel", gumbel, METH_VARARGS, NULL},
    {"instruction_sets", instruction_sets, METH_NOARGS, NULL},
    {"use", use, METH_VARARGS, NULL},
    {"chooser", chooser_new, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_choice", "The seeded choice of a token.", -1, functions, NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__choice(void) {
    choice_now = choice_of(NULL);
    return PyModule_Create(&definition);
}
