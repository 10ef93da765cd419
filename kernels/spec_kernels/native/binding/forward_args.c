/* Reads and checks the arguments of a forward. Every index is checked, because a wrong one would access memory out of
 * bounds. */
#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030b0000
#include <Python.h>

#include "forward_args.h"

#include <stdlib.h>
#include <string.h>

static int refuse(const char *what) {
    if (!PyErr_Occurred()) PyErr_SetString(PyExc_ValueError, what);
    return 0;
}

static void *address(PyObject *number) { return PyLong_AsVoidPtr(number); }

/* An integer from low to high; otherwise an error with the message `what`. */
static int whole(PyObject *number, long low, long high, const char *what, int32_t *value) {
    long n = PyLong_AsLong(number);
    if ((n == -1 && PyErr_Occurred()) || n < low || n > high) return refuse(what);
    *value = (int32_t)n;
    return 1;
}

static int grow(void **array, size_t count, size_t size) {
    void *made = realloc(*array, count * size);
    if (!made) return 0;
    *array = made;
    return 1;
}

static int room(spec_given *g, const spec_program *p, int rows, int sequences, int taps) {
    spec_request *q = &g->request;
    int good = 1;
    if (rows > g->row_room) {
        size_t n = (size_t)rows;
        good = grow((void **)&q->parents, n, sizeof(int32_t)) && grow((void **)&q->source, n, sizeof(int32_t)) &&
               grow((void **)&q->keep, n, sizeof(int32_t)) && grow((void **)&q->recorded, n, sizeof(int32_t)) &&
               grow((void **)&g->given, n * (size_t)(1 + p->added), sizeof(float *)) &&
               grow((void **)&g->picks[0], n, sizeof(int32_t)) && grow((void **)&g->picks[1], n, sizeof(int32_t));
        g->row_room = good ? rows : 0;
    }
    if (good && sequences > g->sequence_room) {
        size_t n = (size_t)sequences;
        good = grow((void **)&q->sequence, n, sizeof(spec_sequence)) &&
               grow((void **)&q->memory, n, sizeof(spec_slot)) && grow((void **)&g->held, n, sizeof(int32_t));
        g->sequence_room = good ? sequences : 0;
    }
    if (good && taps > g->tap_room) {
        size_t n = (size_t)taps;
        good = grow((void **)&q->taps, n, sizeof(float *)) && grow((void **)&q->tap_strides, n, sizeof(size_t));
        g->tap_room = good ? taps : 0;
    }
    if (!good) PyErr_NoMemory();
    return good;
}

void spec_request_free(spec_given *g) {
    spec_request *q = &g->request;
    free(q->parents), free(q->source), free(q->keep), free(q->recorded), free(g->given), free(g->picks[0]);
    free(g->picks[1]), free(g->tree), free(g->held), free(q->sequence), free(q->memory), free(q->taps),
        free(q->tap_strides);
}

/* ---- sequences */

static int parents_of(spec_request *q, const spec_sequence *s, int pending, PyObject *drafts) {
    int first = s->first, spec = first + pending;
    for (int i = 0; i < s->rows; i++) q->parents[first + i] = i ? first + i - 1 : -1;
    if (drafts == Py_None) return 1;
    if (!PyTuple_Check(drafts) || PyTuple_Size(drafts) != s->rows - pending)
        return refuse("parents: one per draft token is needed");
    for (int i = 0; i < s->rows - pending; i++) {
        int32_t parent;
        if (!whole(PyTuple_GetItem(drafts, i), -1, i - 1, "parents: a parent must come before its child", &parent))
            return 0;
        q->parents[spec + i] = parent >= 0 ? spec + parent : pending ? spec - 1 : -1;
    }
    return 1;
}

/* A tree whose first `held` rows are in the cache. They count as rows of the sequence before its first in the batch, and
 * its parents are in `tree`. */
