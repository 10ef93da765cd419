/* The extension module. Limited API, so one binary serves all versions.
 *
 * Addresses are integers; whoever passes one keeps the memory alive. Nothing is held but the memory that calls work in,
 * which one call at a time takes with it while others run. */
#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030b0000
#include <Python.h>

#include "job.h"

#include <stdlib.h>
#include <string.h>

typedef unsigned long long word;

static const choice_table *table;
static choice_room *spare;

/* ---- memory */

static void room_free(choice_room *room) {
    if (!room) return;
    free(room->order), free(room->z), free(room->adjusted), free(room->weights);
    free(room->ids), free(room->some), free(room->counts), free(room);
}

static choice_room *room_new(int32_t n) {
    choice_room *room = calloc(1, sizeof *room);
    if (!room) return NULL;
    size_t count = (size_t)n + 64; /* loops go to the end of a block */
    room->n = n;
    room->order = malloc(count * sizeof *room->order), room->z = malloc(count * sizeof *room->z);
    room->adjusted = malloc(count * sizeof *room->adjusted), room->weights = malloc(count * sizeof *room->weights);
    room->ids = malloc(count * sizeof *room->ids), room->some = malloc(count * sizeof *room->some);
    room->counts = calloc(count, sizeof *room->counts);
    if (room->order && room->z && room->adjusted && room->weights && room->ids && room->some && room->counts) return room;
    room_free(room);
    return NULL;
}

/* With the interpreter's lock: the spare one if it is there and large enough. NULL with an error set. */
static choice_room *room_take(int32_t n) {
    choice_room *room = spare;
    spare = NULL;
    if (room && room->n >= n) return room;
    room_free(room);
    room = room_new(n < 1024 ? 1024 : n);
    if (!room) PyErr_NoMemory();
    return room;
}

static void room_give(choice_room *room) {
    if (spare && spare->n > room->n) {
        room_free(room);
        return;
    }
    room_free(spare);
    spare = room;
}

/* ---- arguments */

