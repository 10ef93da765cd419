/* The extension module: programs, weights and caches for Python. Limited API, so one binary serves all versions.
 *
 * Addresses are integers; the caller keeps the memory alive. The arguments of a forward are checked here, because they
 * change every time; the operations of a program are checked once, in Python.
 *
 * Longer than other files: one short method for every kind of operation, easier to read side by side. */
#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030b0000
#include <Python.h>

#include "program/program.h"
#include "forward_args.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct {
    PyObject_HEAD spec_program *program;
    spec_given given;
    pthread_mutex_t lock;
    pid_t pid;
} Program;

static spec_program *program_of(PyObject *self) { return ((Program *)self)->program; }

static PyObject *as_long(int32_t made) { return made < 0 ? PyErr_NoMemory() : PyLong_FromLong(made); }

/* ---- arguments */

/* (type, n, k, address) */
static int weight_of(PyObject *tuple, spec_weight *w) {
    unsigned long long address;
    if (!PyArg_ParseTuple(tuple, "iiiK", &w->type, &w->n, &w->k, &address)) return 0;
    w->tiles = (w->n + SPEC_TILE - 1) / SPEC_TILE;
    w->tile_bytes = spec_tile_bytes(w->type, w->k);
    w->data = (const uint8_t *)(uintptr_t)address;
    return 1;
}

/* A copy of `count` floats at an address; NULL for address 0. */
static int copy_floats(spec_program *p, unsigned long long address, int count, float **copy) {
    *copy = NULL;
    if (!address) return 1;
    *copy = spec_keep(p, (const float *)(uintptr_t)address, count);
    if (!*copy) PyErr_NoMemory();
    return *copy != NULL;
}

static PyObject *none_or_error(const spec_op *op) {
    if (!op) return PyErr_NoMemory();
    Py_RETURN_NONE;
}

/* ---- making a program */

static PyObject *value(PyObject *self, PyObject *args) {
    int width;
    return PyArg_ParseTuple(args, "i", &width) ? as_long(spec_add_value(program_of(self), width)) : NULL;
}

static PyObject *qrows(PyObject *self, PyObject *args) {
    int k, bits;
    return PyArg_ParseTuple(args, "ii", &k, &bits) ? as_long(spec_add_qrows(program_of(self), k, bits)) : NULL;
}

/* value, tap: the value is written to the memory of the output */
static PyObject *bind(PyObject *self, PyObject *args) {
    int v, tap;
    if (!PyArg_ParseTuple(args, "ii", &v, &tap)) return NULL;
    program_of(self)->values[v].tap = tap;
    Py_RETURN_NONE;
}

/* One forward at a time, and no change of the program during one. A child of a fork gets a new lock, because the thread
 * that held its parent's does not exist there. */
static void enter(Program *me) {
    if (me->pid != getpid()) pthread_mutex_init(&me->lock, NULL), me->pid = getpid();
    if (pthread_mutex_trylock(&me->lock) == 0) return;
    Py_BEGIN_ALLOW_THREADS
    pthread_mutex_lock(&me->lock);
    Py_END_ALLOW_THREADS
}

/* number of threads of the following forwards */
static PyObject *threads(PyObject *self, PyObject *args) {
    Program *me = (Program *)self;
    int count;
    if (!PyArg_ParseTuple(args, "i", &count)) return NULL;
    enter(me);
    me->program->threads = count < 1 ? 1 : spec_min(count, SPEC_MAX_THREADS);
    pthread_mutex_unlock(&me->lock);
    Py_RETURN_NONE;
}

/* kind, layers, address of the shapes, int32 [layers][4], whether the cache is another model's */
static PyObject *memory(PyObject *self, PyObject *args) {
    spec_memory *m = &program_of(self)->memory;
    unsigned long long shapes;
    int kind, layers, borrowed;
    if (!PyArg_ParseTuple(args, "iiKp", &kind, &layers, &shapes, &borrowed)) return NULL;
    size_t bytes = SPEC_SHAPE * (size_t)layers * sizeof(int32_t);
    int32_t *copy = malloc(bytes);
    if (!copy) return PyErr_NoMemory();
    memcpy(copy, (const void *)(uintptr_t)shapes, bytes);
    m->kind = kind, m->layers = layers, m->borrowed = borrowed, m->shapes = copy, m->reach = 0;
    Py_RETURN_NONE;
}

