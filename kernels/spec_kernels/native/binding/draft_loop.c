/* A draft in one call: a forward, a token from its logits, the next forward. The token is the most likely one, or that
 * of a chooser that somebody else wrote (chooser.h). */
#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030b0000
#include <Python.h>

#include "chooser.h"
#include "forward_args.h"

#include <stdlib.h>

#define MOST 256
#define PIECE 256

static const char no_memory[] = "no memory for threads";

/* kept: rows of logits that there is memory for, one or as many as tokens. */
typedef struct {
    int most, found, logits, state, kept;
    const spec_chooser *chooser;
    const int64_t *ids; /* the token of every row of logits; NULL: its own number */
    Py_ssize_t id_count;
    double least, trust;
    int64_t tokens[MOST];
    double chances[MOST];
    PyObject *stops;
    int64_t *ends;
    int end_count;
} spec_drafting;

/* exp(z_best) / sum of exp(z); NaN where a number is none. Eight sums beside each other: one would wait for every
 * addition. */
static float chance_of(const spec_program *p, const float *z, int count, int best) {
    float piece[PIECE];
    double sums[8] = {0}, sum = 0;
    for (int i = 0; i < count; i += PIECE) {
        int n = spec_min(PIECE, count - i);
        for (int j = 0; j < n; j++) piece[j] = z[i + j] - z[best];
        p->ops_table->apply(SPEC_EXP, piece, (size_t)n, piece);
        for (int j = n; j % 8; j++) piece[j] = 0;
        for (int j = 0; j < n; j += 8)
            for (int k = 0; k < 8; k++) sums[k] += (double)piece[j + k];
    }
    for (int k = 0; k < 8; k++) sum += sums[k];
    return (float)(1.0 / sum);
}

static int ends(const spec_drafting *d, int64_t token) {
    for (int i = 0; i < d->end_count; i++)
        if (d->ends[i] == token) return 1;
    return 0;
}

/* The next forward: one row, behind the last, with the token that was just found. */
static void go_on(spec_request *q, const spec_drafting *d, int64_t *position) {
    spec_sequence *s = &q->sequence[0];
    s->start += s->rows;
    s->first = 0, s->rows = 1, s->chain = 1;
    q->rows = 1, q->parents[0] = -1, q->given = NULL;
    q->tokens = &d->tokens[d->found - 1], q->positions = position;
    for (int i = 0; i < SPEC_PICKS; i++) q->picks[i] = NULL;
    if (d->state >= 0) q->inputs[0] = q->taps[d->state], q->input_strides[0] = q->tap_strides[d->state];
    if (d->kept > 1) q->taps[d->logits] += q->tap_strides[d->logits];
}

/* The next token and its chance from a row of logits, or what is wrong with it. */
static const char *next_of(const spec_program *p, spec_drafting *d, const float *z, int vocabulary) {
    int64_t token;
    double chance;
    if (d->chooser) {
        const char *wrong = d->chooser->choose(d->chooser->context, z, vocabulary, d->ids, &token, &chance);
        if (wrong) return wrong;
    } else {
        int best = p->ops_table->argmax(z, vocabulary);
        chance = (double)chance_of(p, z, vocabulary, best), token = d->ids ? d->ids[best] : best;
        if (chance != chance) chance = 0; /* a drafter whose weights make no numbers is sure of nothing */
    }
    if (token < 0 || token >= p->vocabulary) return "a row of logits stands for no token of the model";
    d->tokens[d->found] = token, d->chances[d->found++] = chance;
    return NULL;
}

/* What went wrong, or NULL. */
static const char *drafted(spec_program *p, spec_request *q, spec_drafting *d, int vocabulary) {
    int64_t position = q->positions ? q->positions[q->rows - 1] : 0;
    double survival = 1;
    while (1) {
        if (spec_run(p, q)) return no_memory;
        const char *wrong = next_of(p, d, q->taps[d->logits], vocabulary);
        if (wrong) return wrong;
        survival *= d->chances[d->found - 1] * d->trust;
        if (!(survival >= d->least) || d->found == d->most || ends(d, d->tokens[d->found - 1])) return NULL;
        position++;
        go_on(q, d, &position);
    }
}

