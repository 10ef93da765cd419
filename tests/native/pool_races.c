/* The pool under the thread sanitiser: phases whose jobs write what the next phase reads, called by several threads at
 * once and in a child of a fork. Exits with 0 if every job ran once, in its own phase. */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "program/thread_pool.h"

#define CALLERS 3
#define JOBS 64
#define PHASES 200

typedef struct {
    int phase, jobs, wrong;
    int done[2][JOBS]; /* how often each job of this phase and the last ran; not atomic, so that races are seen */
} run;

static int jobs_of(int phase) { return 1 + (phase * 37) % JOBS; }

static int next(void *context) {
    run *r = context;
    if (r->phase >= 0)
        for (int i = 0; i < r->jobs; i++) r->wrong += r->done[r->phase % 2][i] != 1;
    if (++r->phase == PHASES) return 0;
    r->jobs = jobs_of(r->phase);
    for (int i = 0; i < r->jobs; i++) r->done[r->phase % 2][i] = 0;
    return r->jobs;
}

static void work(void *context, int job, int thread) {
    run *r = context;
    (void)thread;
    if (job >= r->jobs) abort();
    r->done[r->phase % 2][job]++;
}

static int one_run(int threads) {
    static const spec_work phases = {next, work};
    run r = {.phase = -1};
    spec_pool_run(threads, &phases, &r);
    return r.wrong + (r.phase != PHASES);
}

static void *caller(void *argument) {
    intptr_t wrong = 0;
    (void)argument;
    for (int i = 0; i < 20; i++) wrong += one_run(1 + i % 4);
    return (void *)wrong;
}

static int callers(void) {
    pthread_t threads[CALLERS];
    int wrong = 0;
    for (int i = 0; i < CALLERS; i++) pthread_create(&threads[i], NULL, caller, NULL);
    for (int i = 0; i < CALLERS; i++) {
        void *result;
        pthread_join(threads[i], &result);
        wrong += (int)(intptr_t)result;
    }
    return wrong;
}

int main(int count, char **arguments) {
    (void)arguments;
    int wrong = callers(), status = 0;
    if (count > 1) { /* a fork: its threads are its own */
        pid_t child = fork();
        if (!child) _exit(one_run(3) != 0);
        waitpid(child, &status, 0);
    }
    printf("%d wrong, child %d\n", wrong, status);
    return wrong != 0 || status != 0;
}