static int tree_of(spec_request *q, const spec_program *p, spec_sequence *s, int held, PyObject *drafts,
                   int32_t *tree) {
    int first = s->first - held, rows = s->rows + held, chain = 0;
    if (p->recurring) return refuse("sequences: recurrent layers hold no rows of a tree");
    if (held > s->start || !PyTuple_Check(drafts) || PyTuple_Size(drafts) != rows)
        return refuse("parents: one for each row of a tree is needed, held ones first");
    for (int i = 0; i < rows; i++) {
        int32_t parent;
        if (!whole(PyTuple_GetItem(drafts, i), -1, i - 1, "parents: a parent must come before its child", &parent))
            return 0;
        tree[i] = parent >= 0 ? first + parent : INT32_MIN;
        chain += chain == i && parent == i - 1;
    }
    for (int i = 0; i < s->rows; i++) q->parents[s->first + i] = -1;
    s->start -= held, s->first = first, s->rows = rows, s->chain = chain, s->parents = tree - first;
    return 1;
}

int spec_slot_read(spec_slot *slot, PyObject *tuple) {
    PyObject *whole, *recent;
    spec_piece *old = &slot->whole, *new = &slot->recent;
    if (!PyArg_ParseTuple(tuple, "OiOii", &whole, &old->places, &recent, &new->places, &new->first)) return 0;
    old->data = address(whole), new->data = address(recent), old->first = 0;
    if (PyErr_Occurred() || (uintptr_t)old->data % 64 || (uintptr_t)new->data % 64 || old->places < 0 ||
        new->places < 0 || old->places % 16 || new->places % 16)
        return refuse("a cache has whole tiles of places in aligned memory");
    if (new->first < 0 || new->first % SPEC_FIRST || new->first > INT32_MAX - new->places)
        return refuse("a cache cannot begin at that position");
    return 1;
}

/* Whether a sequence writes into its places, and reads no rows that were given back. */
static int check_places(const spec_memory *m, const spec_slot *slot, const spec_sequence *s) {
    if (!m->layers) return 1;
    if (!slot->whole.data || s->start > spec_slot_end(slot) - s->rows)
        return refuse("sequences: a cache has too few places");
    if (slot->recent.first && m->reach > s->start - slot->recent.first + 1) {
        PyErr_Format(PyExc_ValueError,
                     "sequences: rows from position %d on see earlier rows than %d, the first that is kept", s->start,
                     slot->recent.first);
        return 0;
    }
    return 1;
}

static int sequence_of(spec_given *g, const spec_program *p, int i, int *first, int *made, PyObject *tuple) {
    spec_request *q = &g->request;
    spec_sequence *s = &q->sequence[i];
    int pending, mutual, held, rows;
    PyObject *memory, *drafts;
    if (!PyArg_ParseTuple(tuple, "O!iiiOpi", &PyTuple_Type, &memory, &rows, &s->start, &pending, &drafts, &mutual,
                          &held))
        return 0;
    if (!spec_slot_read(&q->memory[i], memory)) return 0;
    g->held[i] = held;
    s->first = *first, s->rows = rows, s->causal = !mutual, s->parents = q->parents;
    if (rows < 1 || rows > q->rows - *first || pending < 0 || pending > rows || s->start < 0 || held < 0)
        return refuse("sequences: more rows than the batch has");
    *first += rows;
    if (held) {
        if (pending || mutual) return refuse("sequences: rows of a tree that follow held ones are all drafts");
        int32_t *tree = g->tree + *made;
        *made += rows + held, q->held = g->held;
        return tree_of(q, p, s, held, drafts, tree) && check_places(&p->memory, &q->memory[i], s);
    }
    if (!check_places(&p->memory, &q->memory[i], s) || !parents_of(q, s, pending, drafts)) return 0;
    s->chain = drafts == Py_None ? s->rows : spec_chain(q->parents, s->first, s->rows);
    return 1;
}

/* Room for the parents of all drafts, where trees have held rows. */
static int tree_room(spec_given *g, PyObject *list) {
    Py_ssize_t rows = 0;
    for (Py_ssize_t i = 0; i < PyTuple_Size(list); i++) {
        PyObject *tuple = PyTuple_GetItem(list, i), *drafts = PyTuple_Check(tuple) ? PyTuple_GetItem(tuple, 4) : NULL;
        if (!drafts) return refuse("sequences: a tuple of seven is needed");
        rows += PyTuple_Check(drafts) ? PyTuple_Size(drafts) : 0;
    }
    if (rows > 1 << 20) return refuse("parents: more than 1048576");
    if (rows <= g->tree_room) return 1;
    if (!grow((void **)&g->tree, (size_t)rows, sizeof(int32_t))) {
        PyErr_NoMemory();
        return 0;
    }
    g->tree_room = (int32_t)rows;
    return 1;
}