/* layers, kernel, channels, key_heads, value_heads, key_dim, value_dim, decays, address of key_of int32 */
static PyObject *recurrence(PyObject *self, PyObject *args) {
    spec_recurrence *r = &program_of(self)->recurrence;
    unsigned long long key_of;
    if (!PyArg_ParseTuple(args, "iiiiiiiiK", &program_of(self)->recurring, &r->kernel, &r->channels, &r->key_heads,
                          &r->value_heads, &r->key_dim, &r->value_dim, &r->decays, &key_of))
        return NULL;
    if (!r->value_heads) Py_RETURN_NONE;
    size_t bytes = (size_t)r->value_heads * sizeof(int32_t);
    r->key_of = malloc(bytes);
    if (!r->key_of) return PyErr_NoMemory();
    memcpy(r->key_of, (const void *)(uintptr_t)key_of, bytes);
    Py_RETURN_NONE;
}

/* ((address of cosines, of sines [positions, rotary_dim / 2], rotary_dim), ...), positions */
static PyObject *rotary(PyObject *self, PyObject *args) {
    Program *me = (Program *)self;
    spec_program *p = me->program;
    spec_rotary made[SPEC_TABLES] = {0};
    PyObject *tables;
    int positions;
    if (!PyArg_ParseTuple(args, "O!i", &PyTuple_Type, &tables, &positions)) return NULL;
    int count = (int)PyTuple_Size(tables);
    if (count > SPEC_TABLES) return PyErr_Format(PyExc_ValueError, "more than %d rotary tables", SPEC_TABLES);
    for (int i = 0; i < count; i++) {
        unsigned long long cosines, sines;
        if (!PyArg_ParseTuple(PyTuple_GetItem(tables, i), "KKi", &cosines, &sines, &made[i].rotary_dim)) return NULL;
        made[i].cosines = (const float *)(uintptr_t)cosines, made[i].sines = (const float *)(uintptr_t)sines;
    }
    enter(me);
    for (int i = 0; i < count; i++) {
        made[i].row_cos = p->rotary[i].row_cos, made[i].row_sin = p->rotary[i].row_sin;
        p->rotary[i] = made[i];
    }
    p->tables = count, p->positions = positions;
    pthread_mutex_unlock(&me->lock);
    Py_RETURN_NONE;
}

/* out, table, scale, whether rows in place of tokens are of another embedding */
static PyObject *embed(PyObject *self, PyObject *args) {
    int out, other;
    float scale;
    PyObject *table;
    spec_weight w;
    if (!PyArg_ParseTuple(args, "iOfp", &out, &table, &scale, &other) || !weight_of(table, &w)) return NULL;
    spec_op *op = spec_add_op(program_of(self), SPEC_EMBED);
    if (op) op->out = out, op->weights[0] = w, op->width = w.k, op->scale = scale, program_of(self)->vocabulary = w.n;
    if (op) op->index = other;
    return none_or_error(op);
}

/* out, width: inputs are numbered in the order of these calls */
static PyObject *input(PyObject *self, PyObject *args) {
    int out, width;
    spec_program *p = program_of(self);
    if (!PyArg_ParseTuple(args, "ii", &out, &width)) return NULL;
    if (p->inputs == SPEC_INPUTS) return PyErr_Format(PyExc_ValueError, "more than %d inputs", SPEC_INPUTS);
    spec_op *op = spec_add_op(p, SPEC_INPUT);
    if (op) op->out = out, op->width = width, op->index = p->inputs, p->input_widths[p->inputs++] = width;
    return none_or_error(op);
}

/* x, out, address of the weight [width], width, eps, groups of a row, whether the mean is subtracted, address of the
   bias [width] or 0 */
static PyObject *norm(PyObject *self, PyObject *args) {
    int x, out, width, groups, centred;
    unsigned long long weight, bias;
    float eps, *vector, *vector2;
    if (!PyArg_ParseTuple(args, "iiKifipK", &x, &out, &weight, &width, &eps, &groups, &centred, &bias)) return NULL;
    if (!copy_floats(program_of(self), weight, width, &vector)) return NULL;
    if (!copy_floats(program_of(self), bias, width, &vector2)) return NULL;
    spec_op *op = spec_add_op(program_of(self), SPEC_NORM);
    if (op) op->x = x, op->out = out, op->width = width, op->vector = vector, op->eps = eps;
    if (op) op->heads = groups, op->index = centred, op->vector2 = vector2;
    return none_or_error(op);
}

