/* Scratch memory of calls and choosers. A few are kept between calls, one per sequence that drafts. */
#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030b0000
#include <Python.h>

#include "arguments.h"

#include <stdlib.h>

#define SPARES 16
#define SPARE_PLACES (1 << 18) /* limit of all spare memory; a single one may exceed it */

static choice_scratch *spares[SPARES];
static int held;
static int64_t places;

static void scratch_free(choice_scratch *scratch) {
    if (!scratch) return;
    free(scratch->order), free(scratch->z), free(scratch->adjusted), free(scratch->weights);
    free(scratch->ids), free(scratch->some), free(scratch->counts), free(scratch);
}

static choice_scratch *scratch_new(int32_t n) {
    choice_scratch *scratch = calloc(1, sizeof *scratch);
    if (!scratch) return NULL;
    size_t count = (size_t)n + 64; /* loops run to the end of a block */
    scratch->n = n;
    scratch->order = malloc(count * sizeof *scratch->order), scratch->z = malloc(count * sizeof *scratch->z);
    scratch->adjusted = malloc(count * sizeof *scratch->adjusted),
    scratch->weights = malloc(count * sizeof *scratch->weights);
    scratch->ids = malloc(count * sizeof *scratch->ids), scratch->some = malloc(count * sizeof *scratch->some);
    scratch->counts = calloc(count, sizeof *scratch->counts);
    if (scratch->order && scratch->z && scratch->adjusted && scratch->weights && scratch->ids && scratch->some &&
        scratch->counts)
        return scratch;
    scratch_free(scratch);
    return NULL;
}

choice_scratch *scratch_take(int32_t n) {
    while (held) {
        choice_scratch *scratch = spares[--held];
        places -= scratch->n;
        if (scratch->n >= n) return scratch;
        scratch_free(scratch);
    }
    choice_scratch *scratch = scratch_new(n < 1024 ? 1024 : n);
    if (!scratch) PyErr_NoMemory();
    return scratch;
}

void scratch_give(choice_scratch *scratch) {
    if (held == SPARES || (held && places + scratch->n > SPARE_PLACES)) {
        scratch_free(scratch);
        return;
    }
    places += scratch->n, spares[held++] = scratch;
}
