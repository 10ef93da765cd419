/* Reads the arguments of a draft call from Python, and builds its result. */
#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030b0000
#include <Python.h>

#include "draft/draft.h"
#include "forward_args.h"

#include <stdlib.h>

static const char *misfit_of(const spec_drafts *d, const spec_tree *t, int32_t s) {
    const spec_request *q = d->request;
    const spec_sequence *committed = &q->sequence[s];
    int32_t end = committed->first + committed->rows, more = (t->depth - 1) * t->width;
    if (t->depth < 1 || t->depth > SPEC_DEPTH - t->before_count || t->nodes < 1 || t->nodes > SPEC_DEPTH)
        return "a draft has 1 to 256 tokens";
    if (t->width < 1 || t->width > SPEC_BRANCHES) return "a node has 1 to 64 children";
    if (t->width > 1 && !t->chooser) return "a tree needs a chooser";
    if (t->width > 1 && d->sure >= 0 && !t->rows) return "the chances of a tree are those of its chooser";
    if (t->rows < 0 || t->rows > SPEC_DEPTH || t->shared < SPEC_BY_PATH || t->shared > SPEC_BY_DEPTH)
        return "a forward has 1 to 256 rows of a draft";
    if (t->rows && (!d->read || d->program->memory.layers)) return "rows that depend on others have an order";
    if (!(t->trust >= 0 && t->trust <= 1) || t->chance_min != t->chance_min)
        return "the estimate must be from 0 to 1, the threshold a number";
    if (q->picks[1][s] != end - 1) return "a draft starts from the last row of its sequence";
    if (t->width > 1 && d->program->memory.borrowed) return "layers that store nothing draft chains only";
    if (d->program->memory.layers && !d->program->memory.borrowed &&
        committed->start + committed->rows + more > spec_slot_end(&q->memory[s]))
        return "the cache has no room for the draft";
    for (int i = 0; d->read && i < d->program->inputs; i++)
        if (d->read[s * d->program->inputs + i].rows < t->depth) return "a draft is longer than the rows it reads";
    if (d->program->tables && q->positions[end - 1] + t->depth > d->program->positions)
        return "the draft exceeds the model's positions";
    return NULL;
}

/* Whether the states of the last rows of all sequences are requested. */
static int starts_from_states(const spec_request *q) {
    int32_t at = 0;
    for (int32_t s = 0; q->picks[0] && s < q->sequences; s++) {
        int32_t end = q->sequence[s].first + q->sequence[s].rows;
        while (at < q->picked[0] && q->picks[0][at] < end - 1) at++;
        if (at == q->picked[0] || q->picks[0][at] != end - 1) return 0;
    }
    return 1;
}

/* Checks that the model can be used for drafting, and that every draft fits. */
static const char *misfit(const spec_drafts *d) {
    const spec_program *p = d->program;
    const spec_request *q = d->request;
    int64_t rows = 0, paths = 0;
    if (q->each != 1) return "rows of a draft have one position each";
    if (q->held) return "a draft made in one call follows no held rows";
    if (p->recurring) return "a model with recurrent layers cannot draft here";
    if (d->logits < 0 || d->logits >= p->taps || d->state >= p->taps || !q->taps[d->logits]) return "no such tap";
    if (d->sure >= p->taps || (d->sure >= 0 && !q->taps[d->sure])) return "no such tap";
    if ((d->read ? d->state >= 0 : p->inputs != (d->state >= 0)) || (d->state >= 0 && !q->taps[d->state]))
        return "a model that is fed its own state has exactly one input";
    if (d->state >= 0 && q->tap_strides[d->state] < (size_t)p->input_widths[0])
        return "the state is narrower than the input";
    if (d->state >= 0 && !starts_from_states(q)) return "a draft starts from one state per sequence";
    for (int i = 0; i < p->value_count; i++)
        if (p->values[i].tap != SPEC_NONE && p->values[i].tap != d->logits) return "the model must compute logits";
    if (!q->picks[1] || q->picked[1] != q->sequences) return "a draft starts from one row of logits per sequence";
    for (int32_t s = 0; s < q->sequences; s++) {
        const char *wrong = misfit_of(d, &d->trees[s], s);
        if (wrong) return wrong;
        rows += d->trees[s].rows ? d->trees[s].rows : d->trees[s].width,
            paths += (int64_t)d->trees[s].depth * d->trees[s].width;
    }
    if (d->room < (d->keep ? paths : rows)) return "taps have too little memory for the rows of the drafts";
    return NULL;
}