/* Whole numbers of a list or tuple; `more` places behind them. NULL with an error set. */
static int32_t *numbers(PyObject *given, int32_t *count, Py_ssize_t more) {
    int list = PyList_Check(given);
    if (!list && !PyTuple_Check(given)) {
        PyErr_SetString(PyExc_TypeError, "tokens are a list or a tuple");
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
static int sampling_of(choice_job *job, PyObject *given) {
    PyObject *bias;
    choice_cuts *c = &job->cuts;
    long long k;
    if (!PyArg_ParseTuple(given, "dLdddddO", &c->temperature, &k, &c->top_p, &c->min_p, &job->repetition, &job->presence,
                          &job->frequency, &bias))
        return 0;
    c->top_k = k;
    return bias_of(job, bias);
}

/* address, kind, n */
static int row_of(choice_row *row, word address, int kind, int n) {
    if ((kind != CHOICE_FLOAT32 && kind != CHOICE_FLOAT64) || n < 1) {
        PyErr_SetString(PyExc_ValueError, "a row has at least one logit, float32 or float64");
        return 0;
    }
    *row = (choice_row){(const void *)(uintptr_t)address, kind, n};
    return 1;
}

static void source_of(choice_source *s, word seed, word t, word stream, word domain) {
    *s = (choice_source){{(uint32_t)seed, (uint32_t)(seed >> 32)}, (uint32_t)t, (uint32_t)stream, (uint32_t)domain};
}

static void job_free(choice_job *job) {
    free(job->bias_ids), free(job->bias), free(job->history), free(job->ids), free(job->parents), free(job->path);
}

/* What depends on drafts and history; tokens are read only where a penalty wants them. */
static int draft_of(choice_job *job, PyObject *tokens, PyObject *ids, PyObject *parents) {
    if (ids != Py_None && !(job->ids = numbers(ids, &job->drafted, 0))) return 0;
    int32_t count = 0;
    if (parents != Py_None && !(job->parents = numbers(parents, &count, 0))) return 0;
    if (job->parents && count != job->drafted) {
        PyErr_SetString(PyExc_ValueError, "as many parents as tokens");
        return 0;
    }
    job->path = malloc((size_t)(job->drafted + 1) * sizeof *job->path);
    if (!job->path) return PyErr_NoMemory() != NULL;
    if (job->repetition == 1 && job->presence == 0 && job->frequency == 0) return 1;
    return (job->history = numbers(tokens, &job->length, job->drafted)) != NULL;
}

/* (address, stride, kind, n, sampling, (seed, stream, domain), t, tokens, prompt, ids or None, parents or None) */
static int job_of(choice_job *job, PyObject *given) {
    PyObject *sampling, *tokens, *ids, *parents;
    word address, seed, t, stream, domain;
    long long stride;
    int kind, n;
    memset(job, 0, sizeof *job);
    if (!PyArg_ParseTuple(given, "KLiiO(KKK)KOiOO", &address, &stride, &kind, &n, &sampling, &seed, &stream, &domain, &t,
                          &tokens, &job->prompt, &ids, &parents))
        return 0;
    if (!row_of(&job->row, address, kind, n)) return 0;
    job->logits = job->row.data, job->stride = stride;
    source_of(&job->source, seed, t, stream, domain);
    return sampling_of(job, sampling) && draft_of(job, tokens, ids, parents);
}

/* ---- functions */

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
    choice_room *room = room_take(n);
    if (!room) goto done;
    Py_BEGIN_ALLOW_THREADS
    for (Py_ssize_t i = 0; i < count; i++)
        choice_walk(&jobs[i], table, room);
    Py_END_ALLOW_THREADS
    room_give(room);
    found = all_walked(jobs, count);
done:
    for (Py_ssize_t i = 0; i < ready; i++)
        job_free(&jobs[i]);
    free(jobs);
    return found;
}

/* job -> (token, its row's largest logit, distance of the two best scores) */
static PyObject *draw(PyObject *module, PyObject *given) {
    choice_job job;
    (void)module;
    choice_room *room = NULL;
    if (job_of(&job, given) && (room = room_take(job.row.n))) {
        Py_BEGIN_ALLOW_THREADS
        choice_draw(&job, table, room);
        Py_END_ALLOW_THREADS
        room_give(room);
    }
    job_free(&job);
    return room ? Py_BuildValue("(idd)", (int)job.made.id, job.made.logit, job.made.lead) : NULL;
}

/* address, kind, n, (temperature, top_k, top_p, min_p), addresses of ids int64 [n] and z float64 [n] -> how many */
static PyObject *support(PyObject *module, PyObject *args) {
    word address, ids_at, z_at;
    int kind, n;
    long long k;
    choice_cuts c;
    choice_row row;
    (void)module;
    if (!PyArg_ParseTuple(args, "Kii(dLdd)KK", &address, &kind, &n, &c.temperature, &k, &c.top_p, &c.min_p, &ids_at, &z_at))
        return NULL;
    c.top_k = k;
    choice_room *room = row_of(&row, address, kind, n) ? room_take(n) : NULL;
    if (!room) return NULL;
    int32_t count;
    int64_t *ids = (int64_t *)(uintptr_t)ids_at;
    Py_BEGIN_ALLOW_THREADS
    count = table->support(row, &c, room);
    for (int32_t i = 0; i < count; i++)
        ids[i] = room->ids[i];
    memcpy((void *)(uintptr_t)z_at, room->z, (size_t)count * sizeof *room->z);
    Py_END_ALLOW_THREADS
    room_give(room);
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
    made = table->mass(row, &total);
    Py_END_ALLOW_THREADS
    return Py_BuildValue("(idL)", (int)made.id, made.logit, (long long)total);
}

/* [(id, probability)], or what of it there is where an error is set. */
static PyObject *shares(const choice_place *order, int32_t count, uint64_t total) {
    PyObject *found = PyList_New(count);
    for (int32_t i = 0; found && i < count; i++) {
        double chance = total ? (double)table->weight(order[i].z) / (double)total : 0;
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
    choice_room *room = row_of(&row, address, kind, n) ? room_take(n) : NULL;
    PyObject *found = room ? PyList_New(rows) : NULL;
    count = count < n ? count : n;
    for (int i = 0; found && i < rows; i++) {
        uint64_t total;
        row.data = (const uint8_t *)(uintptr_t)address + stride * i;
        Py_BEGIN_ALLOW_THREADS
        total = table->likeliest(row, count, room);
        Py_END_ALLOW_THREADS
        PyObject *best = shares(room->order, count, total);
        if (!best || PyList_SetItem(found, i, best) < 0) Py_CLEAR(found);
    }
    if (room) room_give(room);
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
    table->gumbel(&source, (const int64_t *)(uintptr_t)ids, n, (double *)(uintptr_t)out);
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

/* isa, or None for the best: from now on, in all threads. For tests and measurements. */
static PyObject *use(PyObject *module, PyObject *args) {
    const char *isa;
    (void)module;
    if (!PyArg_ParseTuple(args, "z", &isa)) return NULL;
    const choice_table *found = choice_of(isa);
    if (!found) return PyErr_Format(PyExc_ValueError, "instruction set %s is not known, or not that of this processor", isa);
    table = found;
    Py_RETURN_NONE;
}

static PyMethodDef functions[] = {
    {"walk", walk, METH_O, NULL},           {"draw", draw, METH_O, NULL},
    {"support", support, METH_VARARGS, NULL}, {"mass", mass, METH_VARARGS, NULL},
    {"likeliest", likeliest, METH_VARARGS, NULL}, {"gumbel", gumbel, METH_VARARGS, NULL},
    {"instruction_sets", instruction_sets, METH_NOARGS, NULL}, {"use", use, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_choice", "The seeded choice of a token.", -1, functions, NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__choice(void) {
    table = choice_of(NULL);
    return PyModule_Create(&definition);
}