static int sequences_of(spec_given *g, const spec_program *p, PyObject *list) {
    spec_request *q = &g->request;
    int first = 0, made = 0;
    q->sequences = (int32_t)PyTuple_Size(list), q->held = NULL;
    if (!tree_room(g, list)) return 0;
    for (int i = 0; i < q->sequences; i++)
        if (!sequence_of(g, p, i, &first, &made, PyTuple_GetItem(list, i))) return 0;
    return first == q->rows || refuse("sequences: fewer rows than the batch has");
}

/* ---- rows */

static int given_of(spec_given *g, const spec_program *p, PyObject *pairs) {
    spec_request *q = &g->request;
    Py_ssize_t n = PyTuple_Size(pairs);
    q->given = n > 0 ? g->given : NULL;
    if (n > 0) memset(g->given, 0, (size_t)q->rows * (size_t)(1 + p->added) * sizeof *g->given);
    for (Py_ssize_t i = 0; i < n; i++) {
        int row, index;
        PyObject *at;
        if (!PyArg_ParseTuple(PyTuple_GetItem(pairs, i), "iOi", &row, &at, &index)) return 0;
        if (row < 0 || row >= q->rows || index < 0 || index > p->added) return refuse("given: row out of range");
        if (!(g->given[(size_t)index * (size_t)q->rows + (size_t)row] = address(at))) return refuse("given: no row");
    }
    return n >= 0;
}

static int tokens_of(const spec_request *q, const spec_program *p) {
    if (p->vocabulary && !q->tokens) return refuse("tokens: none given");
    for (int r = 0; r < q->rows; r++) {
        int replaced = q->given && q->given[r];
        if (p->vocabulary && !replaced && (q->tokens[r] < 0 || q->tokens[r] >= p->vocabulary))
            return refuse("tokens: a token is outside the embedding");
        for (int i = 0; p->tables && i < q->each; i++) {
            int64_t at = q->positions[(size_t)r * (size_t)q->each + (size_t)i];
            if (at < 0 || at >= p->positions) return refuse("positions: a position exceeds the model's rotary table");
        }
    }
    return 1;
}

static int positions_of(spec_request *q, const spec_program *p, PyObject *pair) {
    PyObject *at;
    if (!PyArg_ParseTuple(pair, "Oi", &at, &q->each)) return 0;
    q->positions = address(at);
    if (PyErr_Occurred() || (p->tables && !q->positions)) return refuse("positions: none given");
    for (int i = 0; i < p->tables; i++)
        if (q->each != 1 && 2 * q->each != p->rotary[i].rotary_dim)
            return refuse("positions: one for a row, or one for each pair that rotates");
    return 1;
}

static int inputs_of(spec_request *q, const spec_program *p, PyObject *pairs) {
    if (PyTuple_Size(pairs) != p->inputs) return refuse("inputs: a different number than the model has");
    for (int i = 0; i < p->inputs; i++) {
        PyObject *at;
        Py_ssize_t stride;
        if (!PyArg_ParseTuple(PyTuple_GetItem(pairs, i), "On", &at, &stride)) return 0;
        q->inputs[i] = address(at), q->input_strides[i] = (size_t)stride;
        if (!q->inputs[i] || stride < p->input_widths[i]) return refuse("inputs: too narrow");
    }
    return 1;
}

/* Selected rows: ascending, and among the rows selected before. */
static int pick_of(spec_given *g, int selection, PyObject *rows) {
    spec_request *q = &g->request;
    q->picks[selection] = NULL;
    if (rows == Py_None) return 1;
    const int32_t *had = selection ? q->picks[selection - 1] : NULL;
    int left = had ? q->picked[selection - 1] : q->rows, at = 0;
    Py_ssize_t n = PyList_Check(rows) ? PyList_Size(rows) : -1;
    if (n < 0 || n > left) return refuse("picks: a list of rows is needed");
    for (Py_ssize_t i = 0; i < n; i++, at++) {
        if (!whole(PyList_GetItem(rows, i), 0, q->rows - 1, "picks: row out of range", &g->picks[selection][i]))
            return 0;
        while (at < left && (had ? had[at] : at) != g->picks[selection][i]) at++;
        if (at == left) return refuse("picks: rows must ascend, and be among the rows selected before");
    }
    q->picks[selection] = g->picks[selection], q->picked[selection] = (int32_t)n;
    return 1;
}

