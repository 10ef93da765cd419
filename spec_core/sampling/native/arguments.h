/* Shared by the functions of the module: conversion of arguments, and scratch memory. Included by files that include
 * Python.h. */
#ifndef SPEC_CHOICE_ARGUMENTS_H
#define SPEC_CHOICE_ARGUMENTS_H

#include "job.h"

typedef unsigned long long word;

/* module.c: the functions of the current instruction set */
extern const choice_table *choice_now;

/* scratch.c. Call with the interpreter's lock. Reuses spare memory that is large enough. NULL with an error set. */
choice_scratch *scratch_take(int32_t n);
void scratch_give(choice_scratch *scratch);

/* arguments.c. The integers of a list or tuple, with scratch for `more` after them. NULL with an error set. */
int32_t *numbers(PyObject *given, int32_t *count, Py_ssize_t more);

/* These fill in a part of a job; they return 0 with an error set.
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
