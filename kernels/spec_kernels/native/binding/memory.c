/* Functions of the module for weights, caches and states. */
#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030b0000
#include <Python.h>

#include "forward_args.h"
#include "ops/layout.h"

#include <stdlib.h>
#include <string.h>

typedef unsigned long long word;

static void *at(word address) { return (void *)(uintptr_t)address; }

/* type, k -> bytes of a tile of 16 rows; 0 if the type does not support k inputs */
static PyObject *tile_bytes(PyObject *module, PyObject *args) {
    int type, k;
    (void)module;
    return PyArg_ParseTuple(args, "ii", &type, &k) ? PyLong_FromSize_t(spec_tile_bytes(type, k)) : NULL;
}

/* type, rows, bytes of a row, order int32 or 0, n, k, tiles, bytes between tiles: converts a file's rows to tiles */
static PyObject *repack(PyObject *module, PyObject *args) {
    int type, n, k, failed = 0;
    Py_ssize_t row_bytes, step;
    word rows, order, tiles;
    (void)module;
    if (!PyArg_ParseTuple(args, "iKnKiiKn", &type, &rows, &row_bytes, &order, &n, &k, &tiles, &step)) return NULL;
    if (n < 1 || (size_t)row_bytes < spec_row_bytes(type, k) || (size_t)step < spec_tile_bytes(type, k))
        return PyErr_Format(PyExc_ValueError, "a row of %zd bytes does not hold %d inputs", row_bytes, k);
    Py_BEGIN_ALLOW_THREADS
    for (int first = 0; first < n && !failed; first += SPEC_TILE) {
        int count = spec_min(SPEC_TILE, n - first);
        const uint8_t *from = (const uint8_t *)at(rows) + (order ? 0 : (size_t)first * (size_t)row_bytes);
        failed = spec_repack(type, from, (size_t)row_bytes, order ? (const int32_t *)at(order) + first : NULL, count, k,
                             (uint8_t *)at(tiles) + (size_t)(first / SPEC_TILE) * (size_t)step);
    }
    Py_END_ALLOW_THREADS
    if (failed) return PyErr_Format(PyExc_ValueError, "type %d does not support %d inputs", type, k);
    Py_RETURN_NONE;
}

/* contiguous float32 [n, k], n, k, tiles, bytes from tile to tile: converts rows to tiles of Q8_0 */
static PyObject *requantise(PyObject *module, PyObject *args) {
    int n, k;
    word rows, tiles;
    Py_ssize_t step;
    (void)module;
    if (!PyArg_ParseTuple(args, "KiiKn", &rows, &n, &k, &tiles, &step)) return NULL;
    if (n < 1 || k < 32 || k % 32)
        return PyErr_Format(PyExc_ValueError, "[%d, %d] is not divided into blocks of 32", n, k);
    Py_BEGIN_ALLOW_THREADS
    for (int first = 0; first < n; first += SPEC_TILE)
        spec_requantise_q8_0((const float *)at(rows) + (size_t)first * (size_t)k, (size_t)k, NULL,
                             spec_min(SPEC_TILE, n - first), k,
                             (uint8_t *)at(tiles) + (size_t)(first / SPEC_TILE) * (size_t)step);
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}

/* type, n, k, tiles, first row, rows, out float32 [rows, k] */
static PyObject *rows_of(PyObject *module, PyObject *args) {
    spec_weight w;
    int first, count;
    word tiles, out;
    (void)module;
    if (!PyArg_ParseTuple(args, "iiiKiiK", &w.type, &w.n, &w.k, &tiles, &first, &count, &out)) return NULL;
    w.tiles = (w.n + SPEC_TILE - 1) / SPEC_TILE, w.tile_bytes = spec_tile_bytes(w.type, w.k), w.data = at(tiles);
    if (first < 0 || count < 0 || first > w.n - count) return PyErr_Format(PyExc_ValueError, "rows out of range");
    Py_BEGIN_ALLOW_THREADS
    for (int i = 0; i < count; i++) spec_row(&w, first + i, (float *)at(out) + (size_t)i * (size_t)w.k);
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}

/* ---- caches, described by (kind, layers, address of the shapes, int32 [layers][SPEC_SHAPE]) */