/* x, heads, dim, address of the weight [dim] or 0, eps, rotary_dim, rotary table */
static PyObject *heads(PyObject *self, PyObject *args) {
    int x, count, dim, rotary_dim, table;
    unsigned long long weight;
    float eps, *vector;
    if (!PyArg_ParseTuple(args, "iiiKfii", &x, &count, &dim, &weight, &eps, &rotary_dim, &table)) return NULL;
    if (!copy_floats(program_of(self), weight, dim, &vector)) return NULL;
    spec_op *op = spec_add_op(program_of(self), SPEC_HEADS);
    if (!op) return PyErr_NoMemory();
    op->x = x, op->heads = count, op->dim = dim, op->vector = vector, op->eps = eps;
    op->rotary_dim = rotary_dim, op->table = table;
    return none_or_error(op);
}

/* k, v or -1, layer, kv_heads */
static PyObject *store(PyObject *self, PyObject *args) {
    int k, v, layer, kv_heads;
    if (!PyArg_ParseTuple(args, "iiii", &k, &v, &layer, &kv_heads)) return NULL;
    spec_op *op = spec_add_op(program_of(self), SPEC_STORE);
    if (op) op->x = k, op->y = v, op->layer = layer, op->kv_heads = kv_heads;
    return none_or_error(op);
}

/* x, qrows */
static PyObject *quantise(PyObject *self, PyObject *args) {
    int x, to;
    if (!PyArg_ParseTuple(args, "ii", &x, &to)) return NULL;
    spec_op *op = spec_add_op(program_of(self), SPEC_QUANTISE);
    if (op) op->x = x, op->qrows = to;
    return none_or_error(op);
}

/* x, gate, width, enum spec_function */
static PyObject *gate(PyObject *self, PyObject *args) {
    int x, y, width, by;
    if (!PyArg_ParseTuple(args, "iiii", &x, &y, &width, &by)) return NULL;
    spec_op *op = spec_add_op(program_of(self), SPEC_GATE);
    if (op) op->x = x, op->y = y, op->width = width, op->index = by;
    return none_or_error(op);
}

/* x, y, out, width */
static PyObject *multiply(PyObject *self, PyObject *args) {
    int x, y, out, width;
    if (!PyArg_ParseTuple(args, "iiii", &x, &y, &out, &width)) return NULL;
    spec_op *op = spec_add_op(program_of(self), SPEC_MULTIPLY);
    if (op) op->x = x, op->y = y, op->out = out, op->width = width;
    return none_or_error(op);
}

/* gate, up, out, width, enum spec_glu, limit */
static PyObject *glu(PyObject *self, PyObject *args) {
    int x, y, out, width, by;
    float limit;
    if (!PyArg_ParseTuple(args, "iiiiif", &x, &y, &out, &width, &by, &limit)) return NULL;
    spec_op *op = spec_add_op(program_of(self), SPEC_GLU);
    if (op) op->x = x, op->y = y, op->out = out, op->width = width, op->glu = by, op->limit = limit;
    return none_or_error(op);
}

/* x, y, out, width, scale */
static PyObject *add(PyObject *self, PyObject *args) {
    int x, y, out, width;
    float scale;
    if (!PyArg_ParseTuple(args, "iiiif", &x, &y, &out, &width, &scale)) return NULL;
    spec_op *op = spec_add_op(program_of(self), SPEC_ADD);
    if (op) op->x = x, op->y = y, op->out = out, op->width = width, op->scale = scale;
    return none_or_error(op);
}

/* x, y, width */
static PyObject *add_relative(PyObject *self, PyObject *args) {
    int x, y, width;
    if (!PyArg_ParseTuple(args, "iii", &x, &y, &width)) return NULL;
    spec_op *op = spec_add_op(program_of(self), SPEC_ADD_RELATIVE);
    if (op) op->x = x, op->y = y, op->width = width;
    return none_or_error(op);
}

/* x, out, first column, width */
static PyObject *columns(PyObject *self, PyObject *args) {
    int x, out, start, width;
    if (!PyArg_ParseTuple(args, "iiii", &x, &out, &start, &width)) return NULL;
    spec_op *op = spec_add_op(program_of(self), SPEC_COLUMNS);
    if (op) op->x = x, op->out = out, op->index = start, op->width = width;
    return none_or_error(op);
}

/* x, index, width */
static PyObject *add_rows(PyObject *self, PyObject *args) {
    int x, index, width;
    if (!PyArg_ParseTuple(args, "iii", &x, &index, &width)) return NULL;
    spec_program *p = program_of(self);
    spec_op *op = spec_add_op(p, SPEC_ADD_ROWS);
    if (op) op->x = x, op->index = index, op->width = width;
    if (p->added < index + 1) p->added = index + 1;
    return none_or_error(op);
}

