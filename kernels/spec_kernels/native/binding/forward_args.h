/* The arguments of one forward, read and checked. Included by files that include Python.h. */
#ifndef SPEC_REQUEST_H
#define SPEC_REQUEST_H

#include "program/program.h"

/* A request and the memory of its arrays, which the next request reuses. */
typedef struct {
    spec_request request;
    int32_t row_room, sequence_room, tap_room, tree_room;
    const float **given;
    int32_t *picks[SPEC_PICKS];
    int32_t *tree, *held; /* parents of rows of trees of which some are held; held rows of each sequence */
} spec_given;

/* (address, places, address of the layers with a window, their places, the first position in these). Returns 0 with an
   exception set if it is invalid. */
int spec_slot_read(spec_slot *slot, PyObject *tuple);

/* The end of the positions that all layers have places for. */
static inline int spec_slot_end(const spec_slot *slot) {
    return spec_min(slot->whole.places, slot->recent.first + slot->recent.places);
}

/* address of tokens, int64 [rows], 0 if no token is embedded; (address of positions, int64 [rows][each], each); rows,
   sequences ((its cache as for spec_slot_read, rows, start, pending, parents of the drafts or None, whether its rows see
   each other in both directions, how many rows of its tree lie before `start` in the cache; their parents come first),
   ...),
   given ((row, address, 0 for an embedding or 1 + index of what is added), ...), inputs ((address, stride), ...),
   picks (rows of `final` or None, rows of `logits` or None), taps ((address, stride) or None, ...),
   None or (matrices, windows, states, source, keep, address of the record or 0, (row, ...) recorded).
   Returns 0 with an exception set if an argument is invalid. */
int spec_request_read(spec_given *g, spec_program *p, PyObject *const *args, Py_ssize_t count);
void spec_request_free(spec_given *g);

/* The arguments of a forward with one row of logits per sequence (its last), then per sequence (max path length,
   max tokens, max children of a node, min chance of a path, estimate, (token that ends a path, ...), chooser; None
   takes the most likely token), then the tap with the logits, the tap with the next forward's input (or -1), the token
   ids of the logits, whether the rows of logits of all forwards are kept, the capacity of the taps in rows, per sequence
   the (address, stride, rows) of every input that later forwards read in place of a tap, or None, and the tap with the
   scores whose sigmoid is the chance of a chain's token (or -1).
   Returns ([(tokens, parents or None of a chain, chances), ...], forwards, rows). */
PyObject *spec_draft(spec_given *g, spec_program *p, PyObject *const *args, Py_ssize_t count);

/* memory.c */
extern PyMethodDef spec_functions[];

#endif