static int memory_of(PyObject *tuple, spec_memory *m) {
    word shapes;
    if (!PyArg_ParseTuple(tuple, "iiK", &m->kind, &m->layers, &shapes)) return 0;
    m->shapes = at(shapes), m->borrowed = 0, m->reach = 0;
    return 1;
}

/* shape, places, whether of the layers with a window or of the others -> bytes */
static PyObject *cache_bytes(PyObject *module, PyObject *args) {
    PyObject *shape;
    spec_memory m;
    int places, windowed;
    (void)module;
    if (!PyArg_ParseTuple(args, "Oip", &shape, &places, &windowed) || !memory_of(shape, &m)) return NULL;
    return PyLong_FromSize_t(spec_memory_bytes(&m, windowed, places));
}

static int holds(const spec_piece *piece, int first, int end) {
    return piece->data && first >= piece->first && first % SPEC_TILE == 0 && piece->first % SPEC_FIRST == 0 &&
           piece->places % SPEC_TILE == 0 && end <= piece->first + piece->places;
}

/* Copies the tiles of positions first ... end - 1 of a layer's heads; both may be in the same memory. */
static void copy_tiles(const spec_cache *from, const spec_cache *to, int first, int end) {
    size_t tile = (size_t)(first / SPEC_TILE), tiles = (size_t)((end - first + SPEC_TILE - 1) / SPEC_TILE);
    size_t key = spec_key_tile(from->kind, from->key_dim), value = spec_value_tile(from->kind, from->value_dim);
    for (int h = 0; h < from->kv_heads; h++) {
        size_t head = (size_t)h;
        memmove(to->keys + head * to->key_head_bytes + tile * key,
                from->keys + head * from->key_head_bytes + tile * key, tiles * key);
        if (!from->latent)
            memmove(to->values + head * to->value_head_bytes + tile * value,
                    from->values + head * from->value_head_bytes + tile * value, tiles * value);
    }
}

/* shape, whether of the layers with a window or of the others, (address, places, first position) of the rows and of
   their new memory, first position, end: copies these positions, in whole tiles. In one piece of memory the rows move
   towards its beginning. */
static PyObject *cache_copy(PyObject *module, PyObject *args) {
    PyObject *shape;
    spec_memory m;
    spec_piece from, to;
    int windowed, first, end;
    word source, target;
    (void)module;
    if (!PyArg_ParseTuple(args, "Op(Kii)(Kii)ii", &shape, &windowed, &source, &from.places, &from.first, &target,
                          &to.places, &to.first, &first, &end) ||
        !memory_of(shape, &m))
        return NULL;
    from.data = at(source), to.data = at(target);
    if (first > end || !holds(&from, first, end) || !holds(&to, first, end) ||
        (from.data == to.data && (from.places != to.places || from.first > to.first)))
        return PyErr_Format(PyExc_ValueError, "a cache does not hold positions %d to %d", first, end);
    spec_slot a = {from, from}, b = {to, to};
    for (int layer = 0; layer < m.layers; layer++) {
        if (m.shapes[SPEC_SHAPE * layer + 3] != windowed) continue;
        spec_cache here = spec_memory_layer(&m, &a, layer), there = spec_memory_layer(&m, &b, layer);
        copy_tiles(&here, &there, first, end);
    }
    Py_RETURN_NONE;
}

/* shape, cache as for spec_slot_read, place, (from, ...): moves places `from` to place, place + 1, ... */
static PyObject *cache_compact(PyObject *module, PyObject *args) {
    PyObject *shape, *list, *tuple;
    spec_memory m;
    spec_slot slot;
    int place;
    (void)module;
    if (!PyArg_ParseTuple(args, "OO!iO!", &shape, &PyTuple_Type, &tuple, &place, &PyList_Type, &list)) return NULL;
    if (!memory_of(shape, &m) || !spec_slot_read(&slot, tuple)) return NULL;
    int count = (int)PyList_Size(list);
    int32_t *from = malloc(((size_t)count + 1) * sizeof *from);
    if (!from) return PyErr_NoMemory();
    int good = place >= slot.recent.first;
    for (int i = 0; i < count && good; i++) {
        long n = PyLong_AsLong(PyList_GetItem(list, i));
        good = n >= place + i && n < spec_slot_end(&slot) && (!i || n > from[i - 1]);
        from[i] = (int32_t)n;
    }
    for (int layer = 0; layer < m.layers && good && count; layer++) {
        spec_cache cache = spec_memory_layer(&m, &slot, layer);
        spec_ops(NULL)->compact(&cache, place, from, count);
    }
    free(from);
    if (!good)
        return PyErr_Format(PyExc_ValueError,
                            "places to keep must ascend, and none may lie before its destination or the rows kept");
    Py_RETURN_NONE;
}