/* x, width, factor */
static PyObject *scale(PyObject *self, PyObject *args) {
    int x, width;
    float by;
    if (!PyArg_ParseTuple(args, "iif", &x, &width, &by)) return NULL;
    spec_op *op = spec_add_op(program_of(self), SPEC_SCALE);
    if (op) op->x = op->out = x, op->width = width, op->scale = by;
    return none_or_error(op);
}

/* x, width, cap */
static PyObject *softcap(PyObject *self, PyObject *args) {
    int x, width;
    float cap;
    if (!PyArg_ParseTuple(args, "iif", &x, &width, &cap)) return NULL;
    spec_op *op = spec_add_op(program_of(self), SPEC_SOFTCAP);
    if (op) op->x = op->out = x, op->width = width, op->cap = cap;
    return none_or_error(op);
}

/* x, z, out, heads, dim, address of the weight [dim], eps */
static PyObject *gated_norm(PyObject *self, PyObject *args) {
    int x, z, out, count, dim;
    unsigned long long weight;
    float eps, *vector;
    if (!PyArg_ParseTuple(args, "iiiiiKf", &x, &z, &out, &count, &dim, &weight, &eps)) return NULL;
    if (!copy_floats(program_of(self), weight, dim, &vector)) return NULL;
    spec_op *op = spec_add_op(program_of(self), SPEC_GATED_NORM);
    if (op) op->x = x, op->y = z, op->out = out, op->heads = count, op->dim = dim, op->vector = vector, op->eps = eps;
    return none_or_error(op);
}

/* x, kernel or -1, out, width, taps, groups, address of the base [taps, width] */
static PyObject *block_conv(PyObject *self, PyObject *args) {
    int x, y, out, width, taps, groups;
    unsigned long long base;
    float *vector;
    if (!PyArg_ParseTuple(args, "iiiiiiK", &x, &y, &out, &width, &taps, &groups, &base)) return NULL;
    if (!copy_floats(program_of(self), base, taps * width, &vector)) return NULL;
    spec_op *op = spec_add_op(program_of(self), SPEC_BLOCK_CONV);
    if (op) op->x = x, op->y = y, op->out = out, op->width = width, op->dim = taps, op->heads = groups;
    if (op) op->vector = vector;
    return none_or_error(op);
}

/* qrows, scores, out, weight, clusters, those used */
static PyObject *clusters(PyObject *self, PyObject *args) {
    int from, scores, out, count, used;
    PyObject *weight;
    spec_weight w;
    if (!PyArg_ParseTuple(args, "iiiOii", &from, &scores, &out, &weight, &count, &used)) return NULL;
    if (!weight_of(weight, &w)) return NULL;
    spec_op *op = spec_add_op(program_of(self), SPEC_CLUSTERS);
    if (op) op->qrows = from, op->y = scores, op->out = out, op->weights[0] = w, op->heads = count, op->dim = used;
    return none_or_error(op);
}

/* values, out */
static PyObject *concat(PyObject *self, PyObject *args) {
    PyObject *xs;
    int out;
    if (!PyArg_ParseTuple(args, "O!i", &PyTuple_Type, &xs, &out)) return NULL;
    if (PyTuple_Size(xs) > SPEC_INPUTS)
        return PyErr_Format(PyExc_ValueError, "more than %d values to concatenate", SPEC_INPUTS);
    spec_op *op = spec_add_op(program_of(self), SPEC_CONCAT);
    if (!op) return PyErr_NoMemory();
    op->out = out, op->parts = (int)PyTuple_Size(xs);
    for (int i = 0; i < op->parts; i++) op->xs[i] = (int)PyLong_AsLong(PyTuple_GetItem(xs, i));
    return none_or_error(op);
}

/* x, index of the output */
static PyObject *tap(PyObject *self, PyObject *args) {
    int x, index;
    if (!PyArg_ParseTuple(args, "ii", &x, &index)) return NULL;
    spec_op *op = spec_add_op(program_of(self), SPEC_TAP);
    if (op) op->x = x, op->index = index;
    if (index >= program_of(self)->taps) program_of(self)->taps = index + 1;
    return none_or_error(op);
}