static int taps_of(spec_request *q, const spec_program *p, PyObject *pairs) {
    if (PyTuple_Size(pairs) != p->taps) return refuse("taps: a different number than the model has");
    for (int i = 0; i < p->taps; i++) {
        PyObject *pair = PyTuple_GetItem(pairs, i), *at;
        Py_ssize_t stride = 0;
        q->taps[i] = NULL;
        if (pair == Py_None) continue;
        if (!PyArg_ParseTuple(pair, "On", &at, &stride)) return 0;
        q->taps[i] = address(at), q->tap_strides[i] = (size_t)stride;
    }
    for (int i = 0; i < p->value_count; i++) {
        const spec_value *v = &p->values[i];
        if (v->tap == SPEC_NONE) continue;
        if (!q->taps[v->tap] || q->tap_strides[v->tap] < spec_round_up((size_t)v->width, 16))
            return refuse("taps: too little memory for an output");
    }
    return 1;
}

/* ---- recurrence */

static int places_of(PyObject *list, int rows, int low, int high, int32_t *to) {
    if (!PyList_Check(list) || PyList_Size(list) != rows) return refuse("lineage: one entry per row is needed");
    for (int i = 0; i < rows; i++)
        if (!whole(PyList_GetItem(list, i), low, high, "lineage: state out of range", &to[i])) return 0;
    return 1;
}

static int recurrence_of(spec_request *q, const spec_program *p, PyObject *given) {
    PyObject *matrices, *windows, *source, *keep, *record, *recorded;
    q->record = NULL, q->records = 0;
    if (!p->recurring) return 1;
    if (!PyTuple_Check(given)) return refuse("the model has recurrent layers, but no states are given");
    if (!PyArg_ParseTuple(given, "OOiOOOO", &matrices, &windows, &q->states, &source, &keep, &record, &recorded))
        return 0;
    q->matrices = address(matrices), q->windows = address(windows), q->record = address(record);
    if (PyErr_Occurred() || (p->recurrence.value_heads && !q->matrices) || !q->windows)
        return refuse("states: none given");
    if (!places_of(source, q->rows, 0, q->states - 1, q->source)) return 0;
    if (!places_of(keep, q->rows, -1, q->states - 1, q->keep)) return 0;
    for (int r = 0; r < q->rows; r++) q->recorded[r] = -1;
    q->records = (int32_t)PyList_Size(recorded);
    for (int i = 0; i < q->records; i++) {
        int32_t row;
        if (!whole(PyList_GetItem(recorded, i), 0, q->rows - 1, "record: row out of range", &row)) return 0;
        q->recorded[row] = i;
    }
    return q->records >= 0;
}

int spec_request_read(spec_given *g, spec_program *p, PyObject *const *args, Py_ssize_t count) {
    spec_request *q = &g->request;
    int32_t rows;
    if (count < 9) return refuse("a forward needs nine arguments");
    if (!whole(args[2], 1, 1 << 20, "rows must be 1 to 1048576", &rows)) return 0;
    if (!PyTuple_Check(args[3]) || !PyTuple_Check(args[4]) || !PyTuple_Check(args[5]) || !PyTuple_Check(args[6]) ||
        PyTuple_Size(args[6]) != SPEC_PICKS || !PyTuple_Check(args[7]))
        return refuse("sequences, given rows, inputs, picks and taps must be tuples");
    if (!PyTuple_Check(args[1])) return refuse("positions must be a tuple");
    if (!room(g, p, rows, (int)PyTuple_Size(args[3]), p->taps)) return 0;
    q->rows = rows, q->tokens = address(args[0]);
    if (PyErr_Occurred() || !positions_of(q, p, args[1])) return 0;
    if (!sequences_of(g, p, args[3]) || !given_of(g, p, args[4]) || !tokens_of(q, p) || !inputs_of(q, p, args[5]))
        return 0;
    for (int i = 0; i < SPEC_PICKS; i++)
        if (!pick_of(g, i, PyTuple_GetItem(args[6], i))) return 0;
    if (!taps_of(q, p, args[7]) || !recurrence_of(q, p, args[8])) return 0;
    if (spec_reserve(p, (int)spec_round_up((size_t)rows, 16))) {
        PyErr_NoMemory();
        return 0;
    }
    return 1;
}
