/* A thread pool that is kept between forwards.
 *
 * One atomic word describes a phase: its number, its number of jobs, and the next job. A thread that adds 1 to the word
 * owns the job in the word's previous value, in the phase of that value, so a thread that was delayed cannot take a job
 * of a phase it does not know. A phase without jobs is the end of a run. The thread that finishes the last job of a
 * phase does the serial part and opens the next phase, so no thread is woken for that.
 *
 * A waiting thread spins for a short time, then sleeps on a futex (the word's upper half), so that other programs on
 * the machine can run. Threads are started when first needed, and again after a fork. */
#define _GNU_SOURCE
#include "thread_pool.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>
#include <time.h>

#if defined(__linux__)
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif
#if defined(__SSE__)
#include <xmmintrin.h>
#endif

#define SPINS 2000

static _Atomic uint64_t word;     /* phase (32 bits) | jobs (16) | next job (16) */
static _Atomic uint32_t done;     /* jobs of the phase that are finished */
static _Atomic uint32_t sleeping; /* threads that sleep on the futex */
static _Atomic int caller_waits;  /* whether the calling thread may be among them */
static const spec_work *work_now;
static void *context_now;
static _Atomic int threads_now; /* threads of this run */
static _Atomic int started;     /* threads of the pool without the caller */
static pthread_mutex_t owner = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static uint32_t phase_of(uint64_t w) { return (uint32_t)(w >> 32); }
static uint32_t jobs_of(uint64_t w) { return (uint32_t)(w >> 16) & 0xffff; }
static uint32_t next_of(uint64_t w) { return (uint32_t)w & 0xffff; }

/* ---- floating-point state: denormals make some kernels three times slower */

static unsigned flush_denormals(void) {
#if defined(__SSE__)
    unsigned before = _mm_getcsr();
    _mm_setcsr((before & ~0x3fu) | 0x8040 | 0x1f80); /* flush to zero, denormals are zero, no traps */
    return before;
#elif defined(__aarch64__)
    uint64_t before;
    __asm__ volatile("mrs %0, fpcr" : "=r"(before));
    __asm__ volatile("msr fpcr, %0" : : "r"((before & ~0x9f00ull) | 1 << 24)); /* likewise: no traps, flush to zero */
    return (unsigned)before;
#else
    return 0;
#endif
}

static void restore(unsigned before) {
#if defined(__SSE__)
    _mm_setcsr(before);
#elif defined(__aarch64__)
    __asm__ volatile("msr fpcr, %0" : : "r"((uint64_t)before));
#else
    (void)before;
#endif
}

/* ---- waiting */

static void pause_once(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static void sleep_while(uint32_t phase) {
#if defined(__linux__)
    uint32_t *upper = (uint32_t *)&word + (__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__);
    atomic_fetch_add(&sleeping, 1);
    syscall(SYS_futex, upper, FUTEX_WAIT_PRIVATE, phase, NULL, NULL, 0);
    atomic_fetch_sub(&sleeping, 1);
#else
    (void)phase;
    nanosleep(&(struct timespec){0, 50000}, NULL);
#endif
}

static void wake_all(void) {
#if defined(__linux__)
    uint32_t *upper = (uint32_t *)&word + (__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__);
    if (atomic_load(&sleeping)) syscall(SYS_futex, upper, FUTEX_WAKE_PRIVATE, 1 << 20, NULL, NULL, 0);
#endif
}

/* Whether the thread slept. */
static int wait_behind(uint32_t phase) {
    for (int i = 0; i < SPINS; i++) {
        if (phase_of(atomic_load_explicit(&word, memory_order_acquire)) != phase) return 0;
        pause_once();
    }
    sleep_while(phase);
    return 1;
}

/* ---- phases */

static void publish(uint32_t phase, uint32_t jobs) {
    atomic_store(&done, 0);
    atomic_store(&word, (uint64_t)phase << 32 | (uint64_t)jobs << 16);
    if (jobs || atomic_load(&caller_waits)) wake_all(); /* no other thread needs to know of the end of a run */
}

static void advance(uint32_t phase) {
    int jobs = work_now->next(context_now);
    publish(phase + 1, (uint32_t)jobs);
}

/* Runs jobs, of any number of phases, until there are none. Returns the word to wait on. */
static uint64_t serve(int thread) {
    for (;;) {
        uint64_t w = atomic_load(&word);
        if (next_of(w) >= jobs_of(w)) return w;
        w = atomic_fetch_add(&word, 1);
        if (next_of(w) >= jobs_of(w)) continue;
        work_now->work(context_now, (int)next_of(w), thread);
        if (atomic_fetch_add(&done, 1) + 1 == jobs_of(w)) advance(phase_of(w));
    }
}

static void *worker(void *argument) {
    int thread = (int)(intptr_t)argument;
    flush_denormals();
    for (;;) {
        uint64_t w = atomic_load(&word);
        wait_behind(phase_of(thread < atomic_load(&threads_now) ? serve(thread) : w));
    }
    return NULL;
}

/* ---- start and end of threads */

static void forget(void) { /* in a child of a fork: its parent's threads do not exist */
    started = 0;
    atomic_store(&word, 0);
    atomic_store(&sleeping, 0);
    atomic_store(&caller_waits, 0);
    pthread_mutex_t fresh = PTHREAD_MUTEX_INITIALIZER;
    memcpy(&owner, &fresh, sizeof owner);
}

static void prepare(void) { pthread_atfork(NULL, NULL, forget); }

static void start(int threads) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before); /* Python's threads handle signals */
    while (started < threads - 1) {
        pthread_t made;
        if (pthread_create(&made, NULL, worker, (void *)(intptr_t)(started + 1))) break;
        pthread_detach(made);
        started++;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

static int run_alone(const spec_work *work, void *context) {
    for (int jobs; (jobs = work->next(context)) > 0;)
        for (int job = 0; job < jobs; job++) work->work(context, job, 0);
    return -1;
}

static int run_together(int threads, const spec_work *work, void *context) {
    int waits = 0;
    start(threads);
    work_now = work, context_now = context;
    atomic_store(&threads_now, threads);
    advance(phase_of(atomic_load(&word)));
    for (uint64_t w; jobs_of(w = serve(0)) > 0;) {
        atomic_store(&caller_waits, 1);
        waits += wait_behind(phase_of(w));
        atomic_store(&caller_waits, 0);
    }
    return waits;
}

int spec_pool_width(void) { return started + 1; }

int spec_pool_run(int threads, const spec_work *work, void *context) {
    unsigned state = flush_denormals();
    int waits;
    pthread_once(&once, prepare);
    if (threads > 1 && pthread_mutex_trylock(&owner) == 0) {
        waits = run_together(threads > SPEC_MAX_THREADS ? SPEC_MAX_THREADS : threads, work, context);
        pthread_mutex_unlock(&owner);
    } else {
        waits = run_alone(work, context);
    }
    restore(state);
    return waits;
}