/* qrows, ((weight, out, address of the bias or 0), ...), add or -1, paired, enum spec_glu of pairs, limit */
static PyObject *linear(PyObject *self, PyObject *args) {
    int from, add, paired, by;
    float limit;
    PyObject *parts;
    if (!PyArg_ParseTuple(args, "iO!ipif", &from, &PyTuple_Type, &parts, &add, &paired, &by, &limit)) return NULL;
    int count = (int)PyTuple_Size(parts);
    if (count > SPEC_PARTS) return PyErr_Format(PyExc_ValueError, "more than %d matrices", SPEC_PARTS);
    spec_op made = {.kind = SPEC_LINEAR, .parts = count, .limit = limit};
    for (int i = 0; i < count; i++) {
        PyObject *weight;
        unsigned long long bias;
        if (!PyArg_ParseTuple(PyTuple_GetItem(parts, i), "OiK", &weight, &made.outs[i], &bias)) return NULL;
        if (!weight_of(weight, &made.weights[i])) return NULL;
        if (!copy_floats(program_of(self), bias, made.weights[i].n, &made.biases[i])) return NULL;
    }
    spec_op *op = spec_add_op(program_of(self), SPEC_LINEAR);
    if (op) *op = made, op->qrows = from, op->x = add, op->y = op->out = SPEC_NONE, op->paired = paired, op->glu = by;
    return none_or_error(op);
}

/* x, out, (weight of the first head, bytes of a head), heads, numbers of a head that stay, bits of rows */
static PyObject *head_linear(PyObject *self, PyObject *args) {
    int x, out, count, kept, bits;
    unsigned long long bytes;
    PyObject *weight;
    spec_stack matrices;
    if (!PyArg_ParseTuple(args, "ii(OK)iii", &x, &out, &weight, &bytes, &count, &kept, &bits)) return NULL;
    if (!weight_of(weight, &matrices.one)) return NULL;
    matrices.bytes = bytes;
    spec_op *op = spec_add_head_linear(program_of(self), &matrices, count, kept, bits);
    if (op) op->x = x, op->out = out;
    return none_or_error(op);
}

/* q, gate or -1, out, layer, heads, kv_heads, dim, window, lead, scale, causal, cap or 0, address of the sinks or 0,
   anchored, pools or -1, positions of a pool */
static PyObject *attend(PyObject *self, PyObject *args) {
    spec_op made = {.kind = SPEC_ATTEND};
    unsigned long long sinks;
    if (!PyArg_ParseTuple(args, "iiiiiiiiifpfKpii", &made.x, &made.y, &made.out, &made.layer, &made.heads,
                          &made.kv_heads, &made.dim, &made.window, &made.lead, &made.scale, &made.causal, &made.cap,
                          &sinks, &made.index, &made.xs[0], &made.parts))
        return NULL;
    if (!copy_floats(program_of(self), sinks, made.heads, &made.vector)) return NULL;
    spec_memory *m = &program_of(self)->memory;
    int reach = made.window && !made.lead ? made.window : INT32_MAX;
    if (m->shapes[SPEC_SHAPE * made.layer + 3] && reach > m->reach) m->reach = reach;
    spec_op *op = spec_add_op(program_of(self), SPEC_ATTEND);
    if (op) *op = made;
    return none_or_error(op);
}

/* queries, weights, out, layer, heads, dim, positions of a pool, pools chosen, address of the base [pool, dim] */
static PyObject *choose_pools(PyObject *self, PyObject *args) {
    spec_op made = {.kind = SPEC_INDEX};
    unsigned long long base;
    if (!PyArg_ParseTuple(args, "iiiiiiiiK", &made.x, &made.y, &made.out, &made.layer, &made.heads, &made.dim,
                          &made.index, &made.parts, &base))
        return NULL;
    if (!copy_floats(program_of(self), base, made.index * made.dim, &made.vector)) return NULL;
    spec_op *op = spec_add_op(program_of(self), SPEC_INDEX);
    if (op) *op = made;
    return none_or_error(op);
}

/* x, out, streams, eps, rounds, addresses of the base [2 streams + streams^2] and of the scales [3] */
static PyObject *stream_weights(PyObject *self, PyObject *args) {
    int x, out, streams, rounds;
    unsigned long long base, scales;
    float eps, *vector, *vector2;
    if (!PyArg_ParseTuple(args, "iiifiKK", &x, &out, &streams, &eps, &rounds, &base, &scales)) return NULL;
    if (!copy_floats(program_of(self), base, (2 + streams) * streams, &vector)) return NULL;
    if (!copy_floats(program_of(self), scales, 3, &vector2)) return NULL;
    spec_op *op = spec_add_op(program_of(self), SPEC_STREAM_WEIGHTS);
    if (op) op->x = x, op->out = out, op->heads = streams, op->eps = eps, op->parts = rounds;
    if (op) op->vector = vector, op->vector2 = vector2;
    return none_or_error(op);
}

