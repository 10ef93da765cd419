/* Threads that work through a program phase by phase. */
#ifndef SPEC_POOL_H
#define SPEC_POOL_H

#define SPEC_MAX_THREADS 64
#define SPEC_MAX_JOBS 4096 /* of one phase */

typedef struct {
    /* Called by one thread at a time, first and then whenever all jobs of a phase are done: does what is serial,
       prepares the next phase and returns how many jobs it has; 0 where nothing is left. */
    int (*next)(void *context);
    /* Jobs 0 ... next() - 1 of a phase, each once, by any thread (0 ... threads - 1), in any order. */
    void (*work)(void *context, int job, int thread);
} spec_work;

/* Runs all phases; returns when the last is done. The calling thread works too and is thread 0.
   While another run has the pool, the caller does everything itself: results do not depend on threads.
   Denormal numbers are zeros inside; the caller's floating-point state is as it was afterwards. */
void spec_pool_run(int threads, const spec_work *work, void *context);

/* Inside a run: how many numbers of threads there are. A thread of an earlier, wider run may still take a job. */
int spec_pool_width(void);

#endif