/* Number of logits in a row; 0 if the number of token ids differs. */
static int32_t classes_of(const spec_program *p, int32_t logits, PyObject *ids, const int64_t **tokens) {
    PyObject *at;
    Py_ssize_t count;
    int32_t classes = 0;
    for (int i = 0; i < p->value_count; i++)
        if (p->values[i].tap == logits) classes = p->values[i].width;
    for (int i = 0; i < p->count; i++)
        if (p->ops[i].kind == SPEC_TAP && p->ops[i].index == logits) classes = p->values[p->ops[i].x].width;
    if (ids == Py_None) return classes;
    if (!PyArg_ParseTuple(ids, "On", &at, &count) || !(*tokens = PyLong_AsVoidPtr(at))) return 0;
    return count == classes ? classes : 0;
}

static int tokens_of(PyObject *given, int64_t **tokens, int32_t *count) {
    *count = (int32_t)PyTuple_Size(given);
    *tokens = malloc(((size_t)*count + 1) * sizeof **tokens);
    if (!*tokens) return PyErr_NoMemory() != NULL;
    for (int32_t i = 0; i < *count; i++) (*tokens)[i] = PyLong_AsLongLong(PyTuple_GetItem(given, i));
    return !PyErr_Occurred();
}

/* (max path length, max tokens, max children of a node, min chance, estimate, (stop, ...), chooser or None,
   (token drafted before, ...), rows of a forward or 0, enum spec_shared) */
static int tree_of(spec_tree *t, PyObject *given) {
    PyObject *stops, *chooser, *before;
    if (!PyArg_ParseTuple(given, "iiiddO!OO!ii", &t->depth, &t->nodes, &t->width, &t->chance_min, &t->trust,
                          &PyTuple_Type, &stops, &chooser, &PyTuple_Type, &before, &t->rows, &t->shared))
        return 0;
    if (chooser != Py_None && !(t->chooser = PyCapsule_GetPointer(chooser, SPEC_CHOOSER))) return 0;
    return tokens_of(stops, &t->stops, &t->stop_count) && tokens_of(before, &t->before, &t->before_count);
}

static int trees_of(spec_drafts *d, PyObject *given) {
    int32_t count = d->request->sequences;
    if (!PyTuple_Check(given) || PyTuple_Size(given) != count) {
        PyErr_SetString(PyExc_ValueError, "give one draft per sequence");
        return 0;
    }
    d->trees = calloc((size_t)count + 1, sizeof *d->trees);
    if (!d->trees) return PyErr_NoMemory() != NULL;
    for (int32_t s = 0; s < count; s++)
        if (!tree_of(&d->trees[s], PyTuple_GetItem(given, s))) return 0;
    return 1;
}

/* ((address, stride, rows) of every input, ...) of every sequence. */
static int read_of(spec_drafts *d, PyObject *given) {
    int32_t count = d->program->inputs, sequences = d->request->sequences;
    if (given == Py_None) return 1;
    if (!(d->read = calloc((size_t)(sequences * count) + 1, sizeof *d->read))) return PyErr_NoMemory() != NULL;
    int fits = PyTuple_Check(given) && PyTuple_Size(given) == sequences;
    for (int32_t s = 0; fits && s < sequences; s++) {
        PyObject *one = PyTuple_GetItem(given, s), *at;
        fits = PyTuple_Check(one) && PyTuple_Size(one) == count;
        for (int32_t i = 0; fits && i < count; i++) {
            spec_input_rows *all = &d->read[s * count + i];
            Py_ssize_t stride;
            if (!PyArg_ParseTuple(PyTuple_GetItem(one, i), "Oni", &at, &stride, &all->rows)) return 0;
            fits = (all->data = PyLong_AsVoidPtr(at)) && stride >= d->program->input_widths[i];
            all->stride = (size_t)stride;
        }
    }
    if (!fits && !PyErr_Occurred()) PyErr_SetString(PyExc_ValueError, "give rows of every input for each sequence");
    return fits && !PyErr_Occurred();
}