/* x, weights or -1, out, streams, width of a stream */
static PyObject *stream_sum(PyObject *self, PyObject *args) {
    int x, weights, out, streams, width;
    if (!PyArg_ParseTuple(args, "iiiii", &x, &weights, &out, &streams, &width)) return NULL;
    spec_op *op = spec_add_op(program_of(self), SPEC_STREAM_SUM);
    if (op) op->x = x, op->y = weights, op->out = out, op->heads = streams, op->width = width;
    return none_or_error(op);
}

/* x, y, weights, streams, width of a stream */
static PyObject *stream_mix(PyObject *self, PyObject *args) {
    int x, y, weights, streams, width;
    if (!PyArg_ParseTuple(args, "iiiii", &x, &y, &weights, &streams, &width)) return NULL;
    spec_op *op = spec_add_op(program_of(self), SPEC_STREAM_MIX);
    if (op) op->x = op->out = x, op->y = y, op->xs[0] = weights, op->heads = streams, op->width = width;
    return none_or_error(op);
}

/* A record of the inputs of a recurrent layer for replay. xs: see row_ops.c */
static spec_op *record(PyObject *self, int layer, int x, int mixed, int d, int rates) {
    spec_op *op = spec_add_op(program_of(self), SPEC_RECORD);
    if (op) op->layer = layer, op->xs[0] = x, op->xs[1] = mixed, op->xs[2] = d, op->xs[3] = rates;
    return op;
}

/* x, gate or -1, out, layer, address of the weight [kernel, channels], and of the bias [channels] or 0: with a gate it
   is a layer of its own, whose inputs are recorded */
static PyObject *conv(PyObject *self, PyObject *args) {
    int x, by, out, layer;
    unsigned long long weight, bias;
    float *vector, *vector2;
    const spec_recurrence *r = &program_of(self)->recurrence;
    if (!PyArg_ParseTuple(args, "iiiiKK", &x, &by, &out, &layer, &weight, &bias)) return NULL;
    if (!copy_floats(program_of(self), weight, r->kernel * r->channels, &vector)) return NULL;
    if (!copy_floats(program_of(self), bias, r->channels, &vector2)) return NULL;
    spec_op *op = spec_add_op(program_of(self), SPEC_CONV);
    if (op) op->x = x, op->y = by, op->out = out, op->layer = layer, op->vector = vector, op->vector2 = vector2;
    if (op && by != SPEC_NONE) op = record(self, layer, x, x, x, x);
    return none_or_error(op);
}

/* q k v, rates, alpha, beta or -1, addresses of rate and dt [decays], eps, scale of q, factor of beta, the lowest
   logarithm of a decay or 0 */
static PyObject *rates(PyObject *self, PyObject *args) {
    int x, y, alpha, beta, count = program_of(self)->recurrence.decays;
    unsigned long long rate, dt;
    float eps, scale, strength, least, *vector, *vector2;
    if (!PyArg_ParseTuple(args, "iiiiKKffff", &x, &y, &alpha, &beta, &rate, &dt, &eps, &scale, &strength, &least))
        return NULL;
    if (!copy_floats(program_of(self), rate, count, &vector) || !copy_floats(program_of(self), dt, count, &vector2))
        return NULL;
    spec_op *op = spec_add_op(program_of(self), SPEC_RATES);
    if (op) {
        op->x = x, op->y = y, op->xs[0] = alpha, op->xs[1] = beta;
        op->vector = vector, op->vector2 = vector2, op->eps = eps, op->scale = scale, op->cap = strength;
        op->limit = least;
    }
    return none_or_error(op);
}

/* x (inputs of the convolution), q k v, rates, o, d, layer, address of the skip [value_heads] or 0: the scan, or the
   delta rule, and its record for replay */
static PyObject *delta(PyObject *self, PyObject *args) {
    int x, mixed, rate, o, d, layer;
    unsigned long long skip;
    float *vector;
    if (!PyArg_ParseTuple(args, "iiiiiiK", &x, &mixed, &rate, &o, &d, &layer, &skip)) return NULL;
    if (!copy_floats(program_of(self), skip, program_of(self)->recurrence.value_heads, &vector)) return NULL;
    spec_op *op = spec_add_op(program_of(self), SPEC_DELTA);
    if (!op) return PyErr_NoMemory();
    op->x = mixed, op->y = rate, op->out = o, op->outs[0] = d, op->layer = layer, op->vector = vector;
    return none_or_error(record(self, layer, x, mixed, d, rate));
}

