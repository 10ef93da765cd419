/* Whether several threads finish a forward sooner than one, by the time that forwards take. */
#ifndef SPEC_TEAM_H
#define SPEC_TEAM_H

#include <stdint.h>

#define SPEC_SIZES 12 /* numbers of rows that are measured apart: 1 ... 8, to 16, to 32, to 64, more */

/* Zeros: several threads, and nothing measured. */
typedef struct {
    int32_t mode, last;     /* together, trial, or alone; and the mode before the trial */
    int32_t seen, delayed;  /* forwards of a trial or of a window; those in which the caller slept */
    int32_t pause, left;    /* forwards between two trials, and the number left until the next may begin */
    double alone, together; /* seconds of the trial's forwards */
} spec_team;

int spec_team_size(int rows); /* index of the spec_team of a forward with `rows` rows */

/* Number of threads of the next forward, of at most `threads`. */
int spec_team_choose(const spec_team *t, int threads);

/* A forward took `seconds` on `team` threads; its caller slept `waits` times while others worked. */
void spec_team_record(spec_team *t, int team, double seconds, int waits);

#endif