/* drafts, index of the tap with the logits, index of the tap with the next forward's input (or -1), (address, count) of
   the token ids of the logits or None, whether all rows of logits are kept, capacity of the taps in rows, rows of the
   inputs or None, index of the tap with the score of a token's chance (or -1) */
static int options_of(spec_drafts *d, PyObject *const *args) {
    d->logits = (int32_t)PyLong_AsLong(args[1]), d->state = (int32_t)PyLong_AsLong(args[2]);
    d->keep = PyObject_IsTrue(args[4]), d->room = (int32_t)PyLong_AsLong(args[5]);
    d->sure = (int32_t)PyLong_AsLong(args[7]);
    if (PyErr_Occurred() || !trees_of(d, args[0]) || !read_of(d, args[6])) return 0;
    d->classes = classes_of(d->program, d->logits, args[3], &d->ids);
    return !PyErr_Occurred();
}

/* (tokens, parents, chances), likeliest first; parents is None for a chain. */
static PyObject *tree_found(const spec_tree *t) {
    PyObject *tokens = PyList_New(t->kept), *chances = PyList_New(t->kept);
    PyObject *parents = t->width == 1 ? Py_NewRef(Py_None) : PyList_New(t->kept);
    for (int32_t i = 0; tokens && chances && parents && i < t->kept; i++) {
        const spec_node *node = &t->pool[t->order[i]];
        int32_t parent = 0;
        while (parent < i && t->order[parent] != node->parent) parent++;
        PyList_SetItem(tokens, i, PyLong_FromLongLong(node->token));
        PyList_SetItem(chances, i, PyFloat_FromDouble(node->own));
        if (t->width > 1) PyList_SetItem(parents, i, PyLong_FromLong(parent < i ? parent : -1));
    }
    PyObject *all = tokens && chances && parents ? PyTuple_Pack(3, tokens, parents, chances) : NULL;
    Py_XDECREF(tokens), Py_XDECREF(parents), Py_XDECREF(chances);
    return all;
}

static PyObject *found(const spec_drafts *d) {
    PyObject *trees = PyList_New(d->request->sequences);
    for (int32_t s = 0; trees && s < d->request->sequences; s++) {
        PyObject *one = tree_found(&d->trees[s]);
        if (!one || PyList_SetItem(trees, s, one) < 0) Py_CLEAR(trees);
    }
    return trees ? Py_BuildValue("(Nii)", trees, (int)d->forwards, (int)d->rows) : NULL;
}

PyObject *spec_draft(spec_given *g, spec_program *p, PyObject *const *args, Py_ssize_t count) {
    spec_drafts d = {.program = p, .request = &g->request};
    const char *wrong;
    PyObject *made = NULL;
    if (count != 17) return PyErr_Format(PyExc_ValueError, "17 arguments needed, %zd given", count);
    if (!spec_request_read(g, p, args, 9)) return NULL;
    if (!options_of(&d, args + 9)) goto done;
    wrong = d.classes ? misfit(&d) : "give one token id per logit";
    if (!wrong) {
        Py_BEGIN_ALLOW_THREADS
        wrong = spec_draft_all(&d);
        Py_END_ALLOW_THREADS
    }
    if (wrong == spec_no_memory) PyErr_NoMemory();
    else if (wrong) PyErr_SetString(PyExc_ValueError, wrong);
    else made = found(&d);
done:
    spec_drafts_free(&d);
    return made;
}