/* x, out, list of selected rows */
static PyObject *pick(PyObject *self, PyObject *args) {
    int x, out, index;
    if (!PyArg_ParseTuple(args, "iii", &x, &out, &index)) return NULL;
    spec_op *op = spec_add_op(program_of(self), SPEC_PICK);
    if (op) op->x = x, op->out = out, op->index = index;
    return none_or_error(op);
}

/* x, scores, add, out, bits of x, bits of the inner rows, up: (weight of gate and up in pairs of tiles, bytes of an
   expert), down: likewise, (experts, top, normalise, sigmoid, groups, groups_used, scale, addresses of the bias and of
   the factors or 0), enum spec_glu, addresses of the biases of gate, up and down or 0: [experts, width padded to whole
   tiles], whether there is a gate: without it the tiles are of up alone, limit */
static PyObject *mixture(PyObject *self, PyObject *args) {
    spec_program *p = program_of(self);
    int x, scores, add, out;
    PyObject *up, *down, *router;
    spec_mixture m = {0};
    spec_op made = {.qrows = SPEC_NONE, .x = SPEC_NONE, .y = SPEC_NONE, .out = SPEC_NONE};
    spec_router *r = &made.router;
    unsigned long long up_bytes, down_bytes, bias, factors, biases[3];
    float *vectors[2];
    if (!PyArg_ParseTuple(args, "iiiiii(OK)(OK)Oi(KKK)pf", &x, &scores, &add, &out, &m.bits, &m.inner_bits, &up,
                          &up_bytes, &down, &down_bytes, &router, &made.glu, &biases[0], &biases[1], &biases[2],
                          &made.paired, &made.limit))
        return NULL;
    if (!weight_of(up, &made.up.one) || !weight_of(down, &made.down.one)) return NULL;
    if (!PyArg_ParseTuple(router, "iiiiiifKK", &r->experts, &r->top, &r->normalise, &r->sigmoid, &r->groups,
                          &r->groups_used, &r->scale, &bias, &factors))
        return NULL;
    if (!copy_floats(p, bias, r->experts, &vectors[0])) return NULL;
    if (!copy_floats(p, factors, r->experts, &vectors[1])) return NULL;
    r->bias = vectors[0], r->factors = vectors[1], made.up.bytes = up_bytes, made.down.bytes = down_bytes;
    m.top = r->top, m.experts = r->experts, m.k = made.up.one.k, m.inner = made.down.one.k;
    for (int i = 0; i < 3; i++) {
        size_t width = spec_round_up((size_t)(i < 2 ? m.inner : m.k), 16);
        if (!copy_floats(p, biases[i], r->experts * (int)width, &made.biases[i])) return NULL;
    }
    made.mixture = spec_add_mixture(p, &m);
    if (made.mixture < 0) return PyErr_NoMemory();
    const int kinds[] = {SPEC_ROUTE, SPEC_SORT, SPEC_GATHER, SPEC_UP, SPEC_MIDDLE, SPEC_DOWN, SPEC_SUM};
    spec_op *op = NULL;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        if (!(op = spec_add_op(p, kinds[i]))) return PyErr_NoMemory();
        *op = made, op->kind = kinds[i];
        op->x = kinds[i] == SPEC_ROUTE ? scores : x, op->y = add, op->out = out;
    }
    return none_or_error(op);
}

/* ---- running */

