/* The extension module. Limited API, so one binary serves all versions. */
#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030b0000
#include <Python.h>

#include "vocabulary.h"

#include <stdlib.h>
#include <string.h>

/* ---- Texts of a file, each after its length in 8 bytes */

/* buffer, start, count -> uint64 ends of the texts as bytes; None if they do not lie in the buffer */
static PyObject *read_ends(PyObject *module, PyObject *args) {
    Py_buffer data;
    Py_ssize_t start, count;
    (void)module;
    if (!PyArg_ParseTuple(args, "y*nn", &data, &start, &count)) return NULL;
    const uint8_t *bytes = data.buf;
    uint64_t size = (uint64_t)data.len, at = (uint64_t)start;
    int good = start >= 0 && at <= size && count >= 0 && (uint64_t)count <= (size - at) / 8;
    PyObject *ends = good ? PyBytes_FromStringAndSize(NULL, 8 * count) : NULL;
    char *to = ends ? PyBytes_AsString(ends) : NULL;
    for (Py_ssize_t i = 0; to && i < count && good; i++) {
        uint64_t length = 0;
        if ((good = size - at >= 8)) {
            for (int b = 7; b >= 0; b--) length = length << 8 | bytes[at + (uint64_t)b];
            good = length <= size - at - 8;
        }
        at += 8 + length;
        memcpy(to + 8 * i, &at, 8);
    }
    PyBuffer_Release(&data);
    if (good) return ends;
    Py_XDECREF(ends);
    Py_RETURN_NONE;
}

/* buffer, start, uint64 ends -> [text]; invalid bytes become replacement characters */
static PyObject *read_texts(PyObject *module, PyObject *args) {
    Py_buffer data, ends;
    Py_ssize_t start;
    (void)module;
    if (!PyArg_ParseTuple(args, "y*ny*", &data, &start, &ends)) return NULL;
    Py_ssize_t count = ends.len / 8;
    uint64_t begin = (uint64_t)start, end;
    PyObject *texts = PyList_New(count);
    for (Py_ssize_t i = 0; texts && i < count; i++, begin = end) {
        memcpy(&end, (const char *)ends.buf + 8 * i, 8);
        PyObject *text = NULL;
        if (end > (uint64_t)data.len || end < 8 || begin > end - 8)
            PyErr_SetString(PyExc_ValueError, "a text lies outside the buffer");
        else text = PyUnicode_DecodeUTF8((const char *)data.buf + begin + 8, (Py_ssize_t)(end - begin - 8), "replace");
        if (!text || PyList_SetItem(texts, i, text) < 0) Py_CLEAR(texts);
    }
    PyBuffer_Release(&data);
    PyBuffer_Release(&ends);
    return texts;
}

/* ---- Merges of a vocabulary */

typedef struct {
    PyObject *tokens; /* a tuple, so that the texts stay */
    text_view *views;
    int32_t count;
    vocabulary v;
} opened;

static int view_of(PyObject *text, text_view *view) {
    Py_ssize_t size;
    view->bytes = PyUnicode_AsUTF8AndSize(text, &size);
    view->size = view->bytes ? (size_t)size : 0;
    return view->bytes != NULL;
}

static void vocabulary_close(opened *o) {
    vocabulary_free(&o->v);
    free(o->views);
    Py_XDECREF(o->tokens);
}

/* 0 if an exception is set; close in either case. */
static int vocabulary_open(opened *o, PyObject *tokens, unsigned long long seed) {
    memset(o, 0, sizeof *o);
    o->tokens = PySequence_Tuple(tokens);
    Py_ssize_t count = o->tokens ? PyTuple_Size(o->tokens) : -1;
    if (count < 0) return 0;
    if (count > INT32_MAX / 8 || !(o->views = malloc(((size_t)count + 1) * sizeof *o->views))) {
        PyErr_NoMemory();
        return 0;
    }
    o->count = (int32_t)count;
    for (int32_t i = 0; i < o->count; i++)
        if (!view_of(PyTuple_GetItem(o->tokens, i), &o->views[i])) return 0;
    int good;
    Py_BEGIN_ALLOW_THREADS
    good = vocabulary_build(&o->v, o->views, o->count, seed);
    Py_END_ALLOW_THREADS
    if (!good) PyErr_NoMemory();
    return good;
}

