/* What functions of the module share: reading what Python gives, and the memory that they work in. Included by files
 * that include Python.h. */
#ifndef SPEC_CHOICE_ARGUMENTS_H
#define SPEC_CHOICE_ARGUMENTS_H

#include "job.h"

typedef unsigned long long word;

/* module.c: the functions of the instruction set in use */
extern const choice_table *choice_now;

/* room.c. With the interpreter's lock: a spare one where one is large enough. NULL with an error set. */
choice_room *room_take(int32_t n);
void room_give(choice_room *room);

/* arguments.c. Whole numbers of a list or tuple; `more` places behind them. NULL with an error set. */
int32_t *numbers(PyObject *given, int32_t *count, Py_ssize_t more);

/* Those that fill in a part give 0 with an error set.
 * sampling: (temperature, top_k, top_p, min_p, repetition, presence, frequency, {id: bias}) */
int sampling_of(choice_job *job, PyObject *given);
int row_of(choice_row *row, word address, int kind, int n);
void source_of(choice_source *s, word seed, word t, word stream, word domain);

/* (address, stride, kind, n, sampling, (seed, stream, domain), t, tokens, prompt, ids or None, parents or None, address
 * of the masks or 0, their words per row) */
int job_of(choice_job *job, PyObject *given);
void job_free(choice_job *job);

/* chooser.c */
PyObject *chooser_new(PyObject *module, PyObject *args);

#endif