static PyObject *run(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    Program *me = (Program *)self;
    int failed;
    enter(me);
    if (!spec_request_read(&me->given, me->program, args, count)) {
        pthread_mutex_unlock(&me->lock);
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS
    failed = spec_run(me->program, &me->given.request);
    pthread_mutex_unlock(&me->lock);
    Py_END_ALLOW_THREADS
    if (failed) return PyErr_NoMemory();
    Py_RETURN_NONE;
}

static PyObject *draft(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    Program *me = (Program *)self;
    PyObject *found;
    enter(me);
    found = spec_draft(&me->given, me->program, args, count);
    pthread_mutex_unlock(&me->lock);
    return found;
}

static PyMethodDef methods[] = {
    {"value", value, METH_VARARGS, NULL},
    {"qrows", qrows, METH_VARARGS, NULL},
    {"bind", bind, METH_VARARGS, NULL},
    {"threads", threads, METH_VARARGS, NULL},
    {"memory", memory, METH_VARARGS, NULL},
    {"recurrence", recurrence, METH_VARARGS, NULL},
    {"rotary", rotary, METH_VARARGS, NULL},
    {"embed", embed, METH_VARARGS, NULL},
    {"input", input, METH_VARARGS, NULL},
    {"norm", norm, METH_VARARGS, NULL},
    {"heads", heads, METH_VARARGS, NULL},
    {"store", store, METH_VARARGS, NULL},
    {"quantise", quantise, METH_VARARGS, NULL},
    {"gate", gate, METH_VARARGS, NULL},
    {"multiply", multiply, METH_VARARGS, NULL},
    {"glu", glu, METH_VARARGS, NULL},
    {"add", add, METH_VARARGS, NULL},
    {"add_rows", add_rows, METH_VARARGS, NULL},
    {"scale", scale, METH_VARARGS, NULL},
    {"softcap", softcap, METH_VARARGS, NULL},
    {"gated_norm", gated_norm, METH_VARARGS, NULL},
    {"add_relative", add_relative, METH_VARARGS, NULL},
    {"block_conv", block_conv, METH_VARARGS, NULL},
    {"concat", concat, METH_VARARGS, NULL},
    {"clusters", clusters, METH_VARARGS, NULL},
    {"columns", columns, METH_VARARGS, NULL},
    {"tap", tap, METH_VARARGS, NULL},
    {"linear", linear, METH_VARARGS, NULL},
    {"head_linear", head_linear, METH_VARARGS, NULL},
    {"attend", attend, METH_VARARGS, NULL},
    {"choose_pools", choose_pools, METH_VARARGS, NULL},
    {"stream_weights", stream_weights, METH_VARARGS, NULL},
    {"stream_sum", stream_sum, METH_VARARGS, NULL},
    {"stream_mix", stream_mix, METH_VARARGS, NULL},
    {"conv", conv, METH_VARARGS, NULL},
    {"rates", rates, METH_VARARGS, NULL},
    {"delta", delta, METH_VARARGS, NULL},
    {"pick", pick, METH_VARARGS, NULL},
    {"mixture", mixture, METH_VARARGS, NULL},
    {"run", (PyCFunction)(void (*)(void))run, METH_FASTCALL, NULL},
    {"draft", (PyCFunction)(void (*)(void))draft, METH_FASTCALL, NULL},
    {NULL, NULL, 0, NULL},
};

/* ---- creation and deletion of a program */

static PyObject *program_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    const char *isa;
    int threads;
    (void)kwargs;
    if (!PyArg_ParseTuple(args, "zi", &isa, &threads)) return NULL;
    if (threads < 1 || threads > SPEC_MAX_THREADS)
        return PyErr_Format(PyExc_ValueError, "threads = %d: 1 to %d are supported", threads, SPEC_MAX_THREADS);
    if (!spec_products(isa) || !spec_ops(isa))
        return PyErr_Format(PyExc_ValueError, "instruction set %s is unknown or not supported by this processor", isa);
    allocfunc alloc = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    Program *made = (Program *)alloc(type, 0);
    if (!made) return NULL;
    made->program = spec_program_new(isa, threads);
    pthread_mutex_init(&made->lock, NULL), made->pid = getpid();
    if (made->program) return (PyObject *)made;
    Py_DECREF(made);
    return PyErr_NoMemory();
}

static void program_dealloc(PyObject *self) {
    Program *me = (Program *)self;
    PyTypeObject *type = Py_TYPE(self);
    spec_request_free(&me->given);
    spec_program_free(me->program);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(self);
    Py_DECREF(type);
}

static PyType_Slot slots[] = {
    {Py_tp_new, program_new},
    {Py_tp_dealloc, program_dealloc},
    {Py_tp_methods, methods},
    {Py_tp_doc, "Program(isa or None, threads): a model as a list of operations, and forwards through it."},
    {0, NULL},
};
static PyType_Spec type_spec = {"spec_kernels.native._native.Program", sizeof(Program), 0, Py_TPFLAGS_DEFAULT, slots};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    "_native",
    "Quantised weights, KV caches and whole forwards on a CPU.",
    -1,
    NULL,
    NULL,
    NULL,
    NULL,
    NULL,
};

PyMODINIT_FUNC PyInit__native(void) {
    definition.m_methods = spec_functions;
    PyObject *module = PyModule_Create(&definition);
    PyObject *type = module ? PyType_FromSpec(&type_spec) : NULL;
    if (!type || PyModule_AddObjectRef(module, "Program", type) < 0) {
        Py_XDECREF(module);
        module = NULL;
    }
    Py_XDECREF(type);
    return module;
}