/* ---- states */

/* (layers, kernel, channels, key_heads, value_heads, key_dim, value_dim, decays, address of key_of), matrices, windows,
   states, place, record, records, (row of the record, ...): advances the state in `place` by those recorded rows */
static PyObject *replay(PyObject *module, PyObject *args) {
    int layers, states, place, records;
    spec_recurrence r;
    word key_of, matrices, windows, record;
    PyObject *list;
    (void)module;
    if (!PyArg_ParseTuple(args, "(iiiiiiiiK)KKiiKiO!", &layers, &r.kernel, &r.channels, &r.key_heads, &r.value_heads,
                          &r.key_dim, &r.value_dim, &r.decays, &key_of, &matrices, &windows, &states, &place, &record,
                          &records, &PyList_Type, &list))
        return NULL;
    int count = (int)PyList_Size(list), good = place >= 0 && place < states;
    int32_t *path = malloc(((size_t)count + 1) * sizeof *path);
    if (!path) return PyErr_NoMemory();
    for (int i = 0; i < count && good; i++) {
        long n = PyLong_AsLong(PyList_GetItem(list, i));
        good = n >= 0 && n < records;
        path[i] = (int32_t)n;
    }
    int keys = r.key_heads * r.key_dim, values = r.value_heads * r.value_dim, channels = r.channels;
    size_t row = (size_t)(channels + keys + values + r.decays);
    for (int layer = 0; layer < layers && good; layer++) {
        const float *from = (const float *)at(record) + (size_t)layer * (size_t)records * row;
        spec_delta a = {
            .key_heads = r.key_heads,
            .value_heads = r.value_heads,
            .key_dim = r.key_dim,
            .value_dim = r.value_dim,
            .g_width = r.value_heads ? r.decays / r.value_heads : 1,
            .k = from + channels,
            .stride = row,
            .d = (float *)from + channels + keys,
            .d_stride = row,
            .g = from + channels + keys + values,
            .g_stride = row,
            .key_of = at(key_of),
            .states = (float *)at(matrices) + (size_t)layer * (size_t)states * (size_t)(r.key_dim * values),
        };
        spec_conv c = {.channels = channels,
                       .width = r.kernel,
                       .x = from,
                       .x_stride = row,
                       .windows =
                           (float *)at(windows) + (size_t)layer * (size_t)states * (size_t)((r.kernel - 1) * channels)};
        for (int head = 0; head < r.value_heads; head++) spec_ops(NULL)->replay(&a, path, count, place, place, head);
        spec_ops(NULL)->slide(&c, path, count, place, place);
    }
    free(path);
    if (!good) return PyErr_Format(PyExc_ValueError, "state or row of the record out of range");
    Py_RETURN_NONE;
}

/* -> names of the instruction sets that this processor supports, best first */
static PyObject *instruction_sets(PyObject *module, PyObject *unused) {
    static const char *const names[] = {"avx512vnni", "avx512", "avxvnni", "avx2", "i8mm", "neon", "generic"};
    (void)module, (void)unused;
    PyObject *found = PyList_New(0);
    for (size_t i = 0; found && i < sizeof names / sizeof *names; i++) {
        if (!spec_products(names[i]) || !spec_ops(names[i])) continue;
        PyObject *name = PyUnicode_FromString(names[i]);
        if (!name || PyList_Append(found, name)) Py_CLEAR(found);
        Py_XDECREF(name);
    }
    return found;
}

PyMethodDef spec_functions[] = {
    {"tile_bytes", tile_bytes, METH_VARARGS, NULL},
    {"repack", repack, METH_VARARGS, NULL},
    {"requantise", requantise, METH_VARARGS, NULL},
    {"rows_of", rows_of, METH_VARARGS, NULL},
    {"cache_bytes", cache_bytes, METH_VARARGS, NULL},
    {"cache_copy", cache_copy, METH_VARARGS, NULL},
    {"cache_compact", cache_compact, METH_VARARGS, NULL},
    {"replay", replay, METH_VARARGS, NULL},
    {"instruction_sets", instruction_sets, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};