/* (int32 left sides, int32 right sides), each as bytes */
static PyObject *sides_of(const merge_list *merges) {
    Py_ssize_t size = (Py_ssize_t)merges->count * 4;
    PyObject *left = PyBytes_FromStringAndSize(NULL, size), *right = PyBytes_FromStringAndSize(NULL, size);
    PyObject *both = left && right ? PyTuple_Pack(2, left, right) : NULL;
    for (size_t i = 0; both && i < merges->count; i++) {
        memcpy(PyBytes_AsString(left) + 4 * i, &merges->pairs[i].left, 4);
        memcpy(PyBytes_AsString(right) + 4 * i, &merges->pairs[i].right, 4);
    }
    Py_XDECREF(left);
    Py_XDECREF(right);
    return both;
}

/* tokens, texts of merges, seed -> sides of the merges whose sides and result are tokens */
static PyObject *listed_merges(PyObject *module, PyObject *args) {
    PyObject *tokens, *texts, *sides = NULL, *text;
    unsigned long long seed;
    opened o;
    merge_list merges = {NULL, 0, 0};
    (void)module;
    if (!PyArg_ParseTuple(args, "OOK", &tokens, &texts, &seed)) return NULL;
    PyObject *each = PyObject_GetIter(texts);
    if (!each) return NULL;
    int good = vocabulary_open(&o, tokens, seed);
    while (good && (text = PyIter_Next(each))) {
        text_view view;
        if (!PyUnicode_Check(text) || !view_of(text, &view)) PyErr_Clear(); /* no merge of tokens */
        else if (!(good = merge_split(&o.v, view, &merges))) PyErr_NoMemory();
        Py_DECREF(text);
    }
    if (good && !PyErr_Occurred()) sides = sides_of(&merges);
    Py_DECREF(each);
    vocabulary_close(&o);
    free(merges.pairs);
    return sides;
}

/* Whether both lists of int32 fit the vocabulary. */
static int ranks_fit(const opened *o, const Py_buffer *order, const Py_buffer *rank) {
    const int32_t *ids = order->buf;
    if (rank->len != 4 * (Py_ssize_t)o->count || order->len % 4 || order->len > rank->len) return 0;
    for (Py_ssize_t i = 0; i < order->len / 4; i++)
        if (ids[i] < 0 || ids[i] >= o->count) return 0;
    return 1;
}

/* tokens, int32 order, int32 ranks, unknown, seed -> sides, see merges_by_rank */
static PyObject *scored_merges(PyObject *module, PyObject *args) {
    PyObject *tokens, *unknown, *sides = NULL;
    Py_buffer order, rank;
    unsigned long long seed;
    opened o;
    text_view stand_in;
    merge_list merges = {NULL, 0, 0};
    (void)module;
    if (!PyArg_ParseTuple(args, "Oy*y*UK", &tokens, &order, &rank, &unknown, &seed)) return NULL;
    int good = vocabulary_open(&o, tokens, seed) && view_of(unknown, &stand_in);
    if (good && !(good = ranks_fit(&o, &order, &rank)))
        PyErr_SetString(PyExc_ValueError, "order and ranks do not fit the tokens");
    if (good) {
        Py_BEGIN_ALLOW_THREADS
        good = merges_by_rank(&o.v, o.views, order.buf, (int32_t)(order.len / 4), rank.buf, stand_in, &merges);
        Py_END_ALLOW_THREADS
        sides = good ? sides_of(&merges) : PyErr_NoMemory();
    }
    vocabulary_close(&o);
    free(merges.pairs);
    PyBuffer_Release(&order);
    PyBuffer_Release(&rank);
    return sides;
}

static PyMethodDef functions[] = {
    {"read_ends", read_ends, METH_VARARGS, NULL},
    {"read_texts", read_texts, METH_VARARGS, NULL},
    {"listed_merges", listed_merges, METH_VARARGS, NULL},
    {"scored_merges", scored_merges, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    "_vocabulary",
    "Texts of a model file and merges of its vocabulary.",
    -1,
    functions,
    NULL,
    NULL,
    NULL,
    NULL,
};

PyMODINIT_FUNC PyInit__vocabulary(void) { return PyModule_Create(&definition); }
