/* Threads that run a program phase by phase. */
#ifndef SPEC_POOL_H
#define SPEC_POOL_H

#define SPEC_MAX_THREADS 64
#define SPEC_MAX_JOBS 4096 /* max jobs of a phase */

typedef struct {
    /* Called by one thread at a time, at the start and whenever all jobs of a phase are done: does the serial part,
       prepares the next phase and returns its number of jobs; 0 at the end. */
    int (*next)(void *context);
    /* Jobs 0 ... next() - 1 of a phase, each once, by any thread (0 ... threads - 1), in any order. */
    void (*work)(void *context, int job, int thread);
} spec_work;

/* Runs all phases; returns when the last is done. The calling thread takes jobs, too, as thread 0.
   While another run uses the pool, the caller runs all jobs itself: results do not depend on threads.
   Denormal numbers are zero during the run; the caller's floating-point state is restored afterwards.
   Returns how often the caller slept until another thread had finished its job, or -1 if it ran all jobs itself. */
int spec_pool_run(int threads, const spec_work *work, void *context);

/* During a run: upper limit of thread numbers. A thread of an earlier run with more threads may still take a job. */
int spec_pool_width(void);

#endif