/* Whether a draft of `most` tokens has room, and the model the shape for it. */
static const char *misfit(const spec_program *p, const spec_request *q, const spec_drafting *d) {
    if (d->most < 1 || d->most > MOST) return "a draft has 1 to 256 tokens";
    if (q->sequences != 1 || p->recurring) return "one sequence is drafted at a time, and only where nothing recurs";
    if (d->logits < 0 || d->logits >= p->taps || d->state >= p->taps) return "no such tap";
    if (p->inputs != (d->state >= 0) || (d->state >= 0 && !q->taps[d->state])) return "a model with one input feeds it";
    if (d->state >= 0 && q->tap_strides[d->state] < (size_t)p->input_widths[0])
        return "the state is narrower than the input";
    if (q->sequence[0].start + q->rows + d->most - 1 > q->places[0]) return "the cache has no room for the draft";
    if (p->rotated && q->positions[q->rows - 1] + d->most > p->positions) return "positions end before the draft";
    if (!q->picks[1] || q->picked[1] != 1) return "one row of logits begins a draft";
    if (d->kept != 1 && d->kept < d->most) return "rows of logits have memory for one, or for every token";
    return NULL;
}

/* How many rows of logits there are; 0 where the tokens that they stand for are not as many. */
static int rows_of(const spec_program *p, const spec_drafting *d) {
    int rows = 0;
    for (int i = 0; i < p->value_count; i++)
        if (p->values[i].tap == d->logits) rows = p->values[i].width;
    return d->ids && d->id_count != rows ? 0 : rows;
}

static int stops_of(spec_drafting *d) {
    d->end_count = (int)PyTuple_Size(d->stops);
    d->ends = malloc(((size_t)d->end_count + 1) * sizeof *d->ends);
    if (!d->ends) return PyErr_NoMemory(), 0;
    for (int i = 0; i < d->end_count; i++) d->ends[i] = PyLong_AsLongLong(PyTuple_GetItem(d->stops, i));
    return !PyErr_Occurred();
}

/* most, least, trust, stops, logits, state, (address, count) of the tokens that rows of logits stand for or None,
   capsule of a chooser or None, rows of logits that there is memory for */
static int options_of(spec_drafting *d, PyObject *const *args) {
    PyObject *ids = NULL;
    d->most = (int)PyLong_AsLong(args[0]), d->least = PyFloat_AsDouble(args[1]), d->trust = PyFloat_AsDouble(args[2]);
    d->stops = args[3], d->logits = (int)PyLong_AsLong(args[4]), d->state = (int)PyLong_AsLong(args[5]);
    d->kept = (int)PyLong_AsLong(args[8]);
    if (PyErr_Occurred()) return 0;
    if (args[7] != Py_None && !(d->chooser = PyCapsule_GetPointer(args[7], SPEC_CHOOSER))) return 0;
    if (args[6] != Py_None && !PyArg_ParseTuple(args[6], "On", &ids, &d->id_count)) return 0;
    if (ids && !(d->ids = PyLong_AsVoidPtr(ids)) && PyErr_Occurred()) return 0;
    if (PyTuple_Check(d->stops)) return stops_of(d);
    PyErr_SetString(PyExc_ValueError, "tokens that end a draft are a tuple");
    return 0;
}

static PyObject *answer(const spec_drafting *d) {
    PyObject *tokens = PyList_New(d->found), *chances = PyList_New(d->found);
    for (int i = 0; tokens && chances && i < d->found; i++) {
        PyList_SetItem(tokens, i, PyLong_FromLongLong(d->tokens[i]));
        PyList_SetItem(chances, i, PyFloat_FromDouble(d->chances[i]));
    }
    PyObject *both = tokens && chances ? PyTuple_Pack(2, tokens, chances) : NULL;
    Py_XDECREF(tokens);
    Py_XDECREF(chances);
    return both;
}

PyObject *spec_draft(spec_given *g, spec_program *p, PyObject *const *args, Py_ssize_t count) {
    spec_drafting d = {0};
    spec_request *q = &g->request;
    const char *wrong;
    int vocabulary = 0;
    if (count != 18) return PyErr_Format(PyExc_ValueError, "a draft has 18 arguments, %zd are given", count);
    if (!spec_request_read(g, p, args, 9)) return NULL;
    if (!options_of(&d, args + 9)) return free(d.ends), NULL;
    wrong = misfit(p, q, &d);
    if (!wrong && !(vocabulary = rows_of(p, &d))) wrong = "every row of logits stands for one token";
    if (!wrong) {
        Py_BEGIN_ALLOW_THREADS
        wrong = drafted(p, q, &d, vocabulary);
        Py_END_ALLOW_THREADS
    }
    free(d.ends);
    if (wrong == no_memory) return PyErr_NoMemory();
    if (wrong) return PyErr_Format(PyExc_ValueError, "%s", wrong);
    return answer(&d);
}
